package robotsim_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

// Each operation has its own quota, which is restored after an hour.
func TestQuotas(t *testing.T) {
	for _, c := range []struct {
		name    string
		options robotsim.Options
		start   time.Duration // after a full hour
		wait    time.Duration // until requests are allowed again
		field   string
	}{
		{"each for an hour", robotsim.Options{}, 20 * time.Minute, time.Hour, "max_request"},
		{"by the hour", robotsim.Options{FixedHours: true}, 20 * time.Minute, 40 * time.Minute, "max_request"},
		{"as clients saw it", robotsim.Options{MaxRequests: true}, 0, time.Hour, "max_requests"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := seeded(t, c.options)
				time.Sleep(c.start)
				for range 100 {
					send(t, sim, "GET", "/failover", "").want(t, 200, "")
				}
				refused := send(t, sim, "GET", "/failover", "")
				refused.want(t, http.StatusForbidden, "RATE_LIMIT_EXCEEDED")
				if refused.at("error."+c.field) != float64(100) || refused.at("error.interval") != float64(3600) {
					t.Errorf("refused with %s", refused.body)
				}
				send(t, sim, "GET", "/failover/203.0.113.100", "").want(t, 200, "")
				time.Sleep(c.wait - time.Second)
				send(t, sim, "GET", "/failover", "").want(t, http.StatusForbidden, "RATE_LIMIT_EXCEEDED")
				time.Sleep(time.Second)
				send(t, sim, "GET", "/failover", "").want(t, 200, "")
			})
		})
	}
}

func TestRefusedRequestsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := seeded(t, robotsim.Options{RefusedCount: true, Quotas: map[string]int{"GET /server": 1}})
		send(t, sim, "GET", "/server", "").want(t, 200, "")
		time.Sleep(59 * time.Minute)
		send(t, sim, "GET", "/server", "").want(t, http.StatusForbidden, "RATE_LIMIT_EXCEEDED")
		time.Sleep(59 * time.Minute) // the first is over an hour old, the second isn't
		send(t, sim, "GET", "/server", "").want(t, http.StatusForbidden, "RATE_LIMIT_EXCEEDED")
		time.Sleep(time.Hour)
		send(t, sim, "GET", "/server", "").want(t, 200, "")
	})
}

// Three failed logins block their source address, also for the valid password.
func TestBlockedAfterFailedLogins(t *testing.T) {
	for _, c := range []struct {
		name    string
		blocked robotsim.Blocked
		status  int
	}{
		{"401", robotsim.BlockedUnauthorized, 401},
		{"403", robotsim.BlockedForbidden, 403},
		{"dropped", robotsim.BlockedDropped, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := seeded(t, robotsim.Options{Blocked: c.blocked})
				for i := range 3 {
					r := request(t, "GET", "/server", "")
					r.SetBasicAuth(user, "wrong")
					if i == 1 {
						r.Header.Del("Authorization") // counts too
					}
					exchange(t, sim, r).want(t, http.StatusUnauthorized, "UNAUTHORIZED")
					if blocked := len(sim.Blocked()) > 0; blocked != (i == 2) {
						t.Errorf("blocked after %d failed logins: %v", i+1, blocked)
					}
				}
				got, err := sim.Transport().RoundTrip(request(t, "GET", "/server", ""))
				switch {
				case c.status == 0 && !errors.Is(err, io.ErrUnexpectedEOF):
					t.Errorf("got %+v, %v, want a dropped connection", got, err)
				case c.status != 0 && (err != nil || got.StatusCode != c.status):
					t.Errorf("got %+v, %v, want %d", got, err, c.status)
				}
				other := request(t, "GET", "/server", "")
				other.RemoteAddr = "198.51.100.7:1234"
				exchange(t, sim, other).want(t, 200, "")
				time.Sleep(10 * time.Minute)
				send(t, sim, "GET", "/server", "").want(t, 200, "")
			})
		})
	}
}

// A failed login with the response 403 counts like one with 401.
func TestForbiddenLogins(t *testing.T) {
	for _, blocked := range []robotsim.Blocked{
		robotsim.BlockedUnauthorized, robotsim.BlockedForbidden,
	} {
		sim := seeded(t, robotsim.Options{ForbiddenLogin: true, Blocked: blocked})
		send(t, sim, "GET", "/server", "").want(t, 200, "")
		for range 3 {
			r := request(t, "GET", "/server", "")
			r.SetBasicAuth(user, "wrong")
			exchange(t, sim, r).want(t, http.StatusForbidden, "UNAUTHORIZED")
		}
		if len(sim.Blocked()) != 1 {
			t.Error("three failed logins block nobody")
		}
		code := "UNAUTHORIZED"
		if blocked == robotsim.BlockedForbidden {
			code = ""
		}
		send(t, sim, "GET", "/server", "").want(t, http.StatusForbidden, code)
	}
}

