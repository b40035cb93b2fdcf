package agent

import (
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// Passing returns the addresses of Services that a provider may route here while another node holds
// them. kube-proxy serves them on every node. The packet filter must reject the rest, which would
// otherwise loop between the node's default route and the provider.
//
// Addresses of Nodes are excluded: they are used by more than Services' ports. So the result is
// empty before Nodes are read.
func Passing(l addresses.Ledger, routed []addresses.Pool, nodes []*kube.Node) (all []netip.Addr) {
	if len(routed) == 0 || len(nodes) == 0 {
		return nil
	}
	owned := owners(nodes, func(netip.Addr) bool { return false })
	for _, e := range l.Entries() {
		led := slices.ContainsFunc(routed, func(p addresses.Pool) bool { return p.Contains(e.Address) })
		if led && len(e.Shares) > 0 && (e.Held || owned[e.Address] == "") {
			all = append(all, e.Address)
		}
	}
	return all
}

func routed(movers []Mover) (pools []addresses.Pool) {
	for _, m := range movers {
		if m.Routed {
			pools = append(pools, m.Pools...)
		}
	}
	return pools
}
