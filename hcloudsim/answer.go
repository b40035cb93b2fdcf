package hcloudsim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// answer is a response in the making. It is the ResponseWriter that the
// endpoints see, so that a whole response exists before any byte of it leaves.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
	code   string // of the error, for the log

	project *project // that answers
	fault   Fault    // that hits the request
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *answer) send(status int, body any) {
	a.status = status
	if body == nil {
		return
	}
	a.header.Set("Content-Type", "application/json")
	if err := json.NewEncoder(&a.body).Encode(body); err != nil {
		// Everything that is sent is a struct of ours or of schema.
		panic(fmt.Sprintf("hcloudsim: encoding a response: %v", err))
	}
}

// refuse sends the error envelope.
func (a *answer) refuse(err error) {
	var refusal *Error
	if !errors.As(err, &refusal) {
		panic(fmt.Sprintf("hcloudsim: an endpoint failed with something else than an API error: %v", err))
	}
	type envelope struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Details any    `json:"details"`
	}
	a.code = refusal.Code
	a.send(refusal.Status, struct {
		Error envelope `json:"error"`
	}{envelope{refusal.Code, refusal.Message, refusal.Details}})
}
