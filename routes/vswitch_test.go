package routes_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// vSwitch returns a subnet with the pool of dedicated servers as its second half.
func vSwitch() routes.VSwitch {
	return routes.VSwitch{Subnet: pfx("10.0.64.0/18"), Ranges: []routes.Range{{Prefix: pfx("10.0.96.0/19"), NodeBits: 24}}}
}

// dedicated returns a node with a podCIDR in the vSwitch's subnet.
func dedicated(name, dst string, age int, addrs ...string) routes.Node {
	n := node(name, dst, "", age)
	for _, a := range addrs {
		n.InternalIPs = append(n.InternalIPs, ip(a))
	}
	return n
}

// mixed returns a cluster of one cloud server and the dedicated ones.
func mixed(table []routes.Route, dedicated ...routes.Node) routes.Observed {
	o := recorded(table, pods())
	o.VSwitch = vSwitch()
	o.Nodes = append(dedicated, node("cloud", "10.244.1.0/24", "", 0))
	o.Gateways.Of = map[string]netip.Addr{"cloud": ip("10.0.0.2")}
	o.Gateways.Missing = map[string]routes.Missing{}
	for _, n := range dedicated {
		o.Gateways.Missing[n.Name] = routes.Missing{Reason: "not a server of this cloud"}
	}
	o.Budget = routes.Budget{Limit: 1, MaxDeletions: 100}
	return o
}

func TestPodCIDRsInsideTheVSwitchNeedNoRoute(t *testing.T) {
	d := routes.Decide(mixed(nil, dedicated("a", "10.0.96.0/24", 1, "10.0.64.5"), dedicated("b", "10.0.97.0/24", 2, "10.0.64.6")))
	if got, want := show(d.Plan), []string{"add 10.244.1.0/24 via 10.0.0.2"}; !slices.Equal(got, want) {
		t.Errorf("plan %q, want %q: the table has room for one", got, want)
	}
	if w := d.Waiting(); len(w) > 0 {
		t.Errorf("%q wait for gateways", w)
	}
	if f, full, _ := d.Shortage(); !full && !strings.HasPrefix(f.Problem, "1 nodes") {
		t.Errorf("the shortage counts nodes that need no route: %v", f)
	}
	v := d.NodeStatuses()["a"]
	if !v.Reachable || v.Reason != routes.RouteCreated || v.Message != "10.0.96.0/24 lies inside the vSwitch's subnet 10.0.64.0/18 and needs no route" {
		t.Errorf("a: %+v", v)
	}
}

func TestNodeStatusesInsideTheVSwitch(t *testing.T) {
	const ok, wrong = "10.0.64.5", "203.0.113.5"
	for _, c := range []struct {
		name  string
		node  routes.Node
		via   string // a cloud server's address
		table []routes.Route
		want  string // reason and Event; "": reachable
		says  []string
	}{
		{name: "in the subnet", node: dedicated("a", "10.0.96.0/24", 1, ok)},
		{name: "one address of two", node: dedicated("a", "10.0.96.0/24", 1, wrong, ok)},
		{name: "another address", node: dedicated("a", "10.0.96.0/24", 1, wrong), want: "NotInVSwitch NotInVSwitch", says: []string{"10.0.96.0/24", "10.0.64.0/18", wrong, "--node-ip"}},
		{name: "no address yet", node: dedicated("a", "10.0.96.0/24", 1), want: "NoRouteCreated ", says: []string{"internal address"}},
		{name: "a cloud server", node: dedicated("a", "10.0.96.0/24", 1, "10.0.0.9"), via: "10.0.0.9", want: "NotInVSwitch NotInVSwitch", says: []string{"10.0.0.9", "nodeSelector", "delete this Node"}},
		{name: "of another size", node: dedicated("a", "10.0.96.0/25", 1, ok), want: "NotAttached NotAttached"},
		{name: "an older one's", node: dedicated("a", "10.0.97.0/24", 9, ok), want: "NoRouteCreated DuplicatePodCIDR", says: []string{"10.0.97.0/24", "older"}},
		{name: "a route in the way", node: dedicated("a", "10.0.96.0/24", 1, ok), table: []routes.Route{route("10.0.96.0/24", "10.0.0.7")}, want: "NoRouteCreated RouteAmbiguous", says: []string{"10.0.96.0/24 via 10.0.0.7", "remove"}},
		{name: "a route that covers it", node: dedicated("a", "10.0.96.0/24", 1, ok), table: []routes.Route{route("10.0.96.0/20", "10.0.0.7")}, want: "NoRouteCreated RouteAmbiguous", says: []string{"10.0.96.0/20"}},
		{name: "a route to a part of it", node: dedicated("a", "10.0.96.0/24", 1, ok), table: []routes.Route{route("10.0.96.128/25", "10.0.0.7")}, want: "NoRouteCreated RouteAmbiguous"},
		{name: "longer destinations decide", node: dedicated("a", "10.0.96.0/24", 1, ok), table: []routes.Route{route("0.0.0.0/0", "10.0.0.7"), route("10.0.0.0/16", "10.0.0.7")}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := mixed(c.table, c.node, dedicated("older", "10.0.97.0/24", 2, "10.0.64.9"))
			if c.via != "" {
				o.Gateways.Of["a"] = ip(c.via)
			}
			v := routes.Decide(o).NodeStatuses()["a"]
			got := string(v.Reason) + " " + v.Event
			if v.Reachable != (c.want == "") || c.want != "" && got != c.want {
				t.Errorf("got %+v, want %q", v, c.want)
			}
			for _, part := range c.says {
				if !strings.Contains(v.Message, part) {
					t.Errorf("%q doesn't say %q", v.Message, part)
				}
			}
		})
	}
}

