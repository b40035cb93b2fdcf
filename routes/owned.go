package routes

import (
	"net/netip"
)

// Range is a pool as routing sees it: every node prefix cut from Prefix is
// NodeBits long.
type Range struct {
	Prefix   netip.Prefix
	NodeBits int
}

// Cuts reports whether p is exactly one of the range's node prefixes.
func (r Range) Cuts(p netip.Prefix) bool {
	return p.Bits() == r.NodeBits && p == p.Masked() && r.Prefix.Bits() <= p.Bits() && r.Prefix.Contains(p.Addr())
}

// Evidence is what tells whose a route is.
type Evidence struct {
	// Record is what this cluster wrote or adopted.
	Record Record
	// Nodes are those of the cluster, and those that left it and whose podCIDRs
	// nobody else has had since.
	Nodes []Node
	// Servers holds every address that a server has in the network, whosever it is.
	Servers map[netip.Addr]string
}

// Census sorts a table's routes by whose they are. Each list is sorted.
type Census struct {
	// Ours are the routes that this cluster wrote or adopted. Only these may ever
	// be changed.
	Ours []Route
	// Adopted are those of Ours that the record lacks.
	Adopted []Route
	// Ambiguous are other node prefixes of our ranges: those of another cluster
	// with our pod range, or left over from before anything was recorded. Kept.
	Ambiguous []Route
	// Strangers is how many of Ambiguous lead to a server.
	Strangers int
	// Foreign is everything else. Kept.
	Foreign []Route
}

// Total is the number of routes in the table, whoever's they are.
func (c Census) Total() int { return len(c.Ours) + len(c.Ambiguous) + len(c.Foreign) }

// AnotherCluster reports whether somebody else's servers are routed in our ranges
// and nothing there is ours: the ranges are another cluster's, and nobody may
// start here.
func (c Census) AnotherCluster() bool { return c.Strangers > 0 && len(c.Ours) == 0 }

// Owned sorts the routes of a table by one rule: ours is what is recorded with
// this very destination and gateway. A route that is not recorded is adopted, and
// ours from then on, if it leads a Node's podCIDR, a node prefix of our ranges, to
// that Node's own address, whoever made it. Everything else is kept, whether its
// gateway is a server's or nobody's.
func Owned(have []Route, ranges []Range, e Evidence) Census {
	adoptable := map[Route]bool{}
	for _, n := range e.Nodes {
		for _, dst := range n.Dsts {
			if !n.Via.IsValid() || !cutsAny(ranges, dst) {
				continue
			}
			adoptable[Route{dst, n.Via}] = true
			for _, alias := range n.Aliases {
				adoptable[Route{dst, alias}] = true
			}
		}
	}
	var c Census
	for _, r := range have {
		switch {
		case e.Record[r]:
			c.Ours = append(c.Ours, r)
		case adoptable[r]:
			c.Ours, c.Adopted = append(c.Ours, r), append(c.Adopted, r)
		case cutsAny(ranges, r.Dst):
			c.Ambiguous = append(c.Ambiguous, r)
			if _, attached := e.Servers[r.Via]; attached {
				c.Strangers++
			}
		default:
			c.Foreign = append(c.Foreign, r)
		}
	}
	for _, list := range [][]Route{c.Ours, c.Adopted, c.Ambiguous, c.Foreign} {
		sortRoutes(list)
	}
	return c
}

func cutsAny(ranges []Range, p netip.Prefix) bool {
	for _, r := range ranges {
		if r.Cuts(p) {
			return true
		}
	}
	return false
}

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
