package hcloudsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// call is a request at its endpoint, with the current project.
type call struct {
	*project
	request *http.Request
	fault   Fault
}

type reply struct {
	status int
	body   any // nil: no body
	link   string
}

// endpoint carries out one operation of the API. Its errors are *Error.
type endpoint func(*call) (reply, error)

// serve wraps an endpoint in a handler. The exchange holds the lock.
func (s *Simulator) serve(do endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		a := w.(*answer) // carryOut passes no other writer
		out, err := do(&call{project: a.project, request: r, fault: a.fault})
		if err != nil {
			a.refuse(err)
			return
		}
		if out.link != "" {
			a.Header().Set("Link", out.link)
		}
		a.Send(out.status, out.body)
	}
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

// must returns the resource with an ID, or a not_found error.
func must[R resource](t *table[R], kind string, id int64) (R, error) {
	r, ok := t.get(id)
	if !ok {
		return r, errNotFound(kind, id)
	}
	return r, nil
}

// decode reads the request body, which must be a single JSON object.
func decode[T any](c *call) (T, error) {
	var into T
	body, err := io.ReadAll(c.request.Body)
	if err != nil || len(body) > httpsim.MaxBody {
		return into, errJSON()
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 || body[0] != '{' {
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

// started replies with an action.
func (c *call) started(a *action) (reply, error) {
	return reply{status: http.StatusCreated, body: schema.ActionGetResponse{Action: c.renderAction(a)}}, nil
}

// ok replies with one resource under its key.
func ok(status int, key string, value any) (reply, error) {
	return reply{status: status, body: map[string]any{key: value}}, nil
}
