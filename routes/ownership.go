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

func cutsAny(ranges []Range, p netip.Prefix) bool {
	for _, r := range ranges {
		if r.Cuts(p) {
			return true
		}
	}
	return false
}

// Ownership sorts a table's routes by whose they are. Each list is sorted.
type Ownership struct {
	// Ours are the routes that this cluster wrote or adopted. Only these may ever
	// be changed.
	Ours []Route
	// Adopted are those of Ours that the record lacks.
	Adopted []Route
	// Ambiguous are other node prefixes of our ranges: those of another cluster
	// with our pod range, or left over from before anything was recorded. They are
	// kept.
	Ambiguous []Route
	// AmbiguousToServers is how many of Ambiguous lead to a server.
	AmbiguousToServers int
	// Foreign is everything else. It is kept.
	Foreign []Route
}

// Total is the number of routes in the table, whoever's they are.
func (o Ownership) Total() int { return len(o.Ours) + o.Others() }

// Others is how many routes are not ours.
func (o Ownership) Others() int { return len(o.Ambiguous) + len(o.Foreign) }

// AnotherCluster reports whether somebody else's servers are routed in our ranges
// and nothing there is ours: the ranges are another cluster's, and nobody may
// start here.
func (o Ownership) AnotherCluster() bool { return o.AmbiguousToServers > 0 && len(o.Ours) == 0 }

// Owned sorts the routes of a table by one rule: ours is what is recorded with
// this very destination and gateway. A route that is not recorded is adopted, and
// ours from then on, if it leads a Node's podCIDR, a node prefix of our ranges, to
// that Node's own address, whoever made it. Everything else is kept, whether its
// gateway is a server's or nobody's.
func Owned(o Observed) Ownership {
	adoptable := o.adoptable()
	var found Ownership
	for _, r := range o.Table {
		switch {
		case o.Record[r]:
			found.Ours = append(found.Ours, r)
		case adoptable[r]:
			found.Ours, found.Adopted = append(found.Ours, r), append(found.Adopted, r)
		case cutsAny(o.Ranges, r.Dst):
			found.Ambiguous = append(found.Ambiguous, r)
			if _, attached := o.Gateways.Servers[r.Via]; attached {
				found.AmbiguousToServers++
			}
		default:
			found.Foreign = append(found.Foreign, r)
		}
	}
	for _, list := range [][]Route{found.Ours, found.Adopted, found.Ambiguous, found.Foreign} {
		sortRoutes(list)
	}
	return found
}

// adoptable are the routes that lead podCIDRs to the servers of their Nodes, also
// of those that departed while their servers live.
func (o Observed) adoptable() map[Route]bool {
	found := map[Route]bool{}
	add := func(dsts []netip.Prefix, via netip.Addr) {
		for _, dst := range dsts {
			if cutsAny(o.Ranges, dst) {
				found[Route{dst, via}] = true
			}
		}
	}
	for _, n := range o.Nodes {
		if !n.Via.IsValid() {
			continue
		}
		add(n.Dsts, n.Via)
		for _, alias := range n.Aliases {
			add(n.Dsts, alias)
		}
	}
	for address, id := range o.Gateways.Servers {
		add(o.Departed[id], address)
	}
	return found
}
