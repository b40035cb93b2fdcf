package hcloudsim

import (
	"fmt"
	"net/http"
)

// Error is an error in the API's format, returned by every rule and the Go API.
type Error struct {
	Status  int    `json:"-"`    // HTTP status
	Code    string `json:"code"` // error code, such as not_found
	Message string `json:"message"`
	Details any    `json:"details"`
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

func newError(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// fieldError is the detail of invalid_input and uniqueness_error.
type fieldError struct {
	Name     string   `json:"name"`
	Messages []string `json:"messages,omitempty"`
}

func (e *Error) about(field string, messages ...string) *Error {
	e.Details = map[string][]fieldError{"fields": {{field, messages}}}
	return e
}

func errInvalid(field, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	return errRefused("invalid_input", "invalid input in field '%s': %s", field, message).
		about(field, message)
}

func errJSON() *Error {
	return newError(http.StatusBadRequest, "json_error", "invalid JSON in request body")
}

func errNotFound(kind string, id any) *Error {
	return errMissing("%s with ID '%v' not found", kind, id)
}

func errMissing(format string, args ...any) *Error {
	return newError(http.StatusNotFound, "not_found", format, args...)
}

func errNoSuchPath() *Error { return errMissing("the requested resource was not found") }

func errTaken(field, what string) *Error {
	return newError(http.StatusConflict, "uniqueness_error", "%s is already used", what).about(field)
}

// errLimit names the exceeded quota.
func errLimit(limit string, most int) *Error {
	e := newError(http.StatusForbidden, "resource_limit_exceeded",
		"limit of %d reached: %s", most, limit)
	e.Details = map[string][]map[string]string{"limits": {{"name": limit}}}
	return e
}

func errProtected(kind string) *Error {
	return newError(http.StatusLocked, "protected", "%s is protected against deletion", kind)
}

func errBusy(busy Busy, on ref) *Error {
	if busy == BusyLocked {
		return newError(http.StatusLocked, "locked",
			"%s %d is locked: an action is running", on.kind, on.id)
	}
	return newError(http.StatusConflict, "conflict",
		"%s %d is being changed, please retry", on.kind, on.id)
}

// errRefused returns a 422 with an operation-specific code.
func errRefused(code, format string, args ...any) *Error {
	return newError(http.StatusUnprocessableEntity, code, format, args...)
}

// exceeds reports whether another resource would exceed the limit.
func exceeds(have, limit int) bool { return limit != Unlimited && have >= limit }
