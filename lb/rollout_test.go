package lb_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

// roller changes targets in consecutive passes, against a cloud in which servers have a fixed
// health at each address, once they were targets for one pass.
type roller struct {
	t      *testing.T
	have   lb.State
	health map[lb.Target]lb.Verdict
	old    map[lb.Target]int // the number of passes for which they have been targets
	fewest int               // of healthy targets, after any op
	notes  []lb.Note
}

func newRoller(t *testing.T, have lb.State, health map[lb.Target]lb.Verdict) *roller {
	have.ID, have.Type, have.Network, have.Public = 1, "lb11", 7, true
	have.Listeners = []lb.Listener{{Port: 80, DestinationPort: 30080}}
	r := &roller{t: t, have: have, health: health, old: map[lb.Target]int{}, fewest: len(have.Targets)}
	for _, target := range have.Targets {
		r.old[target] = 1
	}
	r.judge()
	return r
}

// verdict returns the checks' verdict: unknown for a new target.
func (r *roller) verdict(t lb.Target) lb.Verdict {
	if r.old[t] == 0 {
		return lb.Unknown
	}
	return r.health[t]
}

func (r *roller) judge() {
	verdicts, healthy := map[lb.Target]lb.Verdict{}, 0
	for _, t := range r.have.Targets {
		verdicts[t] = r.verdict(t)
		if verdicts[t] == lb.Healthy {
			healthy++
		}
	}
	r.have.Verdicts, r.fewest = map[int]map[lb.Target]lb.Verdict{80: verdicts}, min(r.fewest, healthy)
}

// run makes passes until no op is left. A target is overdue after three passes.
func (r *roller) run(want lb.Spec, expected func(lb.Target) bool) (looks int, last []lb.Op) {
	r.t.Helper()
	for looks = 1; looks < 200; looks++ {
		overdue := map[lb.Target]bool{}
		for _, t := range r.have.Waiting() {
			overdue[t] = r.old[t] > 3
		}
		now, waits, notes := lb.Rollout{
			Expected: expected, Possible: expected, Overdue: overdue,
		}.Next(want, r.have)
		r.notes = notes
		last = lb.Diff(now, r.have)
		for _, op := range last {
			r.do(op)
			r.judge()
		}
		if len(last) == 0 && !waits {
			return looks, nil
		}
		for _, t := range r.have.Targets {
			r.old[t]++
		}
		r.judge()
	}
	r.t.Fatalf("not done: %v", r.have.Targets)
	return looks, last
}

func (r *roller) do(op lb.Op) {
	r.t.Helper()
	ops := []lb.Op{op}
	if swap, ok := lb.SwapOf(op); ok {
		ops = []lb.Op{swap.Take, swap.Give}
	}
	for _, op := range ops {
		if remove, ok := op.(lb.RemoveTarget); ok {
			delete(r.old, remove.Target)
		}
		have, err := apply(r.have, []lb.Op{op})
		if err != nil {
			r.t.Fatal(err)
		}
		r.have = have
	}
}

// among returns a function that reports whether a target belongs to these nodes.
func among(servers ...int64) func(lb.Target) bool {
	return func(t lb.Target) bool {
		return slices.ContainsFunc(nodesOfBothKinds(servers...), func(n lb.Node) bool {
			return slices.Contains(n.Targets(), t)
		})
	}
}

func everyServer(lb.Target) bool { return true }

