package routes_test

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/underlay-ccm/underlay/routes"
)

// The truth table of pairs must be the same from both sides.
func TestTunneled(t *testing.T) {
	reaches := []routes.Reach{"", routes.NoRoom, routes.NoNetwork}
	for _, a := range reaches {
		for _, b := range reaches {
			want := a != "" || b != ""
			if got := routes.Tunneled(a, b); got != want || routes.Tunneled(b, a) != got {
				t.Errorf("%q and %q: %v, and %v from the other side", a, b, got, routes.Tunneled(b, a))
			}
		}
	}
}

// overfull returns a table for two routes that three nodes need.
func overfull() routes.Observed {
	one, two, three := node("one", "10.244.1.0/24", "", 1), node("two", "10.244.2.0/24", "", 2), node("three", "10.244.3.0/24", "", 3)
	return routes.Observed{
		Table:  []routes.Route{route("10.244.1.0/24", "10.0.0.1"), route("10.244.2.0/24", "10.0.0.2")},
		Ranges: pods(), Nodes: []routes.Node{one, two, three},
		Gateways: routes.Gateways{
			Of:      map[string]netip.Addr{"one": ip("10.0.0.1"), "two": ip("10.0.0.2"), "three": ip("10.0.0.3")},
			Missing: map[string]routes.Missing{},
			Servers: map[netip.Addr]string{ip("10.0.0.1"): "hcloud://1", ip("10.0.0.2"): "hcloud://2", ip("10.0.0.3"): "hcloud://3"},
		},
		Budget: routes.Budget{Limit: 2, MaxDeletions: 100}, Tunnels: routes.Tunnels{Enabled: true},
	}
}

func TestNewReach(t *testing.T) {
	detached := func(o *routes.Observed, address string) {
		delete(o.Gateways.Of, "three")
		o.Gateways.Missing["three"] = routes.Missing{Detached: true, Reason: "not attached"}
		o.Nodes[2].InternalIPs = []netip.Addr{ip(address)}
	}
	for name, c := range map[string]struct {
		change func(*routes.Observed)
		want   map[string]routes.Reach
	}{
		"no room":                              {func(*routes.Observed) {}, map[string]routes.Reach{"three": routes.NoRoom}},
		"tunnels are off":                      {func(o *routes.Observed) { o.Tunnels.Enabled = false }, nil},
		"there is room":                        {func(o *routes.Observed) { o.Budget.Limit = 3 }, nil},
		"a route is about to be deleted":       {func(o *routes.Observed) { o.Nodes, o.Record = o.Nodes[1:], routes.Record{o.Table[0]: true} }, nil},
		"marked already":                       {func(o *routes.Observed) { o.Nodes[2].Reach = routes.NoRoom }, nil},
		"the servers may be another project's": {func(o *routes.Observed) { o.Gateways.Doubt = errors.New("unknown") }, nil},
		"outside on purpose":                   {func(o *routes.Observed) { detached(o, "203.0.113.3") }, map[string]routes.Reach{"three": routes.NoNetwork}},
		"a dedicated server": {func(o *routes.Observed) {
			detached(o, "203.0.113.3")
			o.Gateways.Missing["three"] = routes.Missing{Unroutable: true}
		}, map[string]routes.Reach{"three": routes.NoNetwork}},
		"another provider's machine": {func(o *routes.Observed) {
			detached(o, "192.168.1.3")
			o.Gateways.Missing["three"] = routes.Missing{Elsewhere: true}
		}, map[string]routes.Reach{"three": routes.NoNetwork}},
		"not attached yet":        {func(o *routes.Observed) { detached(o, "10.0.0.3") }, nil},
		"its server is not found": {func(o *routes.Observed) { detached(o, "203.0.113.3"); o.Gateways.Missing["three"] = routes.Missing{} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := overfull()
			c.change(&o)
			got := routes.Decide(o).NewReach()
			if len(got)+len(c.want) > 0 && !cmp.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// A node with a reach keeps it when room becomes free, needs no route, and is reachable once its
// tunnels work.
func TestANodeWithTunnelsNeedsNoRoute(t *testing.T) {
	for _, connected := range []bool{false, true} {
		o := overfull()
		o.Budget.Limit = 100
		o.Nodes[2].Reach, o.Nodes[2].Connected = routes.NoRoom, connected
		d := routes.Decide(o)
		if len(d.Plan.Steps) > 0 || len(d.Waiting()) > 0 {
			t.Errorf("connected %v: plans %v, waits for %v", connected, d.Plan.Steps, d.Waiting())
		}
		want := map[bool]routes.Reason{false: routes.NoTunnel, true: routes.TunnelCreated}[connected]
		if s := d.NodeStatuses()["three"]; s.Reachable != connected || s.Reason != want {
			t.Errorf("connected %v: %+v", connected, s)
		}
	}
}

// If tunnels connect all nodes, no node needs a route, and existing routes are kept.
func TestEncryptedNodesKeepTheirRoutes(t *testing.T) {
	o := overfull()
	o.Tunnels.Required = true
	for i := range o.Nodes {
		o.Nodes[i].Encrypted, o.Nodes[i].Connected = true, i > 0
	}
	d := routes.Decide(o)
	if len(d.Plan.Steps) > 0 || len(d.Plan.Refused) > 0 || len(d.NewReach()) > 0 ||
		len(d.Waiting()) > 0 {
		t.Errorf("plans %v, refuses %v, marks %v, waits for %v", d.Plan.Steps, d.Plan.Refused, d.NewReach(), d.Waiting())
	}
	for name, want := range map[string]routes.Reason{"one": routes.NoTunnel, "two": routes.TunnelCreated, "three": routes.TunnelCreated} {
		if s := d.NodeStatuses()[name]; s.Reason != want ||
			s.Reachable != (want == routes.TunnelCreated) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
