package controller

import (
	"net/netip"

	"github.com/underlay-ccm/underlay/routes"
)

// Departed is a Node that is gone and whose podCIDRs are not free yet, as the
// stored ledger of podCIDRs knows it.
type Departed struct {
	Name string
	// ProviderID is of the server that the Node ran on; empty if never known.
	ProviderID string
	Prefixes   []netip.Prefix
}

// Evidence is what tells whose routes are, for routes.Owned: the record, and the
// Nodes with those that departed, where their servers live.
func Evidence(nodes []routes.Node, departed []Departed, g routes.Gateways, record routes.Record) routes.Evidence {
	e := routes.Evidence{Record: record, Nodes: nodes, Servers: g.Servers}
	if len(departed) == 0 {
		return e
	}
	addresses := map[string][]netip.Addr{} // by provider ID
	for address, id := range g.Servers {
		addresses[id] = append(addresses[id], address)
	}
	e.Nodes = nodes[:len(nodes):len(nodes)]
	for _, d := range departed {
		for _, address := range addresses[d.ProviderID] {
			e.Nodes = append(e.Nodes, routes.Node{Name: d.Name, Dsts: d.Prefixes, Via: address})
		}
	}
	return e
}
