package robot_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// Credentials that were never accepted are sent by one request at a time, however long the response
// takes; later at most two requests are unconfirmed.
func TestUnprovenCredentialsGoAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{Latency: 25 * time.Second})
		began := time.Now()
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if _, err := a.client.Servers(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var got []time.Duration
		for _, f := range a.way.sent("") {
			got = append(got, f.began.Sub(began))
		}
		// The first is confirmed by its response, those after it are unconfirmed for 10 s each.
		if want := "[0s 25s 25s 35s 35s]"; fmt.Sprint(got) != want {
			t.Errorf("sent after %s, want %s", got, want)
		}
	})
}

// A failure within the duration of a block leaves room for one unconfirmed request.
func TestAFailureLeavesRoomForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		a.given.Store(user + ":wrong")
		_, err := a.client.Servers(t.Context())
		wantRefused(t, err)
		a.given.Store(user + ":" + password)
		_, err = a.client.Servers(t.Context())
		noError(t, err)
		for i, want := range []int{1, 2} {
			time.Sleep(time.Duration(i) * 10 * time.Minute)
			a.way.slows(func() time.Duration { return 5 * time.Second })
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					if _, err := a.client.Members(t.Context(), 4321); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(time.Second)
			together := 0
			for _, f := range a.way.sent("") {
				if f.ended.IsZero() {
					together++
				}
			}
			if together != want {
				t.Errorf("%d minutes later %d are in doubt together, want %d", 10*i, together, want)
			}
			all.Wait()
		}
	})
}

// A request without a response may have been a failed login: its credentials, if wrong, are not
// sent a third time within the duration of a block.
func TestLostAnswersCountAsFailures(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, a *account) context.Context{
		"connection lost": func(t *testing.T, a *account) context.Context {
			noError(t, a.sim.Inject(robotsim.Fault{DropAfterApply: true, Times: -1}))
			return t.Context()
		},
		"time-out": func(t *testing.T, a *account) context.Context {
			a.way.slows(func() time.Duration { return time.Hour })
			return t.Context()
		},
		"caller's deadline": func(t *testing.T, a *account) context.Context {
			a.way.slows(func() time.Duration { return time.Hour })
			return nil // new ones for each request
		},
		"gateway's time-out": func(t *testing.T, a *account) context.Context {
			sim := a.way.next
			a.way.next = transport(func(r *http.Request) (*http.Response, error) {
				if _, err := sim.RoundTrip(r); err != nil {
					return nil, err
				}
				return &http.Response{StatusCode: http.StatusGatewayTimeout, Request: r, Body: content("<html></html>")}, nil
			})
			return t.Context()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, robotsim.Options{})
				a.given.Store(user + ":wrong")
				ctx := lose(t, a)
				for range 3600 / 20 {
					asking, cancel := ctx, context.CancelFunc(func() {})
					if ctx == nil {
						asking, cancel = context.WithTimeout(t.Context(), time.Second)
					}
					if _, err := a.client.Servers(asking); err == nil {
						t.Fatal("answered")
					}
					cancel()
					if len(a.sim.Blocked()) > 0 {
						t.Fatalf("blocked after %d requests", len(a.way.sent("")))
					}
					time.Sleep(20 * time.Second)
				}
				// They were not rejected, so they are tried again.
				if n := len(a.way.sent("")); n < 8 || n > 14 {
					t.Errorf("%d requests in an hour, want two in ten minutes each", n)
				}
				_, err := a.client.Servers(t.Context())
				var waiting *robot.CredentialsError
				if errors.As(err, &waiting) &&
					(!waiting.Any || time.Until(waiting.Until) > 10*time.Minute+10*time.Second) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

// A request that certainly never reached the service is no failed login, and is retried with the
// next call.
func TestUnreachedIsNoFailure(t *testing.T) {
	fails := func(err error) transport {
		return func(*http.Request) (*http.Response, error) { return nil, err }
	}
	for name, next := range map[string]transport{
		"dial":        fails(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}),
		"DNS":         fails(fmt.Errorf("looking up: %w", &net.DNSError{Err: "no such host", Name: "robot.test"})),
		"certificate": fails(&tls.CertificateVerificationError{Err: errors.New("expired")}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, robotsim.Options{})
				sim := a.way.next
				a.way.next = next
				for range 5 {
					_, err := a.client.Servers(t.Context())
					var gone *robot.Unavailable
					if !errors.As(err, &gone) {
						t.Fatalf("got %v", err)
					}
					time.Sleep(time.Until(gone.Until))
				}
				if n := len(a.way.sent("")); n != 5 {
					t.Errorf("%d requests", n)
				}
				a.way.next = sim
				_, err := a.client.Servers(t.Context())
				noError(t, err)
			})
		})
	}
}

