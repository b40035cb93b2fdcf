package routes

import (
	"cmp"
	"net/netip"
	"slices"
)

// Gateways has the addresses of servers in the network.
type Gateways struct {
	// Of has the address of each node's server by node name, Aliases its further addresses.
	Of      map[string]netip.Addr
	Aliases map[string][]netip.Addr
	// Missing has the reasons of nodes without an address, by node name.
	Missing map[string]Missing
	// Servers maps all addresses in the network, aliases included, to servers' provider IDs.
	Servers map[netip.Addr]string
	// IDs has the provider IDs of nodes' servers, by node name.
	IDs map[string]string
	// Attached is the number of attached servers, those of other clusters included.
	Attached int
	// Doubt is the reason why the servers may be those of another project, or nil. While it is
	// set, no route may be deleted or replaced.
	Doubt error
}

// Missing is the reason why a node has no address in the network.
type Missing struct {
	// Detached means that the server was found and is not attached to the network. Otherwise
	// the server was not found, which proves nothing.
	Detached bool
	// Unroutable means that no route can lead to the machine: a dedicated server.
	Unroutable bool
	// Elsewhere means that the machine is another provider's, and never in the network.
	Elsewhere bool
	// Reason is a message for users.
	Reason string
}

// locate returns a copy of the nodes with the addresses of their servers.
func (g Gateways) locate(nodes []Node) []Node {
	located := slices.Clone(nodes)
	for i := range located {
		n := &located[i]
		n.Via, n.Aliases = g.Of[n.Name], g.Aliases[n.Name]
		if !n.Via.IsValid() {
			n.Missing = g.Missing[n.Name]
		}
	}
	g.markSameServer(located)
	return located
}

// markSameServer marks Nodes with the same provider ID: those of a cloned machine, or of a
// machine that joined again under another name. The first by readiness and age is routed if it
// is Ready. If no Node is Ready, it is unknown which one exists, and all keep their routes.
func (g Gateways) markSameServer(nodes []Node) {
	byID := map[string][]*Node{}
	for i := range nodes {
		if id := g.IDs[nodes[i].Name]; id != "" {
			byID[id] = append(byID[id], &nodes[i])
		}
	}
	for _, same := range byID {
		if len(same) == 1 {
			continue
		}
		slices.SortFunc(same, func(a, b *Node) int {
			return cmp.Or(firstIf(a.Ready, b.Ready), byAge(a, b))
		})
		routed := same[0]
		routed.SameServer, routed.Unrouted = same[1].Name, !routed.Ready
		for _, n := range same[1:] {
			n.SameServer, n.Unrouted, n.Yields = routed.Name, true, routed.Ready && !n.Ready
		}
	}
}
