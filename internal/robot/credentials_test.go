package robot_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/robot"
)

func wantRefused(t *testing.T, err error) {
	t.Helper()
	var refused *robot.CredentialsError
	if !errors.As(err, &refused) {
		t.Errorf("got %v, want that the credentials are refused", err)
	}
	if err != nil && (strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "wrong")) {
		t.Errorf("the error tells the password: %v", err)
	}
}

// Regardless of the number of callers and the time, one request has wrong credentials.
func TestWrongCredentialsAreSentOnce(t *testing.T) {
	for _, o := range []robotsim.Options{
		{},
		{Blocked: robotsim.BlockedForbidden},
		{Blocked: robotsim.BlockedDropped},
		{ForbiddenLogin: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			o.Latency = 50 * time.Millisecond
			a := newAccount(t, o)
			status := 401
			if o.ForbiddenLogin {
				status = 403
			}
			a.given.Store(user + ":wrong")
			var all sync.WaitGroup
			for range 20 {
				all.Go(func() { _, err := a.client.Servers(t.Context()); wantRefused(t, err) })
				all.Go(func() {
					_, err := a.client.RouteFailover(t.Context(), netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr("203.0.113.2"))
					wantRefused(t, err)
				})
			}
			all.Wait()
			for range 59 {
				time.Sleep(time.Minute)
				_, err := a.client.Members(t.Context(), 4321)
				wantRefused(t, err)
			}
			if n := len(a.sim.Requests()); n != 1 || a.countRequests(status) != 1 {
				t.Fatalf("%d requests were sent, want exactly one with wrong credentials", n)
			}
			time.Sleep(time.Minute) // an hour has passed
			for range 10 {
				_, err := a.client.Members(t.Context(), 4321)
				wantRefused(t, err)
			}
			if n := len(a.sim.Requests()); n != 2 || a.countRequests(status) != 2 {
				t.Fatalf("%d requests were sent, want one in each hour", n)
			}
			a.given.Store(user + ":" + password)
			if _, err := a.client.Servers(t.Context()); err != nil {
				t.Errorf("the right ones: %v", err)
			}
			a.outage(t, false)
		})
	}
}

// A password that is replaced in Robot during many requests fails for those that were unconfirmed
// together, and the new one is used as soon as that is safe.
func TestARevokedPasswordFailsTwiceAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{
			Latency: 200 * time.Millisecond, FailoverTime: 50 * time.Second,
		})
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				for range 20 {
					_, err := a.client.Server(t.Context(), 321)
					if err != nil {
						wantRefused(t, err)
					}
				}
			})
			if i == 0 {
				all.Go(func() {
					_, _ = a.client.RouteFailover(t.Context(), netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr("203.0.113.2"))
				})
			}
		}
		time.Sleep(12 * time.Second)
		a.sim.SetCredentials(user, "new")
		all.Wait()
		_, err := a.client.Servers(t.Context())
		wantRefused(t, err)
		if n := a.countRequests(401); n < 1 || n > 2 || len(a.sim.Blocked()) > 0 {
			t.Errorf("%d requests carried the old password, want two at most", n)
		}
		a.given.Store(user + ":new")
		_, err = a.client.Servers(t.Context())
		var waiting *robot.CredentialsError
		if errors.As(err, &waiting) && waiting.Any {
			time.Sleep(time.Until(waiting.Until))
			_, err = a.client.Servers(t.Context())
		}
		noError(t, err)
	})
}

// Whatever sequence of credentials users write into the files, the address is never blocked, and
// valid ones work in the end.
func TestNeverAThirdFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		for i := range 60 {
			a.given.Store(fmt.Sprintf("%s:wrong-%d", user, i))
			_, err := a.client.Servers(t.Context())
			wantRefused(t, err)
			if blocked := a.sim.Blocked(); len(blocked) > 0 {
				t.Fatalf("blocked after %d passwords", i+1)
			}
			time.Sleep(20 * time.Second)
		}
		if n := a.countRequests(401); n != 4 {
			t.Errorf("%d were tried in 20 minutes, want two in each ten", n)
		}
		a.given.Store(user + ":" + password)
		var waiting *robot.CredentialsError
		_, err := a.client.Servers(t.Context())
		if errors.As(err, &waiting) {
			time.Sleep(time.Until(waiting.Until))
			_, err = a.client.Servers(t.Context())
		}
		noError(t, err)
	})
}

// Without credentials nothing is sent, and the error contains the remedy.
func TestNoCredentials(t *testing.T) {
	a := newAccount(t, robotsim.Options{})
	a.given.Store(":")
	if _, err := a.client.Servers(t.Context()); err == nil || !strings.Contains(err.Error(), "user: is empty") {
		t.Errorf("got %v", err)
	}
	a.given.Store(user + ":" + password)
	if _, err := a.client.Servers(t.Context()); err != nil || len(a.sim.Requests()) != 1 {
		t.Errorf("got %v after %d requests", err, len(a.sim.Requests()))
	}
}

func TestCredentialsNeverPrint(t *testing.T) {
	c, err := robot.NewCredentials(user, password)
	noError(t, err)
	inside := struct {
		Public  robot.Credentials
		private robot.Credentials
		pointer *robot.Credentials
	}{c, c, &c}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&out, verb+verb+verb, c, &c, inside)
	}
	text, err := json.Marshal(inside)
	noError(t, err)
	out.Write(text)
	logger := slog.New(slog.NewTextHandler(&out, nil))
	logger.Info("m", "value", c, "inside", inside)
	for _, secret := range []string{password, fmt.Sprintf("%x", password)} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("the password shows in %s", out.String())
		}
	}
}

func TestNewCredentials(t *testing.T) {
	for _, c := range []struct{ user, password, want string }{
		{user + "\n", " " + password + "\r\n", ""},
		{"", password, "user: is empty"},
		{user, "\n", "password: is empty"},
		{user + ":x", password, "user: holds"},
		{user, password + "\n" + password, "password: holds"},
	} {
		_, err := robot.NewCredentials(c.user, c.password)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q, %q: %v", c.user, c.password, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), password)):
			t.Errorf("%q: got %v, want %q and no password", c.user, err, c.want)
		}
	}
}
