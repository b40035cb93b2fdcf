//go:build linux

package netlab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// The router forwards by the network's routes, and accepts from a member only its own addresses and
// those routed to it. A member without a cable has neither routes nor sources.
func TestTheCloudRouterFollowsTheNetwork(t *testing.T) {
	addr, pods := netip.MustParseAddr, prefix("10.244.0.0/24")
	c := &cloudRouter{
		ports: map[Member]bool{{"server", 1}: true, {"load_balancer", 2}: true},
		plane: hcloudsim.DataPlane{Networks: []hcloudsim.PlaneNetwork{{
			Members: []hcloudsim.PlaneMember{
				{Kind: "server", ID: 1, IP: addr("10.0.0.2"), Aliases: []netip.Addr{addr("10.0.0.9")}},
				{Kind: "load_balancer", ID: 2, IP: addr("10.0.0.3")},
				{Kind: "server", ID: 3, IP: addr("10.0.0.4")}, // has no cable
			},
			Routes: []hcloudsim.RouteSeed{
				{Destination: pods, Gateway: addr("10.0.0.2")},
				{Destination: prefix("10.244.1.0/24"), Gateway: addr("10.0.0.4")},
				{Destination: prefix("10.244.2.0/24"), Gateway: addr("10.0.0.5")}, // no such member
			},
		}}},
	}
	want := layout{
		routes: map[netip.Prefix]hop{
			prefix("10.0.0.2/32"): {port: "s1"},
			prefix("10.0.0.9/32"): {port: "s1"},
			prefix("10.0.0.3/32"): {port: "l2"},
			pods:                  {port: "s1", via: addr("10.0.0.2")},
		},
		sources: map[string][]netip.Prefix{
			"s1": {prefix("10.0.0.2/32"), prefix("10.0.0.9/32"), pods},
			"l2": {prefix("10.0.0.3/32")},
		},
	}
	opts := []cmp.Option{
		cmp.AllowUnexported(layout{}, hop{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	}
	if diff := cmp.Diff(want, c.layout(), opts...); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
}

// A floating IP is routed to its server, which must answer ARP for an IPv4 address and may use it
// as a source. If the server has no cable, there is no route.
func TestTheInternetFollowsFloatingIPs(t *testing.T) {
	own, net := prefix("192.0.2.11/32"), prefix("2001:db8:f::/64")
	i := &internet{
		layout: layout{
			routes:  map[netip.Prefix]hop{own: {port: "m1"}},
			sources: map[string][]netip.Prefix{"m1": {own}},
		},
		servers: map[int64]string{1: "m1"},
		floating: []hcloudsim.PlaneFloatingIP{
			{ID: 7, Net: prefix("203.0.113.7/32"), Server: 1},
			{ID: 8, Net: net, Server: 1},
			{ID: 9, Net: prefix("203.0.113.9/32"), Server: 2},
			{ID: 10, Net: prefix("203.0.113.10/32")},
		},
	}
	want := layout{
		routes: map[netip.Prefix]hop{
			own: {port: "m1"}, prefix("203.0.113.7/32"): {port: "m1"}, net: {port: "m1", via: netip.MustParseAddr("fe80::2")},
		},
		sources: map[string][]netip.Prefix{"m1": {own, prefix("203.0.113.7/32"), net}},
	}
	opts := []cmp.Option{
		cmp.AllowUnexported(layout{}, hop{}), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
	}
	if diff := cmp.Diff(want, i.whole(), opts...); diff != "" {
		t.Errorf("layout (-want +got):\n%s", diff)
	}
}

// The filter drops all sources that are not listed, and is replaced as a whole.
func TestTheFilterDropsUnlistedSources(t *testing.T) {
	script := filter(layout{sources: map[string][]netip.Prefix{"s1": {prefix("10.0.0.2/32"), prefix("2001:db8::/64")}}})
	for _, want := range []string{
		"delete table inet sources\ntable inet sources {",
		"policy drop",
		`iifname "s1" ip saddr 10.0.0.2/32 accept`,
		`iifname "s1" ip6 saddr 2001:db8::/64 accept`,
	} {
		if !strings.Contains(script, want) {
			t.Errorf("no %q in\n%s", want, script)
		}
	}
	if strings.Count(script, "accept") != 2 {
		t.Errorf("more is accepted:\n%s", script)
	}
}
