package routes_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/routes"
)

func pfx(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func ip(s string) netip.Addr    { return netip.MustParseAddr(s) }

func route(dst, via string) routes.Route { return routes.Route{Dst: pfx(dst), Via: ip(via)} }

func day(n int) time.Time { return time.Unix(int64(n)*86400, 0).UTC() }

// pods returns the range of the tests' clusters.
func pods() []routes.Range {
	return []routes.Range{{Prefix: pfx("10.244.0.0/16"), NodeBits: 24}}
}

func node(name, dst, via string, age int) routes.Node {
	n := routes.Node{Name: name, Allocated: true, Created: day(age), Ready: true}
	if dst != "" {
		n.Dsts = []netip.Prefix{pfx(dst)}
	}
	if via != "" {
		n.Via = ip(via)
	}
	return n
}

func names(needed []routes.NodeRoute) string {
	var s []string
	for _, c := range needed {
		s = append(s, c.Node)
	}
	return strings.Join(s, " ")
}

func TestDesiredOrdersByUrgency(t *testing.T) {
	old := node("old", "10.244.1.0/24", "10.0.0.2", 1)
	young := node("young", "10.244.2.0/24", "10.0.0.3", 5)
	notReady := node("not-ready", "10.244.3.0/24", "10.0.0.4", 0)
	notReady.Ready = false
	cp := node("control-plane", "10.244.4.0/24", "10.0.0.5", 9)
	cp.ControlPlane = true

	got := routes.Desired([]routes.Node{notReady, young, cp, old}, pods())
	if want := "control-plane old young not-ready"; names(got.Routes) != want {
		t.Errorf("routes in the order %q, want %q", names(got.Routes), want)
	}
}

func TestDesiredHoldsRoutesWithoutAGateway(t *testing.T) {
	got := routes.Desired([]routes.Node{node("a", "10.244.1.0/24", "", 1)}, pods())
	if len(got.Routes) != 0 || !slices.Equal(got.Held, []netip.Prefix{pfx("10.244.1.0/24")}) {
		t.Errorf("want only a held destination, got %+v", got)
	}
}

func TestDesiredGivesOverlapsToTheOlder(t *testing.T) {
	for _, c := range []struct {
		name       string
		old, young string
		keeps      string
	}{
		{"the same prefix", "10.244.1.0/24", "10.244.1.0/24", "old"},
		{"the younger contains the older", "10.244.1.0/24", "10.244.0.0/16", "old"},
		// No range cuts the older's, so it is never routed: removing the younger one's route would
		// help no node.
		{"the older contains the younger", "10.244.0.0/16", "10.244.1.0/24", "young"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := routes.Desired([]routes.Node{
				node("young", c.young, "10.0.0.3", 2), node("old", c.old, "10.0.0.2", 1),
			}, pods())
			if names(got.Routes) != c.keeps {
				t.Errorf("routes of %q, want only that of %q", names(got.Routes), c.keeps)
			}
			want := []routes.Duplicate{{Node: "young", Older: "old", Dst: pfx(c.young), OlderDst: pfx(c.old)}}
			if c.keeps == "young" {
				want = []routes.Duplicate{{Node: "old", Older: "young", Dst: pfx(c.old), OlderDst: pfx(c.young)}}
			}
			if diff := cmp.Diff(want, got.Duplicates, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []routes.Node
		have  []routes.Route
		want  []string
	}{
		{
			"nothing to do",
			[]routes.Node{node("a", "10.244.1.0/24", "10.0.0.2", 1)},
			[]routes.Route{route("10.244.1.0/24", "10.0.0.2")},
			nil,
		},
		{
			"a new node",
			[]routes.Node{node("a", "10.244.1.0/24", "10.0.0.2", 1)},
			nil,
			[]string{"add 10.244.1.0/24 via 10.0.0.2"},
		},
		{
			"a gateway that moved",
			[]routes.Node{node("a", "10.244.1.0/24", "10.0.0.2", 1)},
			[]routes.Route{route("10.244.1.0/24", "10.0.0.3")},
			[]string{"replace 10.244.1.0/24 via 10.0.0.3 by 10.244.1.0/24 via 10.0.0.2"},
		},
		{
			"a node that is gone, and one that comes: delete first",
			[]routes.Node{node("b", "10.244.2.0/24", "10.0.0.3", 1)},
			[]routes.Route{route("10.244.1.0/24", "10.0.0.2")},
			[]string{"delete 10.244.1.0/24 via 10.0.0.2", "add 10.244.2.0/24 via 10.0.0.3"},
		},
		{
			"a node that is not attached now keeps its route",
			[]routes.Node{node("a", "10.244.1.0/24", "", 1)},
			[]routes.Route{route("10.244.1.0/24", "10.0.0.2")},
			nil,
		},
		{
			"a route of another cluster's server stays, and is not overwritten",
			[]routes.Node{node("a", "10.244.1.0/24", "10.0.0.2", 1)},
			[]routes.Route{route("10.244.1.0/24", "10.0.0.99")},
			[]string{"refuse a: obstructed by 10.244.1.0/24 via 10.0.0.99"},
		},
		{
			"a foreign route in the way stays",
			[]routes.Node{node("a", "10.244.1.0/24", "10.0.0.2", 1)},
			[]routes.Route{route("10.244.0.0/16", "10.0.0.3")},
			[]string{"refuse a: obstructed by 10.244.0.0/16 via 10.0.0.3"},
		},
		{
			"a default route is in nobody's way",
			[]routes.Node{node("a", "10.244.1.0/24", "10.0.0.2", 1)},
			[]routes.Route{route("0.0.0.0/0", "10.0.0.3")},
			[]string{"add 10.244.1.0/24 via 10.0.0.2"},
		},
		{
			"a podCIDR outside the ranges is not added",
			[]routes.Node{node("a", "10.9.1.0/24", "10.0.0.2", 1)},
			nil,
			[]string{"refuse a: outside"},
		},
		{
			"a podCIDR outside the ranges is respected where it stands",
			[]routes.Node{node("a", "10.9.1.0/24", "10.0.0.2", 1)},
			[]routes.Route{route("10.9.1.0/24", "10.0.0.2")},
			nil,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := routes.Diff(routes.Desired(c.nodes, pods()), ownership(c.have, pods()))
			if diff := cmp.Diff(c.want, show(plan)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func show(p routes.Plan) []string {
	var out []string
	for _, s := range p.Steps {
		switch s.Verb {
		case routes.Delete:
			out = append(out, "delete "+s.Old.String())
		case routes.Replace:
			out = append(out, "replace "+s.Old.String()+" by "+s.New.String())
		case routes.Add:
			out = append(out, "add "+s.New.String())
		}
	}
	for _, r := range p.Refused {
		switch r.Cause {
		case routes.Obstructed:
			out = append(out, "refuse "+r.Node+": obstructed by "+r.By.String())
		case routes.Outside:
			out = append(out, "refuse "+r.Node+": outside")
		case routes.Full:
			out = append(out, "refuse "+r.Node+": full")
		}
	}
	return out
}

func TestBudgetTrims(t *testing.T) {
	nodes := []routes.Node{
		node("a", "10.244.1.0/24", "10.0.0.2", 1),
		node("b", "10.244.2.0/24", "10.0.0.3", 2),
		node("c", "10.244.3.0/24", "10.0.0.4", 3),
	}
	foreign := []routes.Route{route("192.168.1.0/24", "10.0.0.9"), route("192.168.2.0/24", "10.0.0.9")}
	stale := route("10.244.200.0/24", "10.0.0.200")
	for _, c := range []struct {
		name   string
		have   []routes.Route
		budget routes.Budget
		want   []string
	}{
		{"room for all", nil, routes.Budget{Limit: 3}, []string{
			"add 10.244.1.0/24 via 10.0.0.2", "add 10.244.2.0/24 via 10.0.0.3", "add 10.244.3.0/24 via 10.0.0.4",
		}},
		{"others' routes and the reserve count", foreign, routes.Budget{Limit: 4, Reserve: 1}, []string{
			"add 10.244.1.0/24 via 10.0.0.2", "refuse b: full", "refuse c: full",
		}},
		{"a table over its limit takes nothing", foreign, routes.Budget{Limit: 1}, []string{
			"refuse a: full", "refuse b: full", "refuse c: full",
		}},
		{"a deletion makes room", []routes.Route{stale}, routes.Budget{Limit: 1, MaxDeletions: 100}, []string{
			"delete 10.244.200.0/24 via 10.0.0.200", "add 10.244.1.0/24 via 10.0.0.2", "refuse b: full", "refuse c: full",
		}},
		{"a postponed deletion makes none", []routes.Route{stale}, routes.Budget{Limit: 1}, []string{
			"refuse a: full", "refuse b: full", "refuse c: full",
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			owned := ownership(c.have, pods())
			plan := c.budget.Trim(routes.Diff(routes.Desired(nodes, pods()), owned), owned)
			if diff := cmp.Diff(c.want, show(plan)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeletions(t *testing.T) {
	for _, c := range []struct{ percent, deleted, ours, want int }{
		{25, 0, 100, 25},
		{25, 0, 3, 1}, // at least one
		{25, 0, 0, 1},
		{100, 0, 7, 7},
		{25, 20, 80, 5}, // of the 100 at first
		{25, 25, 75, 0},
		{25, 1, 2, 0},
		{0, 0, 100, 0},
	} {
		b := routes.Budget{MaxDeletions: c.percent, Deleted: c.deleted}
		if got := b.Deletions(c.ours); got != c.want {
			t.Errorf("%d%% of %d routes, %d deleted already: %d deletions, want %d", c.percent, c.ours, c.deleted, got, c.want)
		}
	}
}

func TestNodeStatuses(t *testing.T) {
	waiting := node("waiting", "", "10.0.0.8", 1)
	waiting.Allocated = false
	detached := node("detached", "10.244.7.0/24", "", 1)
	detached.Missing = routes.Missing{Detached: true, Reason: "server is not attached to the network"}
	nodes := []routes.Node{
		node("routed", "10.244.1.0/24", "10.0.0.2", 1),
		node("next", "10.244.2.0/24", "10.0.0.3", 2),
		node("full", "10.244.3.0/24", "10.0.0.4", 3),
		node("twin", "10.244.1.0/24", "10.0.0.5", 4),
		node("obstructed", "10.244.5.0/24", "10.0.0.6", 5),
		node("outside", "10.9.9.0/24", "10.0.0.7", 6),
		node("ipv6-only", "", "10.0.0.10", 7),
		waiting, detached,
	}
	have := []routes.Route{route("10.244.1.0/24", "10.0.0.2"), route("10.244.5.0/25", "10.0.0.9")}
	wanted := routes.Desired(nodes, pods())
	owned := ownership(have, pods())
	plan := routes.Budget{Limit: 3}.Trim(routes.Diff(wanted, owned), owned)
	got := routes.NodeStatuses(nodes, have, wanted, plan)

	for name, want := range map[string]string{
		"routed":     "true RouteCreated ",
		"next":       "false NoRouteCreated ",
		"full":       "false RouteTableFull RouteTableFull",
		"twin":       "false NoRouteCreated DuplicatePodCIDR",
		"obstructed": "false NoRouteCreated RouteAmbiguous",
		"outside":    "false NoRouteCreated ForeignPodCIDR",
		"ipv6-only":  "true RouteCreated ",
		"waiting":    "false NoRouteCreated ",
		"detached":   "false NotAttached NotAttached",
	} {
		v := got[name]
		if is := fmt.Sprintf("%v %s %s", v.Reachable, v.Reason, v.Event); is != want {
			t.Errorf("%s: %q, want %q (%s)", name, is, want, v.Message)
		}
		if v.Message == "" {
			t.Errorf("%s: no message", name)
		}
	}
}

// A node with a server that is missing in the list stays reachable as long as its route exists; one
// with a server outside the network doesn't.
func TestOnlyProofWithdrawsReachability(t *testing.T) {
	for _, c := range []struct {
		name     string
		detached bool
		have     []routes.Route
		unproved bool
	}{
		{"not seen, route stands", false, []routes.Route{route("10.244.1.0/24", "10.0.0.2")}, true},
		{"not seen, no route", false, nil, false},
		{"seen outside, route stands", true, []routes.Route{route("10.244.1.0/24", "10.0.0.2")}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := node("a", "10.244.1.0/24", "", 1)
			n.Missing = routes.Missing{Detached: c.detached, Reason: "why"}
			nodes := []routes.Node{n}
			w := routes.Desired(nodes, pods())
			v := routes.NodeStatuses(nodes, c.have, w, routes.Diff(w, ownership(c.have, pods())))["a"]
			if v.Reachable || v.Reason != routes.NotAttached || v.Unproved != c.unproved {
				t.Errorf("got %+v, want NotAttached, unproved %v", v, c.unproved)
			}
		})
	}
}

// TestPlansConverge applies a plan step by step to random tables: the result needs no further
// change, the table never exceeds its limit, and no foreign route is removed.
func TestPlansConverge(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		nodes, have := randomTable(rng)
		budget := routes.Budget{Limit: rng.IntN(12), Reserve: rng.IntN(3), MaxDeletions: 100}
		before := ownership(have, pods())
		wanted := routes.Desired(nodes, pods())

		plan := budget.Trim(routes.Diff(wanted, before), before)
		table := have
		for _, step := range plan.Steps {
			table = step.Apply(table)
			if step.Verb == routes.Add && len(table) > budget.Limit-budget.Reserve {
				t.Fatalf("seed %d: %v makes %d routes of at most %d", seed, step, len(table), budget.Limit-budget.Reserve)
			}
		}
		after := ownership(table, pods())
		if again := budget.Trim(routes.Diff(wanted, after), after); len(again.Steps) > 0 {
			t.Fatalf("seed %d: still to do after the plan: %v\nnodes %+v\nhave %v", seed, show(again), nodes, have)
		}
		if !slices.Equal(before.Foreign, after.Foreign) ||
			!slices.Equal(before.Ambiguous, after.Ambiguous) {
			t.Fatalf("seed %d: routes that aren't ours changed: %+v to %+v", seed, before, after)
		}
		if missing := naiveMissing(nodes, table, budget); missing != "" {
			t.Fatalf("seed %d: %s\nnodes %+v\nhave %v\nplan %v", seed, missing, nodes, have, show(plan))
		}
	}
}

// naiveMissing is the slow reference: a node without a route is only right if the table is full,
// the podCIDR overlaps another route, or an older node has it.
func naiveMissing(nodes []routes.Node, table []routes.Route, b routes.Budget) string {
	if len(table) >= b.Limit-b.Reserve {
		return ""
	}
	for _, n := range nodes {
	next:
		for _, dst := range n.Dsts {
			if !n.Via.IsValid() || slices.Contains(table, routes.Route{Dst: dst, Via: n.Via}) ||
				!pods()[0].Cuts(dst) {
				continue
			}
			for _, r := range table {
				if r.Dst == dst || r.Dst.Bits() > 0 && r.Dst.Overlaps(dst) {
					continue next
				}
			}
			for _, other := range nodes {
				older := other.Created.Before(n.Created) ||
					other.Created.Equal(n.Created) && other.Name < n.Name
				if older && slices.ContainsFunc(other.Dsts, dst.Overlaps) {
					continue next
				}
			}
			return fmt.Sprintf("%s of %s is not routed although there is room", dst, n.Name)
		}
	}
	return ""
}

func randomTable(rng *rand.Rand) ([]routes.Node, []routes.Route) {
	vias := []string{"10.0.0.2", "10.0.0.3", "10.0.0.7", "10.0.0.99"}
	dsts := []string{
		"10.244.1.0/24", "10.244.2.0/24", "10.244.3.0/24", "10.244.4.0/24",
		"10.244.2.0/25", "10.244.0.0/22", "192.168.7.0/24", "0.0.0.0/0",
	}
	var nodes []routes.Node
	for i := range rng.IntN(7) {
		n := node(fmt.Sprint("n", i), dsts[rng.IntN(len(dsts)-1)], "", rng.IntN(4)) // no default route
		if rng.IntN(4) > 0 {
			n.Via = ip(vias[rng.IntN(2)])
		}
		nodes = append(nodes, n)
	}
	var have []routes.Route
	for range rng.IntN(7) {
		r := route(dsts[rng.IntN(len(dsts))], vias[rng.IntN(len(vias))])
		if !slices.ContainsFunc(have, func(h routes.Route) bool {
			return h.Dst.Bits() > 0 && r.Dst.Bits() > 0 && h.Dst.Overlaps(r.Dst) || h.Dst == r.Dst
		}) {
			have = append(have, r)
		}
	}
	return nodes, have
}

// TestAnyOrderSameEnd requires that the order of nodes and routes changes neither the plan nor the
// statuses.
func TestAnyOrderSameEnd(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		nodes, have := randomTable(rng)
		decide := func() (routes.Plan, map[string]routes.NodeStatus) {
			w, c := routes.Desired(nodes, pods()), ownership(have, pods())
			p := routes.Budget{Limit: 5, MaxDeletions: 50}.Trim(routes.Diff(w, c), c)
			return p, routes.NodeStatuses(nodes, have, w, p)
		}
		plan, statuses := decide()
		rng.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		rng.Shuffle(len(have), func(i, j int) { have[i], have[j] = have[j], have[i] })
		plan2, statuses2 := decide()
		if diff := cmp.Diff(show(plan), show(plan2)); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		if diff := cmp.Diff(statuses, statuses2); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
}
