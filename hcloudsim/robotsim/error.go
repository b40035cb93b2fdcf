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

	// Missing and Invalid are the parameters that caused INVALID_INPUT.
	Missing, Invalid []string

	// limit is the number of requests that RATE_LIMIT_EXCEEDED reports as allowed.
	limit int
}

func (e *Error) Error() string { return fmt.Sprintf("%s (%s)", e.Message, e.Code) }

// body returns the error as JSON fields; limitField is the name of the quota's field.
func (e *Error) body(limitField string) map[string]any {
	fields := map[string]any{"status": e.Status, "code": e.Code, "message": e.Message}
	switch e.Code {
	case codeInvalid:
		fields["missing"], fields["invalid"] = orNull(e.Missing), orNull(e.Invalid)
	case codeRateLimit:
		fields[limitField], fields["interval"] = e.limit, int(interval.Seconds())
	}
	return map[string]any{"error": fields}
}

// orNull returns nil for an empty list, which is documented as null.
func orNull(list []string) any {
	if len(list) == 0 {
		return nil
	}
	return list
}

const (
	codeInvalid   = "INVALID_INPUT"
	codeRateLimit = "RATE_LIMIT_EXCEEDED"

	codeUnauthorized   = "UNAUTHORIZED"
	codeNotFound       = "NOT_FOUND"
	codeServerNotFound = "SERVER_NOT_FOUND"
	codeConflict       = "CONFLICT"
	codeInternal       = "INTERNAL_ERROR"

	codeReserveLocation = "SERVER_CANCELLATION_RESERVE_LOCATION_FALSE_ONLY"

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
	case codeNotFound, codeServerNotFound, codeResetUnavailable, codeVSwitchUnavailable, codeFailoverServer:
		return http.StatusNotFound
	case codeConflict, codeReserveLocation, codeResetManual, codeVSwitchLimit, codeVSwitchInProcess, codeVLANNotUnique,
		codeVSwitchServers, codeServerVSwitches, codeFailoverRouted, codeFailoverLocked:
		return http.StatusConflict
	default:
		return http.StatusInternalServerError
	}
}

func refusal(code, format string, args ...any) *Error {
	return &Error{Status: statusOf(code), Code: code, Message: fmt.Sprintf(format, args...)}
}

func errMissing(fields ...string) *Error {
	return &Error{Status: statusOf(codeInvalid), Code: codeInvalid, Message: "invalid input", Missing: fields}
}

func errInvalid(fields ...string) *Error {
	return &Error{Status: statusOf(codeInvalid), Code: codeInvalid, Message: "invalid input", Invalid: fields}
}

func errNoServer(id any) *Error {
	return refusal(codeServerNotFound, "Server with id %v not found", id)
}

func errNoSuchPath() *Error { return refusal(codeNotFound, "Not Found") }

// exceeds reports whether another resource would exceed the limit.
func exceeds(have, limit int) bool { return limit != Unlimited && have >= limit }