// A node's status is kept while its addresses are unknown, and withdrawn if a known one is outside.
func TestOnlyAddressesWithdrawReachabilityInTheVSwitch(t *testing.T) {
	for addr, unproved := range map[string]bool{"": true, "203.0.113.5": false} {
		n := dedicated("a", "10.0.96.0/24", 1)
		if addr != "" {
			n = dedicated("a", "10.0.96.0/24", 1, addr)
		}
		if v := routes.Decide(mixed(nil, n)).NodeStatuses()["a"]; v.Reachable || v.Unproved != unproved {
			t.Errorf("address %q: %+v, want unproved %v", addr, v, unproved)
		}
	}
}

// A route to a node that needs none is not deleted, and is reported.
func TestRoutesIntoTheVSwitchStay(t *testing.T) {
	into := route("10.0.96.0/24", "10.0.0.7")
	for name, recorded := range map[string]bool{"by hand": false, "of ours": true} {
		o := mixed([]routes.Route{into, route("10.244.1.0/24", "10.0.0.2")}, dedicated("a", "10.0.96.0/24", 1, "10.0.64.5"))
		o.Budget.Limit = 100
		if recorded {
			o.Record[into] = true
		}
		d := routes.Decide(o)
		if got := show(d.Plan); len(got) > 0 {
			t.Errorf("%s: plan %q, want none", name, got)
		}
		obstacles := d.Obstacles()
		if !recorded && (len(obstacles) != 1 || obstacles[0].Fatal || obstacles[0].Prefix != into.Dst || !strings.Contains(obstacles[0].String(), "vSwitch")) {
			t.Errorf("%s: obstacles %v", name, obstacles)
		}
	}
}

func TestVSwitchCheck(t *testing.T) {
	for _, c := range []struct {
		name     string
		vSwitch  routes.VSwitch
		coupling routes.Coupling
		want     []string // in the finding; none: the route is right
		about    netip.Prefix
	}{
		{"right", vSwitch(), routes.Coupling{Subnets: []netip.Prefix{pfx("10.9.0.0/24"), pfx("10.0.64.0/18")}, Exposed: true}, nil, netip.Prefix{}},
		{"none configured", routes.VSwitch{}, routes.Coupling{}, nil, netip.Prefix{}},
		{"none coupled", vSwitch(), routes.Coupling{Exposed: true}, []string{"no subnet of type vswitch", "hcloud network add-subnet", "10.0.64.0/18"}, pfx("10.0.64.0/18")},
		{"others coupled", vSwitch(), routes.Coupling{Subnets: []netip.Prefix{pfx("10.9.0.0/24"), pfx("10.8.0.0/24")}}, []string{"10.0.64.0/18", "use one of 10.9.0.0/24, 10.8.0.0/24"}, pfx("10.0.64.0/18")},
		{"a part of it", vSwitch(), routes.Coupling{Subnets: []netip.Prefix{pfx("10.0.64.0/17").Masked()}}, []string{"is no subnet"}, pfx("10.0.64.0/18")},
		{"not exposed", vSwitch(), routes.Coupling{Subnets: []netip.Prefix{pfx("10.0.64.0/18")}}, []string{"doesn't expose its routes", "vswitch.exposeRoutes: true"}, netip.Prefix{}},
		{"not exposed, and no pools", routes.VSwitch{Subnet: pfx("10.0.64.0/18")}, routes.Coupling{Subnets: []netip.Prefix{pfx("10.0.64.0/18")}}, nil, netip.Prefix{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := c.vSwitch.Check(c.coupling)
			if len(got) != min(len(c.want), 1) {
				t.Fatalf("found %v, want %q", got, c.want)
			}
			for _, part := range c.want {
				if !got[0].Fatal || got[0].Prefix != c.about || !strings.Contains(got[0].String(), part) {
					t.Errorf("found %+v, want it about %v with %q", got[0], c.about, part)
				}
			}
		})
	}
}
