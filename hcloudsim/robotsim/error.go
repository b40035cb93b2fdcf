package robotsim

import (
	"fmt"
	"net/http"
)

// Error is an error in the web service's format, returned by every rule and the Go API.
type Error struct {
	Status  int    // HTTP status
	Code    string // error code, such as SERVER_NOT_FOUND
	Message string

	details map[string]any // further fields
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

const (
	codeInvalid   = "INVALID_INPUT"
	codeRateLimit = "RATE_LIMIT_EXCEEDED"

	codeUnauthorized   = "UNAUTHORIZED"
	codeNotFound       = "NOT_FOUND"
	codeServerNotFound = "SERVER_NOT_FOUND"
	codeConflict       = "CONFLICT"

	codeResetUnavailable = "RESET_NOT_AVAILABLE"
	codeResetManual      = "RESET_MANUAL_ACTIVE"
	codeResetFailed      = "RESET_FAILED"

	codeVSwitchUnavailable = "VSWITCH_NOT_AVAILABLE"
	codeVSwitchLimit       = "VSWITCH_LIMIT_REACHED"
	codeVSwitchInProcess   = "VSWITCH_IN_PROCESS"
	codeVLANNotUnique      = "VSWITCH_VLAN_NOT_UNIQUE"
	codeVSwitchServers     = "VSWITCH_SERVER_LIMIT_REACHED"
	codeServerVSwitches    = "VSWITCH_PER_SERVER_LIMIT_REACHED"

	codeFailoverServer      = "FAILOVER_NEW_SERVER_NOT_FOUND"
	codeFailoverRouted      = "FAILOVER_ALREADY_ROUTED"
	codeFailoverLocked      = "FAILOVER_LOCKED"
	codeFailoverFailed      = "FAILOVER_FAILED"
	codeFailoverNotComplete = "FAILOVER_NOT_COMPLETE"
)

func statusOf(code string) int {
	switch code {
	case codeInvalid:
		return http.StatusBadRequest
	case codeUnauthorized:
		return http.StatusUnauthorized
	case codeRateLimit:
		return http.StatusForbidden
	case codeNotFound, codeServerNotFound, codeResetUnavailable, codeVSwitchUnavailable,
		codeFailoverServer:
		return http.StatusNotFound
	case codeConflict, codeResetManual, codeVSwitchLimit, codeVSwitchInProcess, codeVLANNotUnique,
		codeVSwitchServers, codeServerVSwitches, codeFailoverRouted, codeFailoverLocked:
		return http.StatusConflict
	default:
		return http.StatusInternalServerError
	}
}

func refusal(code, format string, args ...any) *Error {
	return &Error{Status: statusOf(code), Code: code, Message: fmt.Sprintf(format, args...)}
}

// errInput names the parameters that are missing and those that are invalid. An empty list is
// documented as null.
func errInput(missing, invalid []string) *Error {
	e := refusal(codeInvalid, "invalid input")
	e.details = map[string]any{"missing": missing, "invalid": invalid}
	return e
}

func errMissing(field string) *Error { return errInput([]string{field}, nil) }

func errInvalid(field string) *Error { return errInput(nil, []string{field}) }

func errNoServer(id any) *Error {
	return refusal(codeServerNotFound, "Server with id %v not found", id)
}

func errNoSuchPath() *Error { return refusal(codeNotFound, "Not Found") }
