package hcloudsim

import (
	"errors"
	"fmt"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// answer is a response in the making, and who makes it.
type answer struct {
	httpsim.Answer
	project *project // that answers
	fault   Fault    // that hits the request
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
	a.Code = refusal.Code
	a.Send(refusal.Status, struct {
		Error envelope `json:"error"`
	}{envelope{refusal.Code, refusal.Message, refusal.Details}})
}
