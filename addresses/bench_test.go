package addresses

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// BenchmarkPass measures the work of a controller after the deletion of a node: it assigns and
// places everything again, with 1,000 dual-stack Services and 100 nodes.
func BenchmarkPass(b *testing.B) {
	four, err4 := ParseRange("10.0.0.0/20")
	six, err6 := ParseRange("2001:db8::/64")
	if err4 != nil || err6 != nil {
		b.Fatal(err4, err6)
	}
	pools := []Pool{{Name: "both", Ranges: []Range{four, six}}}
	var claims []Claim
	for i := range 1000 {
		claims = append(claims, Claim{
			UID: fmt.Sprintf("uid-%d", i), Namespace: "default", Name: fmt.Sprintf("service-%d", i),
			Created: time.Unix(int64(i), 0), Families: []Family{IPv4, IPv6}, Admitted: []string{"both"},
			Ports: []Port{{"TCP", 80}, {"TCP", 443}},
		})
	}
	var nodes []string
	for i := range 100 {
		nodes = append(nodes, fmt.Sprintf("node-%d", i))
	}
	everywhere := func(l Ledger, nodes []string) map[netip.Addr]Eligible {
		eligible := make(map[netip.Addr]Eligible)
		for _, e := range l.Entries() {
			eligible[e.Address] = Eligible{Nodes: nodes}
		}
		return eligible
	}
	ledger, refusals := Ledger{}.Assign(pools, claims)
	if len(refusals) > 0 {
		b.Fatal(refusals)
	}
	ledger, _ = ledger.Place(everywhere(ledger, nodes))
	b.ReportAllocs()
	for b.Loop() {
		next, _ := ledger.Assign(pools, claims)
		placed, moves := next.Place(everywhere(next, nodes[1:]))
		if len(moves) != 20 {
			b.Fatalf("%d moves, want the 20 addresses of one node", len(moves))
		}
		if _, err := placed.MarshalText(); err != nil {
			b.Fatal(err)
		}
	}
}