// nodesOfBothKinds returns these nodes, every second one on a dedicated server.
func nodesOfBothKinds(servers ...int64) (nodes []lb.Node) {
	for _, id := range servers {
		n := nodesOf([]int64{id})[0]
		if id%2 == 0 {
			n.Server, n.Private, n.Public = 0, netip.AddrFrom4([4]byte{
				10, 1, 0, byte(id),
			}), netip.AddrFrom4([4]byte{203, 0, 113, byte(id)})
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func targetsOf(private bool, servers ...int64) []lb.Target {
	return lb.Spec{
		Targeting: lb.Targeting{UsePrivateIP: private},
	}.WithTargets(nodesOfBothKinds(servers...)).Targets
}

func healthOf(v lb.Verdict, targets ...lb.Target) map[lb.Target]lb.Verdict {
	health := map[lb.Target]lb.Verdict{}
	for _, t := range targets {
		health[t] = v
	}
	return health
}

// All nodes of a pool are replaced at once: there is always a healthy target, if one is possible.
func TestAllTargetsAreReplacedByOthers(t *testing.T) {
	from := func(first, n int64) (servers []int64) {
		for i := range n {
			servers = append(servers, first+i)
		}
		return servers
	}
	for _, c := range []struct {
		name    string
		old, by []int64
		health  lb.Verdict // of the new targets
		others  int        // targets that others added
		fewest  int
	}{
		{"with room", from(1, 5), from(101, 5), lb.Healthy, 0, 5},
		{"one by one", from(1, 1), from(101, 1), lb.Healthy, 0, 1},
		{"without room", from(1, 25), from(101, 25), lb.Healthy, 0, 1},
		{"with little room", from(1, 5), from(101, 5), lb.Healthy, 18, 2},
		{"the new ones are unhealthy", from(1, 5), from(101, 5), lb.Unhealthy, 0, 0},
		{"the new ones are never judged", from(1, 5), from(101, 5), lb.Unknown, 0, 0},
		{"nobody comes", from(1, 5), nil, lb.Unknown, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			health := healthOf(lb.Healthy, targetsOf(false, c.old...)...)
			for _, target := range targetsOf(false, c.by...) {
				health[target] = c.health
			}
			r := newRoller(t, lb.State{Targets: targetsOf(false, c.old...), OtherTargets: c.others}, health)
			looks, _ := r.run(lb.Spec{Type: "lb11", Network: 7, Public: true, Listeners: r.have.Listeners}.WithTargets(nodesOfBothKinds(c.by...)), everyServer)
			if fmt.Sprint(r.have.Targets) != fmt.Sprint(targetsOf(false, c.by...)) || looks > 10 {
				t.Errorf("after %d looks: %v", looks, r.have.Targets)
			}
			if r.fewest < c.fewest {
				t.Errorf("there were only %d healthy targets, want %d", r.fewest, c.fewest)
			}
		})
	}
}

// A target that is unhealthy, or that healthy targets replace, is removed at once; so are all
// targets if the new ones can't become healthy.
func TestTargetsThatAreNotNeededGoAtOnce(t *testing.T) {
	all := targetsOf(false, 1, 2, 3)
	for _, c := range []struct {
		name     string
		health   map[lb.Target]lb.Verdict
		want     []int64
		expected func(lb.Target) bool
	}{
		{"others are healthy", healthOf(lb.Healthy, all...), []int64{1, 2}, everyServer},
		{"it is unhealthy", healthOf(lb.Healthy, all[:2]...), []int64{1, 2, 4}, everyServer},
		{"nobody can be healthy", healthOf(lb.Healthy, all...), []int64{4}, func(lb.Target) bool { return false }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoller(t, lb.State{Targets: all}, c.health)
			want := lb.Spec{Type: "lb11", Network: 7, Public: true}.WithTargets(nodesOfBothKinds(c.want...))
			now, waits, _ := lb.Rollout{Expected: c.expected, Possible: c.expected}.Next(want, r.have)
			if fmt.Sprint(now.Targets) != fmt.Sprint(want.Targets) || waits {
				t.Errorf("%v, waits %t", now.Targets, waits)
			}
		})
	}
}

// Targets change their addresses one at a time while all changed ones are healthy, and stop at one
// that is not; unhealthy targets change last, together.
func TestTargetsChangeTheirAddresses(t *testing.T) {
	good := func(private bool, servers ...int64) map[lb.Target]lb.Verdict {
		return healthOf(lb.Healthy, targetsOf(private, servers...)...)
	}
	with := func(maps ...map[lb.Target]lb.Verdict) map[lb.Target]lb.Verdict {
		all := map[lb.Target]lb.Verdict{}
		for _, m := range maps {
			for target, v := range m {
				all[target] = v
			}
		}
		return all
	}
	dead := func(private bool, servers ...int64) map[lb.Target]lb.Verdict {
		return healthOf(lb.Unhealthy, targetsOf(private, servers...)...)
	}
	all := []int64{1, 2, 3, 4}
	for _, c := range []struct {
		name     string
		have     []lb.Target
		health   map[lb.Target]lb.Verdict
		expected func(lb.Target) bool
		changed  int // targets with their private addresses in the end
		fewest   int
		stuck    bool
	}{
		{name: "all are healthy there", health: with(good(false, all...), good(true, all...)), changed: 4, fewest: 3},
		{name: "none is healthy there", health: with(good(false, all...), dead(true, all...)), changed: 1, fewest: 3, stuck: true},
		{name: "none is ever judged there", health: good(false, all...), changed: 1, fewest: 3, stuck: true},
		{name: "half of them are dead there", health: with(good(false, all...), good(true, 1, 3), dead(true, 2, 4)), changed: 3, fewest: 3, stuck: true},
		{name: "a single one", have: targetsOf(false, 1), health: with(good(false, 1), good(true, 1)), changed: 1},
		{name: "a single one, which is dead there", have: targetsOf(false, 1), health: with(good(false, 1), dead(true, 1)), changed: 1},
		{name: "one is dead anyway", health: with(good(false, 2, 3, 4), good(true, 2, 3, 4), dead(false, 1), dead(true, 1)), changed: 4, fewest: 2},
		{name: "one is never judged", health: with(good(false, 2, 3, 4), good(true, all...)), changed: 4, fewest: 2},
		{name: "all are dead", health: with(dead(false, all...), good(true, all...)), changed: 4},
		{
			name: "policy Local, the pods are on one of them", health: with(good(false, 3), good(true, 3), dead(false, 1, 2, 4), dead(true, 1, 2, 4)), changed: 4,
			expected: among(3),
		},
		{
			name: "policy Local, the pods are on two of them", health: with(good(false, 2, 3), good(true, 2, 3), dead(false, 1, 4), dead(true, 1, 4)), changed: 4, fewest: 1,
			expected: among(2, 3),
		},
		{name: "switched back: one is dead there", have: append(targetsOf(false, 1), targetsOf(true, 2, 3, 4)...), health: with(dead(false, 1), good(true, all...)), changed: 4, fewest: 3},
		{name: "switched back: one is dead there, and another anyway", have: append(targetsOf(false, 1), targetsOf(true, 2, 3, 4)...), health: with(dead(false, 1), good(true, 1, 3, 4), dead(true, 2)), changed: 4, fewest: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.have == nil {
				c.have = targetsOf(false, all...)
			}
			if c.expected == nil {
				c.expected = everyServer
			}
			r := newRoller(t, lb.State{Targets: c.have}, c.health)
			want := lb.Spec{Type: "lb11", Network: 7, Targeting: lb.Targeting{UsePrivateIP: true}, Listeners: r.have.Listeners}.WithTargets(nodesOfBothKinds(all[:len(c.have)]...))
			looks, _ := r.run(want, c.expected)
			changed := 0
			for _, target := range r.have.Targets {
				if target.Private {
					changed++
				}
			}
			if changed != c.changed || len(r.have.Targets) != len(c.have) || looks > 20 {
				t.Errorf("after %d looks: %v", looks, r.have.Targets)
			}
			if r.fewest < c.fewest {
				t.Errorf("there were only %d healthy targets, want %d", r.fewest, c.fewest)
			}
			if stuck := len(r.notes) == 1 &&
				r.notes[0].Reason == lb.ReasonTargetsNotReplaced; stuck != c.stuck {
				t.Errorf("notes %v", r.notes)
			}
			if public := changed < len(c.have); r.have.Public != public {
				t.Errorf("public interface %t", r.have.Public)
			}
		})
	}
}
