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

// Cuts says whether p is exactly one of the range's node prefixes.
func (r Range) Cuts(p netip.Prefix) bool {
	return p.Bits() == r.NodeBits && p == p.Masked() && r.Prefix.Bits() <= p.Bits() && r.Prefix.Contains(p.Addr())
}

// Owner says whose an address in the network is.
type Owner int

const (
	// Nobody: no server of the project has the address.
	Nobody Owner = iota
	// Member: a server that this cluster has, or is known to have had.
	Member
	// Stranger: a server that isn't this cluster's, as far as we know.
	Stranger
)

// Census sorts a table's routes by whose they are. Each list is sorted.
type Census struct {
	// Ours are node prefixes of our ranges through a member or nobody. Only
	// these may ever be changed.
	Ours []Route
	// Proven is how many of Ours lead to a member.
	Proven int
	// Ambiguous are node prefixes of our ranges through a stranger: another
	// cluster with our pod range, or a machine that left this cluster
	// before we started to look. Kept.
	Ambiguous []Route
	// Foreign is everything else. Kept.
	Foreign []Route
}

// Total is the number of routes in the table, whoever's they are.
func (c Census) Total() int { return len(c.Ours) + len(c.Ambiguous) + len(c.Foreign) }

// AnotherCluster says that somebody else's servers are routed in our ranges and
// none of our own: the ranges are another cluster's, and nobody may start here.
func (c Census) AnotherCluster() bool { return len(c.Ambiguous) > 0 && c.Proven == 0 }

// Owned sorts the routes of a table. whose tells to whom a route's gateway
// belongs; it is asked about node prefixes of our ranges only.
func Owned(have []Route, ranges []Range, whose func(Route) Owner) Census {
	var c Census
	for _, r := range have {
		if !cutsAny(ranges, r.Dst) {
			c.Foreign = append(c.Foreign, r)
			continue
		}
		switch whose(r) {
		case Stranger:
			c.Ambiguous = append(c.Ambiguous, r)
		case Member:
			c.Proven++
			c.Ours = append(c.Ours, r)
		default:
			c.Ours = append(c.Ours, r)
		}
	}
	sortRoutes(c.Ours)
	sortRoutes(c.Ambiguous)
	sortRoutes(c.Foreign)
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