// Two failures are forgotten after the duration of a block.
func TestFailedLoginsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := seeded(t, robotsim.Options{})
		for range 10 {
			r := request(t, "GET", "/server", "")
			r.SetBasicAuth("other", password)
			exchange(t, sim, r).want(t, http.StatusUnauthorized, "UNAUTHORIZED")
			time.Sleep(5 * time.Minute)
		}
		send(t, sim, "GET", "/server", "").want(t, 200, "")
		sim.SetCredentials("other", password)
		send(t, sim, "GET", "/server", "").want(t, http.StatusUnauthorized, "UNAUTHORIZED")
	})
}

func TestMaintenance(t *testing.T) {
	sim := seeded(t, robotsim.Options{})
	sim.SetMaintenance(true)
	r := request(t, "GET", "/server", "")
	r.SetBasicAuth(user, "wrong")
	for range 5 { // failed logins don't count in maintenance
		exchange(t, sim, r).want(t, http.StatusServiceUnavailable, "")
	}
	sim.SetMaintenance(false)
	send(t, sim, "GET", "/server", "").want(t, 200, "")
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := seeded(t, robotsim.Options{Latency: time.Second})
		inject := func(f robotsim.Fault) { t.Helper(); noError(t, sim.Inject(f)) }
		inject(robotsim.Fault{Match: "GET /server", Status: 502})
		if got := send(t, sim, "GET", "/server", ""); got.status != 502 || got.header.Get("Content-Type") == "application/json" {
			t.Errorf("got %d %s, want a page", got.status, got.body)
		}
		inject(robotsim.Fault{Match: "GET /server", EmptyList: true})
		send(t, sim, "GET", "/server", "").want(t, 404, "SERVER_NOT_FOUND")
		inject(robotsim.Fault{Match: "GET /server", PartialList: true})
		if got := send(t, sim, "GET", "/server", ""); got.at("0.server.server_number") != float64(321) || got.at("1.server") != nil {
			t.Errorf("got %s, want half of it", got.body)
		}
		for _, f := range []robotsim.Fault{{DropBeforeApply: true}, {DropAfterApply: true}} {
			inject(f)
			if _, err := sim.Transport().RoundTrip(request(t, "POST", "/vswitch/4321", "name=new&vlan=4001")); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("got %v, want a dropped connection", err)
			}
			name := send(t, sim, "GET", "/vswitch/4321", "").at("name")
			if applied := name == "new"; applied != f.DropAfterApply {
				t.Errorf("%+v: name is %v", f, name)
			}
		}
		began := time.Now()
		inject(robotsim.Fault{Delay: time.Minute, Times: -1})
		send(t, sim, "GET", "/server", "").want(t, 200, "")
		if took := time.Since(began); took != 61*time.Second {
			t.Errorf("took %s", took)
		}
		sim.ClearFaults()
		if err := sim.Inject(robotsim.Fault{Match: "server"}); err == nil {
			t.Error("a pattern without a path is accepted")
		}
	})
}

// The log contains the requests, and never a password.
func TestRequestLog(t *testing.T) {
	var told []robotsim.Request
	sim := newSim(robotsim.Options{
		RequestLogSize: 4, OnRequest: func(r robotsim.Request) { told = append(told, r) },
	})
	for range 7 {
		send(t, sim, "GET", "/vswitch", "")
	}
	log := sim.Requests()
	if len(told) != 7 || len(log) < 4 || len(log) > 5 {
		t.Errorf("%d told, %d remembered", len(told), len(log))
	}
	if want := (robotsim.Request{Method: "GET", Path: "/vswitch", User: user, Status: 200}); !slices.ContainsFunc(log, func(r robotsim.Request) bool {
		r.Time = time.Time{}
		return r == want
	}) {
		t.Errorf("log is %+v", log)
	}
	sim.ResetRequests()
	if n := len(sim.Requests()); n != 0 {
		t.Errorf("%d requests after a reset", n)
	}
}
