package routes

import (
	"net/netip"
	"slices"
)

// Range is a pool for routing: every node prefix of Prefix has NodeBits bits.
type Range struct {
	Prefix   netip.Prefix
	NodeBits int
}

// Cuts reports whether p is exactly one of the range's node prefixes.
func (r Range) Cuts(p netip.Prefix) bool {
	return p.Bits() == r.NodeBits && p == p.Masked() && r.Prefix.Bits() <= p.Bits() &&
		r.Prefix.Contains(p.Addr())
}

func cutsAny(ranges []Range, p netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.Cuts(p) })
}

// Ownership groups the routes of a table by owner. Each list is sorted.
type Ownership struct {
	// Ours are the routes that this cluster wrote or adopted. No other route may ever be changed.
	Ours []Route
	// Adopted are those of Ours that are missing in the record.
	Adopted []Route
	// Ambiguous are other routes to node prefixes of our ranges: those of another cluster with
	// our pod range, or orphans from before routes were recorded. They are kept.
	Ambiguous []Route
	// AmbiguousToServers is the number of Ambiguous routes via a server.
	AmbiguousToServers int
	// Foreign are all other routes. They are kept.
	Foreign []Route
}

// Total returns the number of routes in the table, whatever their owner.
func (o Ownership) Total() int { return len(o.Ours) + o.Others() }

// Others returns the number of routes that are not ours.
func (o Ownership) Others() int { return len(o.Ambiguous) + len(o.Foreign) }

// AnotherCluster reports whether other servers are routed in our ranges and no route there is
// ours. The ranges belong to another cluster then, and no controller may start here.
func (o Ownership) AnotherCluster() bool { return o.AmbiguousToServers > 0 && len(o.Ours) == 0 }

// Owned groups the routes of a table by one rule: a route is ours if its exact destination and
// gateway are recorded. An unrecorded route is adopted, and recorded, if it routes a Node's
// podCIDR, a node prefix of our ranges, to that Node's own address, whatever program created
// it. All other routes are kept, whether their gateway is a server's address or not.
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

// adoptable returns the routes of podCIDRs to their Nodes' servers, those in Departed included.
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
