package routes_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/routes"
)

// moved returns a cluster in which a's server has another address than its route, b has no route,
// and a recorded route belongs to no node.
func moved() routes.Observed {
	have := []routes.Route{route("10.244.1.0/24", "10.0.0.3"), route("10.244.9.0/24", "10.0.0.2")}
	o := recorded(have, pods())
	o.Nodes = []routes.Node{node("a", "10.244.1.0/24", "", 1), node("b", "10.244.2.0/24", "", 2)}
	o.Gateways.Of = map[string]netip.Addr{"a": ip("10.0.0.2"), "b": ip("10.0.0.4")}
	o.Budget = routes.Budget{Limit: 100, MaxDeletions: 100}
	return o
}

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*routes.Observed)
		want   []string
	}{
		{"nothing in doubt", func(*routes.Observed) {}, []string{
			"delete 10.244.9.0/24 via 10.0.0.2",
			"replace 10.244.1.0/24 via 10.0.0.3 by 10.244.1.0/24 via 10.0.0.2",
			"add 10.244.2.0/24 via 10.0.0.4",
		}},
		{"in doubt about the servers", func(o *routes.Observed) {
			o.Gateways.Doubt = errors.New("another project's")
		}, []string{"add 10.244.2.0/24 via 10.0.0.4"}},
		{"a destination that is kept", func(o *routes.Observed) {
			o.Kept = []netip.Prefix{pfx("10.244.9.0/24")}
		}, []string{
			"replace 10.244.1.0/24 via 10.0.0.3 by 10.244.1.0/24 via 10.0.0.2",
			"add 10.244.2.0/24 via 10.0.0.4",
		}},
		{"a server that isn't attached", func(o *routes.Observed) {
			delete(o.Gateways.Of, "a")
			o.Gateways.Missing = map[string]routes.Missing{"a": {Detached: true, Reason: "attach it"}}
		}, []string{"delete 10.244.9.0/24 via 10.0.0.2", "add 10.244.2.0/24 via 10.0.0.4"}},
		{"no deletion now, and no room", func(o *routes.Observed) {
			o.Budget = routes.Budget{Limit: 2}
		}, []string{"replace 10.244.1.0/24 via 10.0.0.3 by 10.244.1.0/24 via 10.0.0.2", "refuse b: full"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := moved()
			c.change(&o)
			d := routes.Decide(o)
			if diff := cmp.Diff(c.want, show(d.Plan)); diff != "" {
				t.Error(diff)
			}
			for _, n := range d.Nodes {
				if v := d.NodeStatuses()[n.Name]; !n.Via.IsValid() && v.Message != "attach it" {
					t.Errorf("node %s: %+v", n.Name, v)
				}
			}
		})
	}
}

// Without leaves a destination out of the plan, which frees no room yet, and keeps it in the
// changes.
func TestWithout(t *testing.T) {
	o := moved()
	o.Budget.Limit = 2
	d := routes.Decide(o)
	waiting := d.Without(func(dst netip.Prefix) bool { return dst == pfx("10.244.9.0/24") })
	if got, want := show(waiting.Plan), []string{
		"replace 10.244.1.0/24 via 10.0.0.3 by 10.244.1.0/24 via 10.0.0.2", "refuse b: full",
	}; !slices.Equal(got, want) {
		t.Errorf("plan %q, want %q", got, want)
	}
	if waiting.Changes.Count(routes.Delete) != 1 {
		t.Errorf("changes %q, want those of the whole decision", show(waiting.Changes))
	}
}

// A plan for other destinations doesn't change an earlier one.
func TestPlansShareNothing(t *testing.T) {
	var o routes.Observed
	o.Ranges, o.Gateways.Of = pods(), map[string]netip.Addr{}
	for i, name := range []string{"w", "x", "y", "a", "b"} {
		o.Nodes = append(o.Nodes, node(name, fmt.Sprintf("10.244.%d.0/24", i), "", i))
		o.Gateways.Of[name] = ip(fmt.Sprintf("10.0.0.%d", i+2))
		if i < 3 { // another program's route is in the way
			o.Table = append(o.Table, route(fmt.Sprintf("10.244.%d.0/25", i), "10.0.0.99"))
		}
	}
	o.Budget.Limit = len(o.Table)
	d := routes.Decide(o)
	first := d.Without(func(p netip.Prefix) bool { return p == pfx("10.244.3.0/24") }).Plan
	want := show(first)
	d.Without(func(p netip.Prefix) bool { return p == pfx("10.244.4.0/24") })
	if got := show(first); !slices.Equal(got, want) {
		t.Errorf("the plan is now %q, was %q", got, want)
	}
}
