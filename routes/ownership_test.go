package routes_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// stranger is the address of a server that is no node.
const stranger = "10.0.0.99"

// recorded is a table in which this cluster wrote every node prefix that does not
// lead to the stranger.
func recorded(have []routes.Route, ranges []routes.Range) routes.Observed {
	o := routes.Observed{Table: have, Ranges: ranges, Record: routes.Record{}}
	o.Gateways.Servers = map[netip.Addr]string{
		ip("10.0.0.2"): "id-2", ip("10.0.0.3"): "id-3", ip(stranger): "stranger",
	}
	for _, r := range have {
		if r.Via != ip(stranger) && slices.ContainsFunc(ranges, func(one routes.Range) bool { return one.Cuts(r.Dst) }) {
			o.Record[r] = true
		}
	}
	return o
}

// ownership is that of a recorded table.
func ownership(have []routes.Route, ranges []routes.Range) routes.Ownership {
	return routes.Owned(recorded(have, ranges))
}

// Ours is what is recorded with the very gateway, and what leads a Node's podCIDR to
// the Node's own address.
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
		{route("10.244.8.0/24", "10.0.0.8"), "ours"},               // recorded; nobody has the gateway any more
		{route("10.244.9.0/24", stranger), "ours"},                 // recorded; the gateway was taken over
		{route("10.200.1.0/24", "10.0.0.2"), "ours"},               // recorded; its range was removed
		{route("10.244.8.0/24", "10.0.0.2"), "ambiguous server's"}, // recorded with another gateway
		{route("10.244.1.0/24", "10.0.0.2"), "ours adopted"},       // a's
		{route("10.244.2.0/24", "10.0.0.30"), "ours adopted"},      // b's, by an alias
		{route("10.244.6.0/24", "10.0.0.4"), "ours adopted"},       // of a Node that left, and its server is there
		{route("10.244.6.0/24", "10.0.0.2"), "ambiguous server's"}, // of a Node that left, to another server
		{route("10.244.1.0/24", "10.0.0.3"), "ambiguous server's"}, // a's podCIDR, b's address
		{route("10.244.1.0/24", "10.0.0.77"), "ambiguous"},         // a's podCIDR, nobody's address
		{route("10.244.5.0/24", "10.0.0.5"), "ambiguous"},          // nobody knows where its Node is
		{route("10.244.7.0/24", "10.0.0.7"), "ambiguous"},          // nobody's: a neighbor's, or left over
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
