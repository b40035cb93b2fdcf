package lb

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Detail is the API's code of why a check fails.
type Detail string

// The details that the API has at present; it may add more.
const (
	DetailUnspecified     Detail = "unspecified"
	DetailNoConnection    Detail = "layer4_no_connection"
	DetailConnectLate     Detail = "layer4_timeout"
	DetailResponseTimeout Detail = "layer7_timeout"
	DetailHTTPStatus      Detail = "unexpected_http_status"
	DetailHTTPContent     Detail = "unexpected_http_content"
)

// Cause is why the checks find a target unhealthy.
type Cause struct {
	Detail Detail
	// HTTPStatus is the received status; 0 unless Detail is DetailHTTPStatus.
	HTTPStatus int
}

// String describes the cause for users. It is empty if the cloud gives no cause.
func (c Cause) String() string {
	words, known := map[Detail]string{
		DetailUnspecified:     "",
		DetailNoConnection:    "no connection",
		DetailConnectLate:     "connecting timed out",
		DetailResponseTimeout: "no response in time",
		DetailHTTPStatus:      fmt.Sprintf("HTTP status %d", c.HTTPStatus),
		DetailHTTPContent:     "unexpected content",
	}[c.Detail]
	if !known {
		return string(c.Detail)
	}
	return words
}

// Causes summarizes why the checks of a listener find targets unhealthy, the most frequent cause
// first. It is empty if the cloud gives no cause.
func (s State) Causes(port int) string {
	counts := make(map[string]int)
	for t, verdict := range s.Verdicts[port] {
		if why := s.Why[port][t].String(); why != "" && verdict == Unhealthy {
			counts[why]++
		}
	}
	causes := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(causes, func(a, b string) int { return counts[b] - counts[a] })
	for i, why := range causes {
		targets := "targets"
		if counts[why] == 1 {
			targets = "target"
		}
		causes[i] = fmt.Sprintf("%s at %d %s", why, counts[why], targets)
	}
	return strings.Join(causes, ", ")
}
