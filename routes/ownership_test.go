package routes_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// stranger is the address of a server without a node.
const stranger = "10.0.0.99"

// recorded returns a table with a record of every node prefix that is not routed to the stranger.
func recorded(have []routes.Route, ranges []routes.Range) routes.Observed {
	o := routes.Observed{Table: have, Ranges: ranges, Record: routes.Record{}}
	o.Gateways.Servers = map[netip.Addr]string{
		ip("10.0.0.2"): "id-2", ip("10.0.0.3"): "id-3", ip(stranger): "stranger",
	}
	for _, r := range have {
		if r.Via != ip(stranger) &&
			slices.ContainsFunc(ranges, func(one routes.Range) bool { return one.Cuts(r.Dst) }) {
			o.Record[r] = true
		}
	}
	return o
}

// ownership returns the owners of a recorded table.
func ownership(have []routes.Route, ranges []routes.Range) routes.Ownership {
	return routes.Owned(recorded(have, ranges))
}

// A route belongs to the cluster if it is recorded with the same gateway, or if it routes a Node's
// podCIDR to the Node's own address.
func TestOwned(t *testing.T) {
	withAlias := node("b", "10.244.2.0/24", "10.0.0.3", 1)
	withAlias.Aliases = []netip.Addr{ip("10.0.0.30")}
	o := routes.Observed{
		Ranges: pods(),
		Record: routes.Record{
			route("10.244.8.0/24", "10.0.0.8"): true, route("10.244.9.0/24", stranger): true, route("10.200.1.0/24", "10.0.0.2"): true,
		},
		Nodes: []routes.Node{
			node("a", "10.244.1.0/24", "10.0.0.2", 1), withAlias, node("detached", "10.244.5.0/24", "", 1),
			node("outside", "10.245.1.0/24", "10.0.0.2", 1),
		},
		Gateways: routes.Gateways{
			Servers: map[netip.Addr]string{ip("10.0.0.2"): "id-a", ip("10.0.0.3"): "id-b", ip(stranger): "stranger", ip("10.0.0.4"): "id-left"},
		},
		Departed: map[string][]netip.Prefix{"id-left": {pfx("10.244.6.0/24")}, "id-gone": {pfx("10.244.7.0/24")}},
	}
	for _, c := range []struct {
		route routes.Route
		want  string
	}{
		{route("10.244.8.0/24", "10.0.0.8"), "ours"},               // recorded; no server has the gateway any more
		{route("10.244.9.0/24", stranger), "ours"},                 // recorded; the gateway was taken over
		{route("10.200.1.0/24", "10.0.0.2"), "ours"},               // recorded; its range was removed
		{route("10.244.8.0/24", "10.0.0.2"), "ambiguous server's"}, // recorded with another gateway
		{route("10.244.1.0/24", "10.0.0.2"), "ours adopted"},       // a's
		{route("10.244.2.0/24", "10.0.0.30"), "ours adopted"},      // b's, by an alias
		{route("10.244.6.0/24", "10.0.0.4"), "ours adopted"},       // of a Node that left; its server exists
		{route("10.244.6.0/24", "10.0.0.2"), "ambiguous server's"}, // of a Node that left, to another server
		{route("10.244.1.0/24", "10.0.0.3"), "ambiguous server's"}, // a's podCIDR, b's address
		{route("10.244.1.0/24", "10.0.0.77"), "ambiguous"},         // a's podCIDR, an unknown address
		{route("10.244.5.0/24", "10.0.0.5"), "ambiguous"},          // the address of its Node is unknown
		{route("10.244.7.0/24", "10.0.0.7"), "ambiguous"},          // without a Node: another cluster's, or an orphan
		{route("10.244.7.0/24", stranger), "ambiguous server's"},   // another cluster's
		{route("10.244.0.0/16", "10.0.0.2"), "foreign"},            // the whole range
		{route("10.244.1.0/25", "10.0.0.2"), "foreign"},            // half a node prefix
		{route("10.245.1.0/24", "10.0.0.2"), "foreign"},            // another range, though a Node's podCIDR
		{route("0.0.0.0/0", "10.0.0.2"), "foreign"},                // a NAT gateway
		{routes.Route{Dst: pfx("fd00::/24"), Via: ip("fd00::1")}, "foreign"},
	} {
		t.Run(c.route.String(), func(t *testing.T) {
			o.Table = []routes.Route{c.route}
			got := routes.Owned(o)
			var is []string
			for name, count := range map[string]int{
				"adopted": len(got.Adopted), "ambiguous": len(got.Ambiguous), "foreign": len(got.Foreign), "ours": len(got.Ours), "server's": got.AmbiguousToServers,
			} {
				if count > 0 {
					is = append(is, name)
				}
			}
			slices.Sort(is)
			want := strings.Fields(c.want)
			slices.Sort(want)
			if !slices.Equal(is, want) || got.Total() != 1 {
				t.Errorf("it is %q, want %q", is, want)
			}
			if another := c.want == "ambiguous server's"; got.AnotherCluster() != another {
				t.Errorf("another cluster's range: %v, want %v", got.AnotherCluster(), another)
			}
		})
	}
}
