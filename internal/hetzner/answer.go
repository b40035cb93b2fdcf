package hetzner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
)

// matched rejects a 200 response to a request for one object if it has no object, or one with
// another ID: hcloud-go would return an empty object, such as a network without routes.
type matched struct{ next http.RoundTripper }

func (t *matched) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	id, notOne := strconv.ParseInt(path.Base(r.URL.Path), 10, 64)
	if err != nil || notOne != nil || r.Method != http.MethodGet && r.Method != http.MethodPut ||
		resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	var objects map[string]struct {
		ID int64 `json:"id"`
	}
	err = json.Unmarshal(body, &objects)
	for _, object := range objects {
		if err == nil && object.ID == id {
			resp.Body = io.NopCloser(bytes.NewReader(body))
			return resp, nil
		}
	}
	return nil, fmt.Errorf("the response to %s %s has no object with this ID", r.Method, r.URL.Path)
}