// A block that another program caused doesn't disable valid credentials permanently.
func TestRefusedCorrectlyIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		_, err := a.client.Servers(t.Context())
		noError(t, err)
		for range 3 {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://robot.test/server", nil)
			noError(t, err)
			r.SetBasicAuth("another", "program")
			_, err = a.sim.Transport().RoundTrip(r)
			noError(t, err)
		}
		began := time.Now()
		_, err = a.client.Servers(t.Context())
		wantRefused(t, err)
		var waiting *robot.CredentialsError
		if !errors.As(err, &waiting) || waiting.Any || waiting.Until.Sub(began) != time.Hour {
			t.Fatalf("got %v, want that it is tried again in an hour", err)
		}
		if want := waiting.Until.UTC().Format(time.RFC3339); !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %s", err, want)
		}
		time.Sleep(time.Hour - time.Second)
		_, err = a.client.Servers(t.Context())
		wantRefused(t, err)
		time.Sleep(time.Second)
		a.way.slows(func() time.Duration { return time.Second })
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if _, err := a.client.Servers(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := a.way.most(""); n != 1 {
			t.Errorf("%d carried what was refused together", n)
		}
		if n := a.countRequests(401); n != 3+1 {
			t.Errorf("%d failures, want one of ours", n)
		}
	})
}

// Rejected credentials remain rejected while others are tried in between.
func TestRefusedCredentialsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		for i := range 100 {
			a.given.Store(fmt.Sprintf("%s:wrong-%d", user, i%3))
			_, err := a.client.Servers(t.Context())
			wantRefused(t, err)
			time.Sleep(30 * time.Second)
		}
		if n := len(a.way.sent("")); n != 3 {
			t.Errorf("%d requests with three passwords in 50 minutes", n)
		}
	})
}

// Credentials that change while others are unconfirmed wait until those are confirmed, are then
// sent alone, and the files are not read repeatedly in the meantime.
func TestChangedCredentialsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{FailoverTime: 50 * time.Second})
		_, err := a.client.Servers(t.Context())
		noError(t, err)
		var all sync.WaitGroup
		all.Go(func() {
			_, err := a.client.RouteFailover(t.Context(), netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr("203.0.113.2"))
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		reads, began := a.reads.Load(), time.Now()
		a.given.Store(user + ":new")
		a.sim.SetCredentials(user, "new")
		a.way.slows(func() time.Duration { return 5 * time.Second })
		for range 4 {
			all.Go(func() {
				if _, err := a.client.Servers(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		var got []time.Duration
		for _, f := range a.way.sent("")[2:] {
			got = append(got, f.began.Sub(began))
			if f.password != "new" {
				t.Errorf("sent with the old password")
			}
		}
		if want := "[10s 15s 15s 20s]"; fmt.Sprint(got) != want {
			t.Errorf("sent after %s, want %s", got, want)
		}
		if n := a.reads.Load() - reads; n > 2*4 {
			t.Errorf("4 requests read the credentials %d times", n)
		}
	})
}

// While new credentials are unconfirmed, the previous accepted ones wait, too.
func TestAcceptedCredentialsWaitForNewOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		_, err := a.client.Servers(t.Context())
		noError(t, err)
		a.way.slows(func() time.Duration { return 20 * time.Second })
		a.given.Store(user + ":wrong")
		var all sync.WaitGroup
		all.Go(func() { _, err := a.client.Servers(t.Context()); wantRefused(t, err) })
		synctest.Wait()
		a.given.Store(user + ":" + password)
		if _, err = a.client.Servers(t.Context()); err != nil {
			t.Error(err)
		}
		all.Wait()
		if n := a.way.most(""); n != 1 {
			t.Errorf("%d were under way together", n)
		}
	})
}

// Whatever happens to credentials, responses and connections at any time: the service never blocks
// the address, and valid credentials work in the end.
func TestTheAddressIsNeverBlocked(t *testing.T) {
	for seed := range uint64(6) {
		for _, lossy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d lossy %v", seed, lossy), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { neverBlocked(t, seed, lossy) })
			})
		}
	}
}

