// Package routes_test verifies the route controller's guarantees, with counts, on the simulated
// cloud's clock: the cost and duration of joining, the cost of an idle day, and that no schedule of
// faults deletes a live object. Figures are printed; `make bench-routes` prints them beside
// upstream's route controller.
package routes_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/bench/routes/simcluster"
)

// setUp creates a running cluster with a number of Nodes.
func setUp(t *testing.T, o hcloudsim.Options, nodes int) *simcluster.Cluster {
	t.Helper()
	l, err := simcluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes {
		add(t, l, simcluster.Machine{Name: fmt.Sprintf("node-%03d", i)})
	}
	return l
}

func add(t *testing.T, l *simcluster.Cluster, m simcluster.Machine) *corev1.Node {
	t.Helper()
	node, err := l.Add(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Wait() // client-go's fake drops events without a receiver
	return node
}

func start(t *testing.T, l *simcluster.Cluster, o simcluster.Options) *simcluster.Manager {
	t.Helper()
	m, err := l.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// rest lets time pass until everything has settled.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// countConditions counts Nodes by their condition.
func countConditions(t *testing.T, l *simcluster.Cluster) map[string]int {
	t.Helper()
	nodes, err := l.API.Nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for i := range nodes {
		out[simcluster.Says(&nodes[i])]++
	}
	return out
}

func expectAll(t *testing.T, l *simcluster.Cluster, what string, want int) {
	t.Helper()
	if got := countConditions(t, l); got[what] != want || len(got) != 1 {
		t.Errorf("conditions %v, want %d Nodes to say %q", got, want, what)
	}
}

const reachable = "False RouteCreated"

// From its podCIDR to its condition a Node waits for its own route's action and for little else,
// and no other Node's condition is written.
func TestOneNodeJoinsAClusterOfFifty(t *testing.T) {
	const joins, most = 100, 500 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		o := simcluster.Pace()
		o.RateLimit = 100_000
		l := setUp(t, o, 50)
		m := start(t, l, simcluster.Options{})
		defer m.Stop()
		rest(2 * time.Minute)
		expectAll(t, l, reachable, 50)
		var beyond []time.Duration
		for i := range joins {
			beyond = append(beyond, joinOnce(t, l, fmt.Sprintf("joins-%d", i)))
		}
		recordOneJoin(t, beyond)
		slices.Sort(beyond)
		p99 := beyond[len(beyond)*99/100]
		t.Logf("from podCIDR to reachable, beyond the action's own time: median %s, p99 %s, slowest %s", beyond[len(beyond)/2], p99, beyond[len(beyond)-1])
		if p99 > most {
			t.Errorf("p99 is %s beyond the action's time, want at most %s", p99, most)
		}
	})
}

