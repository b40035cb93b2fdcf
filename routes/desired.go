package routes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Node is what planning needs to know of a cluster's node.
type Node struct {
	Name string
	// Dsts are the podCIDRs that need an entry in this table, masked. Prefixes
	// of families that travel another way are not among them.
	Dsts []netip.Prefix
	// Inside are podCIDRs that lie in the vSwitch's Subnet and need no entry. Decide
	// takes them out of Dsts.
	Inside []netip.Prefix
	Subnet netip.Prefix
	// Allocated: the node has podCIDRs at all, of whatever family.
	Allocated bool
	// InternalIPs are the addresses that the node is reported to have inside the
	// cluster.
	InternalIPs []netip.Addr
	// Via is the node's address in the network; the zero Addr while its server
	// is unknown or not attached.
	Via netip.Addr
	// Aliases are further addresses of the same server in the network. A route
	// via one of them reaches the node too, and is left as it is.
	Aliases []netip.Addr
	// Missing says why there is no Via.
	Missing Missing
	// ControlPlane and Ready decide, with Created, who goes first when there is
	// not room for all.
	ControlPlane bool
	Ready        bool
	Created      time.Time
	// SameServer is another Node with the same provider ID; empty: none. One of them is
	// routed, and the others are Unrouted: they get no new route. Yields: this one isn't
	// Ready and the routed one is, so that its routes are deleted.
	SameServer       string
	Unrouted, Yields bool
	// Unseen: what is known of the table is older than the node.
	Unseen bool
}

// NodeRoute is a route and the node that needs it.
type NodeRoute struct {
	Route
	Node string
	// Outside: no range of ours cuts Dst, so a route for it could never be told
	// from somebody else's. It is left where it stands and never added.
	Outside bool
	// Aliases lead to the same node as Via.
	Aliases []netip.Addr
}

// MetBy reports whether r is the route that the node needs.
func (n NodeRoute) MetBy(r Route) bool {
	return r == n.Route || r.Dst == n.Dst && slices.Contains(n.Aliases, r.Via)
}

// Wanted is the desired state of a table.
type Wanted struct {
	// Routes in the order in which they are to be added: control plane first,
	// then nodes that serve, the oldest first. No two overlap.
	Routes []NodeRoute
	// Held are destinations of nodes whose gateway is not known now, or of which
	// nothing but their podCIDRs is known, and those that need no route. Nothing is
	// added for them, and what stands for them stays.
	Held []netip.Prefix
	// Duplicates are podCIDRs that overlap an older node's, and get no route.
	Duplicates []Duplicate
}

// Duplicate is a destination that overlaps another node's. Only one of the two is
// routed, see Desired, and that node is called the older.
type Duplicate struct {
	Node, Older string
	Dst         netip.Prefix
	OlderDst    netip.Prefix
}

// String tells people what happened and what to do.
func (d Duplicate) String() string {
	return fmt.Sprintf("podCIDR %s overlaps %s of node %s, which keeps it, so it is not routed; delete this Node and let it join again to get another",
		d.Dst, d.OlderDst, d.Older)
}

// Desired says which routes nodes need, in the order of their urgency. Where
// podCIDRs of two nodes overlap, the older node keeps its own, unless its is no
// node prefix of the ranges and so never routed.
func Desired(nodes []Node, ranges []Range) Wanted {
	var w Wanted
	losers := map[nodeDst]bool{}
	for _, d := range duplicates(nodes, ranges) {
		losers[nodeDst{d.Node, d.Dst}] = true
		w.Duplicates = append(w.Duplicates, d)
	}
	ranked := make([]*Node, len(nodes))
	for i := range nodes {
		ranked[i] = &nodes[i]
	}
	slices.SortFunc(ranked, byUrgency)
	for _, n := range ranked {
		for _, dst := range n.Dsts {
			switch {
			case losers[nodeDst{n.Name, dst}], n.Yields:
			case n.Via.IsValid() && !n.Unrouted:
				w.Routes = append(w.Routes, NodeRoute{Route{Dst: dst, Via: n.Via}, n.Name, !cutsAny(ranges, dst), n.Aliases})
			default:
				w.Held = append(w.Held, dst)
			}
		}
		w.Held = append(w.Held, n.Inside...)
	}
	slices.SortFunc(w.Held, netip.Prefix.Compare)
	return w
}

// Hold adds destinations that are to keep what stands for them.
func (w Wanted) Hold(dsts []netip.Prefix) Wanted {
	w.Held = slices.Concat(w.Held, dsts)
	slices.SortFunc(w.Held, netip.Prefix.Compare)
	return w
}

type nodeDst struct {
	node string
	dst  netip.Prefix
}

// duplicates finds overlapping destinations. Two prefixes overlap only if one
// contains the other, so in address order everything that overlaps stands in
// one run behind the prefix that contains it, and only runs need comparing.
// What no range cuts is never routed, so it takes nothing from others, however
// old its node is.
func duplicates(nodes []Node, ranges []Range) []Duplicate {
	type holding struct {
		node *Node
		dst  netip.Prefix
		odd  int // 1: no range cuts it
	}
	var all []holding
	for i := range nodes {
		for _, dst := range nodes[i].Dsts {
			h := holding{node: &nodes[i], dst: dst}
			if !cutsAny(ranges, dst) {
				h.odd = 1
			}
			all = append(all, h)
		}
		for _, dst := range nodes[i].Inside {
			all = append(all, holding{node: &nodes[i], dst: dst})
		}
	}
	slices.SortFunc(all, func(a, b holding) int {
		if order := a.dst.Compare(b.dst); order != 0 {
			return order
		}
		return byAge(a.node, b.node)
	})
	var found []Duplicate
	for start := 0; start < len(all); {
		end := start + 1
		for end < len(all) && all[start].dst.Overlaps(all[end].dst) {
			end++
		}
		run := all[start:end]
		slices.SortFunc(run, func(a, b holding) int {
			return cmp.Or(a.odd-b.odd, byAge(a.node, b.node), a.dst.Compare(b.dst))
		})
		var kept []holding
		for _, h := range run {
			i := slices.IndexFunc(kept, func(k holding) bool { return k.dst.Overlaps(h.dst) })
			if i < 0 {
				kept = append(kept, h)
				continue
			}
			found = append(found, Duplicate{Node: h.node.Name, Older: kept[i].node.Name, Dst: h.dst, OlderDst: kept[i].dst})
		}
		start = end
	}
	return found
}

// byAge and byUrgency get pointers because thousands of Nodes are sorted by them.
func byAge(a, b *Node) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name))
}

func byUrgency(a, b *Node) int {
	return cmp.Or(firstIf(a.ControlPlane, b.ControlPlane), firstIf(a.Ready, b.Ready), byAge(a, b))
}

func firstIf(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}
