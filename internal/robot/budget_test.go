package robot_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics/testutil"

	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/robot"
)

// repeat calls do repeatedly, until stop.
func repeat(
	t *testing.T, working *sync.WaitGroup, ctx context.Context, pause time.Duration,
	do func(context.Context) error,
) {
	t.Helper()
	working.Go(func() {
		for ctx.Err() == nil {
			if err := do(ctx); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	})
}

// The demand far exceeds the account's quota. With either way of counting, no request is ever
// rejected, and urgent requests don't wait for others.
func TestQuotasAreNeverOverspent(t *testing.T) {
	for name, o := range map[string]robotsim.Options{
		"each for an hour": {RefusedCount: true}, "by the hour": {FixedHours: true, RefusedCount: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o.Latency = 300 * time.Millisecond
				a := newAccount(t, o)
				ctx, stop := context.WithCancel(t.Context())
				var working sync.WaitGroup
				list := func(ctx context.Context) error { _, err := a.client.Servers(ctx); return err }
				for range 10 {
					repeat(t, &working, requests.WithPriority(ctx, requests.Background), time.Second, list)
					repeat(t, &working, ctx, time.Second, list)
				}
				var slowest time.Duration
				repeat(t, &working, requests.WithPriority(ctx, requests.Urgent), 4*time.Minute,
					func(ctx context.Context) error {
						began := time.Now()
						err := list(ctx)
						slowest = max(slowest, time.Since(began))
						return err
					})
				time.Sleep(5 * time.Hour)
				stop()
				working.Wait()
				t.Logf("%d lists in five hours, the slowest urgent one took %s", a.countRequests(200), slowest)
				if n := a.countRequests(http.StatusForbidden); n > 0 {
					t.Errorf("%d requests were refused for the quota", n)
				}
				if n := a.countRequests(200); n < 800 {
					t.Errorf("only %d of 1000 requests in five hours: the quota is not used", n)
				}
				if slowest > 2*time.Second {
					t.Errorf("an urgent request took %s", slowest)
				}
			})
		})
	}
}

// If another program spends the quota, requests are rejected now and then, but not often; the rest
// of the quota is used.
func TestAnotherProgramSpends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{Quotas: map[string]int{"GET /server": 20}, MaxRequests: true})
		ctx, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		refused := 0
		repeat(t, &working, ctx, time.Second, func(ctx context.Context) error {
			_, err := a.client.Servers(ctx)
			if robot.IsCode(err, robot.CodeRateLimit) {
				refused++
				return nil
			}
			return err
		})
		time.Sleep(10*time.Hour + time.Second)
		stop()
		working.Wait()
		if n := a.countRequests(http.StatusForbidden); n != refused || n == 0 || n > 6 {
			t.Errorf("%d requests were refused, want a few: the answer tells the quota", n)
		}
		if n := a.countRequests(200); n < 150 {
			t.Errorf("%d requests in ten hours of 20 each", n)
		}
	})
}

// While the service doesn't respond, few requests are sent, and all calls fail at once with the
// reason; the metric reports it, and work continues soon after the outage.
func TestAnOutage(t *testing.T) {
	for name, begin := range map[string]func(*robotsim.Simulator) error{
		"maintenance": func(s *robotsim.Simulator) error { s.SetMaintenance(true); return nil },
		"network": func(s *robotsim.Simulator) error {
			return s.Inject(robotsim.Fault{DropBeforeApply: true, Times: -1})
		},
		"proxy": func(s *robotsim.Simulator) error { return s.Inject(robotsim.Fault{Status: 502, Times: -1}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAccount(t, robotsim.Options{})
				_, err := a.client.Servers(t.Context())
				noError(t, err)
				noError(t, begin(a.sim))
				a.sim.ResetRequests()
				ctx, stop := context.WithCancel(t.Context())
				var working sync.WaitGroup
				var over atomic.Bool
				for range 5 {
					repeat(t, &working, ctx, time.Second, func(ctx context.Context) error {
						began := time.Now()
						_, err := a.client.Members(ctx, 4321)
						var gone *robot.Unavailable
						if !over.Load() &&
							(!errors.As(err, &gone) || gone.Since.IsZero() || time.Since(began) > time.Second) {
							t.Errorf("after %s: %v", time.Since(began), err)
						}
						return nil
					})
				}
				time.Sleep(time.Hour)
				t.Logf("%d requests in an hour", len(a.sim.Requests()))
				// One for each of the five concurrent callers, then with a pause each: 2 to 256 s,
				// and 300 s ten times.
				if n := len(a.sim.Requests()); n > 5+8+11 {
					t.Errorf("%d requests in an hour", n)
				}
				a.outage(t, true)
				over.Store(true)
				a.sim.SetMaintenance(false)
				a.sim.ClearFaults()
				time.Sleep(7 * time.Minute)
				stop()
				working.Wait()
				if _, err := a.client.Members(t.Context(), 4321); err != nil {
					t.Error(err)
				}
				a.outage(t, false)
			})
		})
	}
}

