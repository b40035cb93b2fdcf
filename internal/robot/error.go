package robot

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Codes of errors that callers distinguish.
const (
	CodeRateLimit      = "RATE_LIMIT_EXCEEDED"
	CodeNotFound       = "NOT_FOUND"
	CodeServerNotFound = "SERVER_NOT_FOUND"
	CodeAlreadyRouted  = "FAILOVER_ALREADY_ROUTED"
	CodeLocked         = "FAILOVER_LOCKED"
)

// Error is an error response of the web service.
type Error struct {
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
	// MaxRequests is the quota per Interval of CodeRateLimit.
	MaxRequests int `json:"max_requests"`
	// MaxRequest is its documented name.
	MaxRequest int `json:"max_request"`
	// Interval is in seconds.
	Interval int `json:"interval"`
}

func (e *Error) Error() string {
	if e.Code == CodeRateLimit {
		return fmt.Sprintf("%s (%s): the quota of %d requests in %d s is used up, by other programs of the account too; try again after that time", e.Message, e.Code, e.MaxRequests, e.Interval)
	}
	return fmt.Sprintf("%s (%d %s)", cmp.Or(e.Message, http.StatusText(e.Status)), e.Status, e.Code)
}

// readError decodes an error response. Without a code it is not the web service's, but possibly
// that of a proxy.
func readError(status int, body []byte) *Error {
	var envelope struct {
		Error Error `json:"error"`
	}
	_ = json.Unmarshal(body, &envelope) // mistyped fields leave the code readable
	e := &envelope.Error
	e.Status, e.MaxRequests = status, cmp.Or(e.MaxRequests, e.MaxRequest)
	return e
}

// IsCode reports whether the web service replied with one of the codes.
func IsCode(err error, codes ...string) bool {
	var refused *Error
	return errors.As(err, &refused) && slices.Contains(codes, refused.Code)
}

// Unavailable means that the web service doesn't respond.
type Unavailable struct {
	Since time.Time // when the first request failed
	Until time.Time // no request is sent before
	Cause error
}

func (e *Unavailable) Error() string {
	return fmt.Sprintf("the Robot web service has not responded since %s (next try after %s): %v",
		e.Since.UTC().Format(time.RFC3339), e.Until.UTC().Format(time.RFC3339), e.Cause)
}

// Unwrap returns Cause.
func (e *Unavailable) Unwrap() error { return e.Cause }
