package routes_test

import (
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// someWrites injects a fault into a share of the writes of routes.
func someWrites(l *simcluster.Cluster, share float64, fault hcloudsim.Fault) {
	rng := rand.New(rand.NewPCG(1, 2))
	fault.Match = "POST /networks/{rest...}"
	l.Meddle = func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			// Writes are sent one at a time, so that the fault affects this one.
			if r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/networks/") && rng.Float64() < share {
				if err := l.Sim.Inject(fault); err != nil {
					return nil, err
				}
			}
			return next.RoundTrip(r)
		})
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// forAMinute makes every request fail for a minute, in the middle of the joining.
func forAMinute(t *testing.T, l *simcluster.Cluster, fault hcloudsim.Fault) {
	t.Helper()
	fault.Times = -1
	if err := l.Sim.Inject(fault); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Minute, l.Sim.ClearFaults)
}

// Whatever faults requests encounter while 30 Nodes join: in the end all are reachable, no route
// ever had a wrong gateway, and none was deleted.
func TestFaultsWhileNodesJoin(t *testing.T) {
	const count = 30
	for _, c := range []struct {
		name   string
		before func(*simcluster.Cluster)
		during func(*testing.T, *simcluster.Cluster)
	}{
		{"a third of the writes locked", func(l *simcluster.Cluster) { someWrites(l, 1.0/3, hcloudsim.Fault{Code: "locked"}) }, nil},
		{"a third of the writes in conflict", func(l *simcluster.Cluster) { someWrites(l, 1.0/3, hcloudsim.Fault{Code: "conflict"}) }, nil},
		{"a third of the replies lost after applying", func(l *simcluster.Cluster) { someWrites(l, 1.0/3, hcloudsim.Fault{DropAfterApply: true}) }, nil},
		{"a third of the answers 503 after applying", func(l *simcluster.Cluster) { someWrites(l, 1.0/3, hcloudsim.Fault{Status: 503, Applied: true}) }, nil},
		{"a third of the actions fail", func(l *simcluster.Cluster) { someWrites(l, 1.0/3, hcloudsim.Fault{FailAction: "action_failed"}) }, nil},
		{"a third of the actions get lost", func(l *simcluster.Cluster) { someWrites(l, 1.0/3, hcloudsim.Fault{LoseAction: true}) }, nil},
		{"429 for a minute", nil, func(t *testing.T, l *simcluster.Cluster) {
			forAMinute(t, l, hcloudsim.Fault{Code: "rate_limit_exceeded"})
		}},
		{"503 for a minute", nil, func(t *testing.T, l *simcluster.Cluster) { forAMinute(t, l, hcloudsim.Fault{Status: 503}) }},
		{"no answers for a minute", nil, func(t *testing.T, l *simcluster.Cluster) { forAMinute(t, l, hcloudsim.Fault{DropBeforeApply: true}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := setUp(t, simcluster.Pace(), count)
				if c.before != nil {
					c.before(l)
				}
				m := start(t, l, simcluster.Options{Node: true, Lifecycle: true})
				defer m.Stop()
				rest(3 * time.Second)
				if c.during != nil {
					c.during(t, l)
				}
				began := time.Now()
				for time.Since(began) < 15*time.Minute && countConditions(t, l)[reachable] < count {
					rest(time.Second)
				}
				t.Logf("all reachable after %s; %+v", time.Since(began), l.Spent())
				expectAll(t, l, reachable, count)
				rest(2 * time.Minute)
				if harm := l.Harm(); len(harm) > 0 {
					t.Errorf("harm was done: %q", harm)
				}
				if n := l.Vanished(); n > 0 || len(l.Routes()) != count {
					t.Errorf("%d routes were deleted, %d stand; want none and %d", n, len(l.Routes()), count)
				}
			})
		})
	}
}