// One lost packet is an error of its request, and no outage to report; nor is a caller that gives
// up.
func TestABlipIsNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{Latency: time.Second})
		noError(t, a.sim.Inject(robotsim.Fault{DropBeforeApply: true}))
		if _, err := a.client.Servers(t.Context()); err == nil {
			t.Error("a dropped connection is no error")
		}
		time.Sleep(3 * time.Second)
		if _, err := a.client.Servers(t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := a.client.Servers(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if _, err := a.client.Servers(t.Context()); err != nil {
			t.Error(err)
		}
		a.outage(t, false)
	})
}

// The remaining quota is correct at each scrape, though no request is sent.
func TestRemainingGrowsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		remaining := func() (found map[string]float64) {
			families, err := a.registry.Gather()
			noError(t, err)
			for _, f := range families {
				if f.GetName() != "underlay_robot_requests_remaining" {
					continue
				}
				found = map[string]float64{}
				for _, m := range f.GetMetric() {
					found[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
				}
			}
			return found
		}
		want := func(servers, failovers float64) {
			t.Helper()
			if got := remaining(); len(got) != 6 || got["GET /server"] != servers || got["GET /failover"] != failovers {
				t.Errorf("remaining are %v, want %v servers and %v failovers", got, servers, failovers)
			}
		}
		want(200, 100)
		for range 3 {
			_, err := a.client.Servers(t.Context())
			noError(t, err)
			time.Sleep(20 * time.Minute)
		}
		want(198, 100) // the first is an hour old
		time.Sleep(40 * time.Minute)
		want(200, 100)
	})
}

const wantMetrics = `
# HELP underlay_robot_requests_credentials_refused [ALPHA] 1 while the Robot web service refuses the user and the password, which are not tried again before they change or an hour has passed.
# TYPE underlay_robot_requests_credentials_refused gauge
underlay_robot_requests_credentials_refused 1
# HELP underlay_robot_requests_total [ALPHA] Number of requests sent to the Robot web service by operation (such as ` + "`GET /server`" + `), priority (urgent, normal, background) and code (the HTTP status, or ` + "`unanswered`" + `).
# TYPE underlay_robot_requests_total counter
underlay_robot_requests_total{code="200",operation="GET /server",priority="background"} 1
underlay_robot_requests_total{code="401",operation="GET /vswitch/{id}",priority="normal"} 1
underlay_robot_requests_total{code="404",operation="GET /server/{server}",priority="normal"} 1
# HELP underlay_robot_requests_unavailable [ALPHA] 1 while the Robot web service doesn't respond.
# TYPE underlay_robot_requests_unavailable gauge
underlay_robot_requests_unavailable 0
`

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAccount(t, robotsim.Options{})
		_, err := a.client.Servers(requests.WithPriority(t.Context(), requests.Background))
		noError(t, err)
		_, _ = a.client.Server(t.Context(), 5)
		a.given.Store(user + ":wrong")
		_, _ = a.client.Members(t.Context(), 4321)
		if err := testutil.GatherAndCompare(a.registry, strings.NewReader(wantMetrics), "underlay_robot_requests_total",
			"underlay_robot_requests_credentials_refused", "underlay_robot_requests_unavailable"); err != nil {
			t.Error(err)
		}
		for _, r := range a.sim.Requests() {
			if r.UserAgent != "underlay-ccm/test" {
				t.Errorf("User-Agent %q", r.UserAgent)
			}
		}
	})
}
