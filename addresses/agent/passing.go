package agent

import (
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

// Passing are the addresses of Services that a provider leads where it likes: while it leads one here
// that another node holds, its packets come here. kube-proxy serves them as on any node. What it
// doesn't redirect would be sent back to the provider by the default route, and come again, so that
// it is to be refused here too.
//
// Addresses of Nodes are none of them: these are reached by more than ports of Services. So there
// are none before Nodes are known.
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

// routed are the pools of movers whose addresses a provider leads.
func routed(movers []NamedMover) (pools []addresses.Pool) {
	for _, m := range movers {
		if m.Routed {
			pools = append(pools, m.Pools...)
		}
	}
	return pools
}
