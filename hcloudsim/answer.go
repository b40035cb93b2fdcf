package hcloudsim

import (
	"errors"
	"fmt"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// answer is a response under construction.
type answer struct {
	httpsim.Answer
	project *project // that serves the request
	fault   Fault    // injected into the request
}

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
