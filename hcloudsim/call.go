package hcloudsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// call is a request at its endpoint, with its response and the project that serves it.
type call struct {
	*httpsim.Answer
	*project
	request *http.Request
}

type reply struct {
	status int
	body   any // nil: no body
}

// endpoint carries out one operation of the API. Its errors are *Error.
type endpoint func(*call) (reply, error)

// ServeHTTP implements [http.Handler] for a writer that is a call. The exchange holds the lock.
func (do endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := w.(*call) // carryOut passes no other writer
	c.request = r
	out, err := do(c)
	if err != nil {
		refuse(c.Answer, err)
		return
	}
	c.Send(out.status, out.body)
}

// pathID parses an ID from the path. It returns not found for an invalid ID.
func (c *call) pathID(name string) (int64, error) {
	text := c.request.PathValue(name)
	if !isID(text) {
		return 0, errNoSuchPath()
	}
	return strconv.ParseInt(text, 10, 64)
}

func isID(text string) bool {
	id, err := strconv.ParseInt(text, 10, 64)
	return err == nil && id > 0
}

// decode reads the request body, which must be a single JSON object.
func decode[T any](c *call) (into T, err error) {
	body, err := io.ReadAll(c.request.Body)
	object := bytes.HasPrefix(bytes.TrimSpace(body), []byte("{"))
	if err != nil || len(body) > httpsim.MaxBody || !object {
		return into, errJSON()
	}
	err = json.Unmarshal(body, &into)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return into, errInvalid(mismatch.Field, "must not be of type %s", mismatch.Value)
	}
	if err != nil {
		return into, errJSON()
	}
	return into, nil
}

// ok replies with one resource under its key.
func ok(status int, key string, value any) (reply, error) {
	return reply{status: status, body: map[string]any{key: value}}, nil
}
