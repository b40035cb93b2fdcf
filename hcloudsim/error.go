package hcloudsim

import (
	"fmt"
	"net/http"
)

// Error is an error in the API's format, returned by every rule and the Go API.
type Error struct {
	Status  int    // HTTP status
	Code    string // error code, such as not_found
	Message string
	Details any // rendered as error.details; nil is null
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// fieldDetails are the details of invalid_input and uniqueness_error.
type fieldDetails struct {
	Fields []fieldError `json:"fields"`
}

type fieldError struct {
	Name     string   `json:"name"`
	Messages []string `json:"messages,omitempty"`
}

// limitDetails names the exceeded quota in resource_limit_exceeded.
type limitDetails struct {
	Limits []limitName `json:"limits"`
}

type limitName struct {
	Name string `json:"name"`
}

type announcementDetails struct {
	Announcement string `json:"announcement"`
}

func errInvalid(field, format string, args ...any) *Error {
	message := fmt.Sprintf(format, args...)
	return &Error{
		Status:  http.StatusUnprocessableEntity,
		Code:    "invalid_input",
		Message: fmt.Sprintf("invalid input in field '%s': %s", field, message),
		Details: fieldDetails{[]fieldError{{Name: field, Messages: []string{message}}}},
	}
}

func errJSON() *Error {
	return &Error{Status: http.StatusBadRequest, Code: "json_error", Message: "invalid JSON in request body"}
}

func errNotFound(kind string, id any) *Error {
	return errMissing(fmt.Sprintf("%s with ID '%v' not found", kind, id))
}

func errMissing(message string) *Error {
	return &Error{Status: http.StatusNotFound, Code: "not_found", Message: message}
}

func errNoSuchPath() *Error { return errMissing("the requested resource was not found") }

func errMethod() *Error {
	return &Error{Status: http.StatusMethodNotAllowed, Code: "method_not_allowed", Message: "the request method is not allowed"}
}

func errTaken(field, what string) *Error {
	return &Error{
		Status: http.StatusConflict, Code: "uniqueness_error", Message: what + " is already used",
		Details: fieldDetails{[]fieldError{{Name: field}}},
	}
}

func errLimit(limit string, most int) *Error {
	return &Error{
		Status: http.StatusForbidden, Code: "resource_limit_exceeded",
		Message: fmt.Sprintf("limit of %d reached: %s", most, limit),
		Details: limitDetails{[]limitName{{Name: limit}}},
	}
}

func errProtected(kind string) *Error {
	return &Error{Status: http.StatusLocked, Code: "protected", Message: kind + " is protected against deletion"}
}

func errBusy(busy Busy, on ref) *Error {
	if busy == BusyLocked {
		return &Error{Status: http.StatusLocked, Code: "locked", Message: fmt.Sprintf("%s %d is locked: an action is running", on.kind, on.id)}
	}
	return &Error{Status: http.StatusConflict, Code: "conflict", Message: fmt.Sprintf("%s %d is being changed, please retry", on.kind, on.id)}
}

// errRefused returns a 422 with an operation-specific code.
func errRefused(code, format string, args ...any) *Error {
	return &Error{Status: http.StatusUnprocessableEntity, Code: code, Message: fmt.Sprintf(format, args...)}
}

// exceeds reports whether another resource would exceed the limit.
func exceeds(have, limit int) bool { return limit != Unlimited && have >= limit }
