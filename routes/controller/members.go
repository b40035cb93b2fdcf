package controller

import (
	"net/netip"
	"slices"

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

// members are the servers that are or were Nodes of this cluster. What this
// process saw it knows by itself; of Nodes that left while no manager ran, the
// ledger tells, and vouches for their own podCIDRs only: their servers may
// serve somebody else by now.
type members struct {
	seen map[string]bool // by provider ID
}

func (m *members) see(g routes.Gateways) {
	for _, id := range g.IDs {
		m.seen[id] = true
	}
}

func (m *members) whose(g routes.Gateways, departed []Departed) func(routes.Route) routes.Owner {
	return func(r routes.Route) routes.Owner {
		id, attached := g.Servers[r.Via]
		switch {
		case !attached:
			return routes.Nobody
		case m.seen[id], slices.ContainsFunc(departed, func(d Departed) bool {
			return d.ProviderID == id && slices.Contains(d.Prefixes, r.Dst)
		}):
			return routes.Member
		default:
			return routes.Stranger
		}
	}
}
