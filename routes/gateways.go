package routes

import (
	"cmp"
	"net/netip"
	"slices"
)

// Gateways tells where servers are attached to the network.
type Gateways struct {
	// Of is the address of each node's server, by the node's name, and Aliases
	// are the further addresses that the server has there.
	Of      map[string]netip.Addr
	Aliases map[string][]netip.Addr
	// Missing says, for nodes without an address, why; by the node's name.
	Missing map[string]Missing
	// Servers maps every address that any server has in the network, aliases
	// included, to the server's provider ID.
	Servers map[netip.Addr]string
	// IDs are the provider IDs of nodes' servers, by the node's name.
	IDs map[string]string
	// Attached is how many servers, whoever's, are attached to the network.
	Attached int
	// Doubt says why the servers may be those of another project; nil: they are
	// the cluster's. In doubt nothing may be deleted or replaced.
	Doubt error
}

// Missing is why a node has no address in the network.
type Missing struct {
	// Detached: its server is known, and is not attached to the network. Without
	// that, nothing is known of the server, which proves nothing.
	Detached bool
	// Reason is for people.
	Reason string
}

// locate returns the nodes with the addresses of their servers.
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

// markSameServer finds Nodes with one provider ID: of a machine that was cloned, or that
// joined again under another name. The first that is Ready is routed, the oldest of
// several. While none is, it is not known which one exists, and all keep what they have.
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
		slices.SortFunc(same, func(a, b *Node) int { return cmp.Or(firstIf(a.Ready, b.Ready), byAge(a, b)) })
		routed := same[0]
		routed.SameServer, routed.Unrouted = same[1].Name, !routed.Ready
		for _, n := range same[1:] {
			n.SameServer, n.Unrouted, n.Yields = routed.Name, true, routed.Ready && !n.Ready
		}
	}
}