// joinOnce adds a Node and removes it again, and returns how long it took from its podCIDR on, less
// its action's time.
func joinOnce(t *testing.T, l *simcluster.Cluster, name string) time.Duration {
	t.Helper()
	server, err := l.Rent(simcluster.Machine{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	rest(30 * time.Second) // it boots
	if _, err := l.Register(t.Context(),
		simcluster.Machine{Name: name, PodCIDRs: []string{}, Unnamed: true}, server.ID); err != nil {
		t.Fatal(err)
	}
	rest(time.Second)
	l.API.Told()
	began := time.Now()
	cidrs := []string{"10.244.200.0/24", "fd00:10:244:c8::/64"}
	if err := l.API.Edit(name, func(n *corev1.Node) {
		n.Spec.PodCIDR, n.Spec.PodCIDRs = cidrs[0], cidrs
	}); err != nil {
		t.Fatal(err)
	}
	rest(5 * time.Second)
	took := time.Duration(0)
	for _, told := range l.API.Told() {
		if told.Node != name {
			t.Errorf("%s was told %q because %s joined", told.Node, told.Says, name)
		}
		if told.Says == reachable {
			took = told.At.Sub(began)
		}
	}
	action, count := l.ActionTime(began, "add_route")
	if took == 0 || count != 1 {
		t.Errorf("%s: reachable after %s with %d actions, want one action", name, took, count)
	}
	if err := l.API.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := l.Sim.DeleteServer(server.ID); err != nil {
		t.Fatal(err)
	}
	rest(2 * time.Minute)
	if n := len(l.Routes()); n != 50 {
		t.Errorf("%d routes after %s left, want 50", n, name)
	}
	return took - action
}

// A hundred Nodes join in one moment: few requests, none rejected, one action after the other, and
// each Node's condition is written as soon as its own route exists.
func TestAHundredNodesJoinAtOnce(t *testing.T) {
	const count = 100
	pace := simcluster.Pace()
	for name, c := range map[string]struct {
		action, jitter time.Duration
		requests       float64 // for each Node, at most
		longer         int     // percent of actions and round trips, at most
	}{
		"actions alike":       {300 * time.Millisecond, 0, 2.15, 106},
		"actions vary":        {300 * time.Millisecond, 90 * time.Millisecond, 2.2, 115},
		"actions vary widely": {pace.ActionTime, pace.ActionJitter, 2.7, 125},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pace := pace
				pace.ActionTime, pace.ActionJitter = c.action, c.jitter
				r := joinAtOnce(t, count, pace, simcluster.Options{}, nil)
				if c.jitter == 0 {
					recordActionsAlike(t, r)
				}
				floor := r.actions + count*pace.Latency
				t.Logf("%d requests, %d refused, %s for %s of actions and round trips, first Node after %s, median after %s",
					r.spent.All, r.spent.Refused, r.took, floor, r.first, r.median)
				if most := c.requests * count; float64(r.spent.All) > most {
					t.Errorf("%d requests, want at most %.0f: %+v", r.spent.All, most, r.spent)
				}
				if r.spent.Refused > 0 {
					t.Errorf("%d requests were refused", r.spent.Refused)
				}
				if most := floor * time.Duration(c.longer) / 100; r.took > most {
					t.Errorf("it took %s, want at most %s", r.took, most)
				}
				if r.moments < count*9/10 {
					t.Errorf("the Nodes were told at %d different moments, want about one each", r.moments)
				}
			})
		})
	}
}

// joined is the cost until all Nodes were reachable.
type joined struct {
	spent         simcluster.Spent
	took, actions time.Duration
	first, median time.Duration
	moments       int
	reachable     int
	requests      []time.Duration // the time of each, since the first Node joined
	told          []time.Duration // when each Node's condition became reachable
}

// joinAtOnce joins Nodes with podCIDRs in one moment while a manager with o runs, on a cloud with
// that pace; other, if not nil, creates the writer of routes that replaces Underlay's controller.
func joinAtOnce(
	t *testing.T, count int, pace hcloudsim.Options, o simcluster.Options,
	other func(*testing.T, *simcluster.Cluster) func(context.Context, *simcluster.Manager),
) joined {
	t.Helper()
	pace.AttachmentLimit, pace.RateLimit = hcloudsim.Unlimited, 1_000_000
	l := setUp(t, pace, 0)
	if other != nil {
		o.Routes = other(t, l)
	}
	var servers []int64
	for i := range count {
		server, err := l.Rent(simcluster.Machine{Name: fmt.Sprintf("node-%03d", i)})
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, server.ID)
	}
	rest(time.Minute) // they boot
	m := start(t, l, o)
	defer m.Stop()
	rest(10 * time.Minute)
	l.Sim.ResetRequests()
	l.API.Told()
	began := time.Now()
	for i, server := range servers {
		if _, err := l.Register(t.Context(), simcluster.Machine{Name: fmt.Sprintf("node-%03d", i)}, server); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	var r joined
	for deadline := began.Add(30 * time.Minute); r.reachable < count && time.Now().Before(deadline); {
		rest(50 * time.Millisecond)
		r.reachable = countConditions(t, l)[reachable]
	}
	r.spent = l.Spent()
	for _, request := range l.Sim.Requests() {
		r.requests = append(r.requests, request.Time.Sub(began))
	}
	r.actions, _ = l.ActionTime(began, "add_route", "delete_route")
	var at []time.Duration
	moments := map[time.Time]bool{}
	for _, told := range l.API.Told() {
		if told.Says == reachable {
			at = append(at, told.At.Sub(began))
			moments[told.At] = true
		}
	}
	r.told = at
	if r.moments = len(moments); len(at) > 0 {
		r.first, r.median, r.took = at[0], at[len(at)/2], at[len(at)-1]
	}
	return r
}