// neverBlocked runs random events for hours. If responses are lost or callers give up, the valid
// password doesn't change: an accepted one is trusted until a response rejects it.
func neverBlocked(t *testing.T, seed uint64, lossy bool) {
	random := rand.New(rand.NewPCG(seed, 1))
	var guard sync.Mutex
	dice := func(n int) int { guard.Lock(); defer guard.Unlock(); return random.IntN(n) }
	a := newAccount(t, robotsim.Options{FailoverTime: 45 * time.Second, ForbiddenLogin: seed%2 == 0})
	a.way.slows(func() time.Duration { return time.Duration(dice(9000)) * time.Millisecond })
	patience := func() time.Duration { return 24 * time.Hour }
	if lossy {
		patience = func() time.Duration { return time.Duration(1+dice(60)) * time.Second }
		a.way.slows(func() time.Duration { return []time.Duration{0, time.Second, time.Minute}[dice(3)] })
	}
	ctx, stop := context.WithCancel(t.Context())
	var working sync.WaitGroup
	for i := range 8 {
		working.Go(func() {
			for ctx.Err() == nil {
				asking, cancel := context.WithTimeout(ctx, patience())
				if i == 0 {
					_, _ = a.client.RouteFailover(asking, netip.MustParseAddr("203.0.113.100"), netip.MustParseAddr(fmt.Sprintf("203.0.113.%d", 1+dice(2))))
				} else {
					_, _ = a.client.Members(asking, 4321)
				}
				cancel()
				time.Sleep(time.Duration(dice(20)) * time.Second)
			}
		})
	}
	right := password
	for step := range 150 {
		time.Sleep(time.Duration(dice(120)) * time.Second)
		switch dice(4) {
		case 0:
			a.given.Store(fmt.Sprintf("%s:wrong-%d", user, step))
		case 1:
			a.given.Store(user + ":" + right)
		case 2:
			if lossy {
				noError(t, a.sim.Inject(robotsim.Fault{DropAfterApply: true, Times: dice(5)}))
				continue
			}
			right = fmt.Sprintf("right-%d", step)
			a.sim.SetCredentials(user, right)
		}
		if len(a.sim.Blocked()) > 0 {
			t.Fatalf("blocked after %d requests", len(a.way.sent("")))
		}
	}
	stop()
	working.Wait()
	a.sim.ClearFaults()
	a.way.slows(nil)
	a.given.Store(user + ":" + right)
	time.Sleep(time.Hour + 10*time.Second)
	_, err := a.client.Servers(t.Context())
	noError(t, err)
}

// A response's status is enough to detect a failed login.
func TestARefusalWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		a.way.next = transport(func(r *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusUnauthorized, Request: r, Body: endless{r.Context()},
			}, nil
		})
		began := time.Now()
		for range 3 {
			_, err := a.client.Servers(t.Context())
			wantRefused(t, err)
		}
		if n, took := len(a.way.sent("")), time.Since(began); n != 1 || took > 0 {
			t.Errorf("%d requests in %s", n, took)
		}
	})
}

// endless is a body that never ends.
type endless struct{ context.Context }

func (e endless) Read([]byte) (int, error) { <-e.Done(); return 0, e.Err() }
func (e endless) Close() error             { return nil }

// A 403 is a failed login unless its code is about a quota.
func TestForbidden(t *testing.T) {
	for body, refused := range map[string]bool{
		`<html></html>`: true,
		``:              true,
		`{"error": {"status": 403, "code": "UNAUTHORIZED", "message": "x"}}`:                                                     true,
		`{"error": {"status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": "x", "max_request": 200, "interval": 3600}}`:        false,
		`{"error": {"status": 403, "code": "RATE_LIMIT_EXCEEDED", "message": "x", "max_request": "200", "interval": "an hour"}}`: false,
	} {
		_, err := answering(t, http.StatusForbidden, "", body).Servers(t.Context())
		if got := errors.As(err, new(*robot.CredentialsError)); got != refused ||
			got == robot.IsCode(err, robot.CodeRateLimit) {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

// Without a custom transport no connection is used twice, so that net/http never repeats a request
// by itself.
func TestNothingIsRepeated(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		asked++
		first := asked == 1
		mu.Unlock()
		if !first {
			panic(http.ErrAbortHandler) // closes the connection
		}
		_, _ = io.WriteString(w, "[]")
	}))
	defer service.Close()
	c, err := robot.New(robot.Options{
		Endpoint: service.URL, Registry: metrics.NewKubeRegistry(),
		Credentials: func() (robot.Credentials, error) { return robot.NewCredentials(user, password) },
	})
	noError(t, err)
	_, err = c.Servers(t.Context())
	noError(t, err)
	if _, err = c.Servers(t.Context()); err == nil {
		t.Error("answered over a closed connection")
	}
	mu.Lock()
	defer mu.Unlock()
	if asked != 2 {
		t.Errorf("two requests were sent as %d", asked)
	}
}
