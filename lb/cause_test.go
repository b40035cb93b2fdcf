package lb_test

import (
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

func TestCauses(t *testing.T) {
	status := func(code int) lb.Cause {
		return lb.Cause{Detail: lb.DetailHTTPStatus, HTTPStatus: code}
	}
	s := lb.State{
		Listeners: []lb.Listener{{Port: 80}, {Port: 443}},
		CheckResults: lb.CheckResults{Verdicts: map[int]map[lb.Target]lb.Verdict{
			80: {
				{Server: 1}: lb.Unhealthy, {Server: 2}: lb.Unhealthy, {Server: 3}: lb.Unhealthy,
				{Server: 4}: lb.Unhealthy, {Server: 5}: lb.Unknown,
			},
		}, Why: map[int]map[lb.Target]lb.Cause{
			80: {
				{Server: 1}: {Detail: lb.DetailConnectLate}, {Server: 2}: status(503), {Server: 3}: status(503),
				{Server: 4}: {Detail: lb.DetailUnspecified}, {Server: 5}: status(500),
			},
		}},
	}
	if got, want := s.Causes(80), "HTTP status 503 at 2 targets, connecting timed out at 1 target"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := s.Causes(443); got != "" {
		t.Errorf("a listener of which nothing is said: %q", got)
	}
	// Details that change with each check are part of the announcement, and don't make a new note.
	note := s.NoHealthyTarget(s.Listeners[0], false)
	if strings.Contains(note.String(), "503") || !strings.Contains(note.Announcement(), "HTTP status 503 at 2 targets") {
		t.Errorf("%q\n%q", note, note.Announcement())
	}
	for cause, want := range map[lb.Cause]string{
		{}:                                 "",
		{Detail: lb.DetailUnspecified}:     "",
		{Detail: lb.DetailNoConnection}:    "no connection",
		{Detail: lb.DetailResponseTimeout}: "no response in time",
		{Detail: lb.DetailHTTPContent}:     "unexpected content",
		{Detail: "layer7_tls_handshake"}:   "layer7_tls_handshake",
	} {
		if got := cause.String(); got != want {
			t.Errorf("%+v: %q, want %q", cause, got, want)
		}
	}
}
