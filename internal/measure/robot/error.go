package robot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Codes of errors that experiments tell apart.
const (
	CodeRateLimit = "RATE_LIMIT_EXCEEDED"
	CodeNotFound  = "NOT_FOUND"
	CodeInProcess = "VSWITCH_IN_PROCESS"
	CodeConflict  = "CONFLICT"
	codeNoServer  = "SERVER_NOT_FOUND"
)

// Error is a refusal as the web service words it.
type Error struct {
	Status  int    `json:"-"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *Error) Error() string {
	if e.Code == CodeRateLimit {
		return fmt.Sprintf("%s (%s): the account's other programs have used up the quota; try again in an hour",
			e.Message, e.Code)
	}
	return fmt.Sprintf("%s (%d %s)", cmp.Or(e.Message, http.StatusText(e.Status)), e.Status, e.Code)
}

// IsCode reports whether the web service refused with one of the codes.
func IsCode(err error, codes ...string) bool {
	var refused *Error
	if !errors.As(err, &refused) {
		return false
	}
	for _, code := range codes {
		if refused.Code == code {
			return true
		}
	}
	return false
}

// LoginError says that the user and the password are refused; nothing more is sent with them.
type LoginError struct{ Status int }

func (e *LoginError) Error() string {
	return fmt.Sprintf("the Robot web service refuses the user and the password (%d); put in those of the web "+
		"service user in Robot's settings; nothing more was sent, because three failed logins block this address "+
		"for ten minutes", e.Status)
}

// refusal reads an answer that is no success. Something else than the web service may have given it.
func refusal(status int, body []byte) *Error {
	var envelope struct {
		Error Error `json:"error"`
	}
	_ = json.Unmarshal(body, &envelope) // without a code it is no answer of the web service
	envelope.Error.Status = status
	return &envelope.Error
}
