package routes

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Node is the planner's input about a cluster's node.
type Node struct {
	Name string
	// Dsts are the node's masked podCIDRs of the families that are routed through this table.
	Dsts []netip.Prefix
	// Inside are podCIDRs in the vSwitch's Subnet, which need no entry. Decide moves them here.
	Inside []netip.Prefix
	Subnet netip.Prefix
	// Allocated means that the node has podCIDRs, of any family.
	Allocated bool
	// InternalIPs are the node's reported internal addresses.
	InternalIPs []netip.Addr
	// Via is the node's address in the network; the zero Addr if its server is not found there.
	Via netip.Addr
	// Aliases are the server's further addresses in the network. Routes via them are kept.
	Aliases []netip.Addr
	// Missing is the reason if Via is not set.
	Missing Missing
	// ControlPlane, Ready and Created determine the priority if there is not room for all nodes.
	ControlPlane bool
	Ready        bool
	Created      time.Time
	// SameServer is another Node with the same provider ID, or empty. One of these Nodes is
	// routed; the rest are Unrouted and get no new route. Yields means that this Node isn't
	// Ready and the routed one is, so that its routes are deleted.
	SameServer       string
	Unrouted, Yields bool
	// Unseen means that the table was listed before the node was observed.
	Unseen bool
	// Reach is set if tunnels connect the node, which then needs no route. Encrypted means that
	// tunnels connect all nodes: the node needs no route either, but keeps what it has.
	// Connected means that the node's agent has reported that its tunnels work.
	Reach                Reach
	Encrypted, Connected bool
}

// NodeRoute is a route and the node that needs it.
type NodeRoute struct {
	Route
	Node string
	// Outside means that Dst is no node prefix of our ranges, so a route for it could not be
	// distinguished from another user's. Such a route is kept if it exists and never added.
	Outside bool
	// Aliases are other gateways that reach the same node as Via.
	Aliases []netip.Addr
}

// MetBy reports whether r satisfies the node's need.
func (n NodeRoute) MetBy(r Route) bool {
	return r == n.Route || r.Dst == n.Dst && slices.Contains(n.Aliases, r.Via)
}

// Wanted is the desired state of a table.
type Wanted struct {
	// Routes are by priority: control plane, then Ready nodes, then the oldest. No two overlap.
	Routes []NodeRoute
	// Held are destinations that get no new route and keep existing ones: those of nodes without a
	// gateway at present or with only their podCIDRs available, and those that need no route.
	Held []netip.Prefix
	// Duplicates are podCIDRs that overlap an older node's, and get no route.
	Duplicates []Duplicate
}

// Duplicate is a destination that overlaps that of another node, called the older: see Desired.
type Duplicate struct {
	Node, Older string
	Dst         netip.Prefix
	OlderDst    netip.Prefix
}

// String returns a message with the remedy.
func (d Duplicate) String() string {
	return fmt.Sprintf("podCIDR %s overlaps %s of node %s, which keeps it, so it is not routed; delete this Node and let it join again to get another",
		d.Dst, d.OlderDst, d.Older)
}

// Desired returns the routes that nodes need, by priority. If podCIDRs of two nodes overlap, the
// older node is routed, unless its podCIDR is no node prefix of the ranges and so never routed.
func Desired(nodes []Node, ranges []Range) Wanted {
	w, losers := Wanted{Duplicates: duplicates(nodes, ranges)}, map[nodeDst]bool{}
	for _, d := range w.Duplicates {
		losers[nodeDst{d.Node, d.Dst}] = true
	}
	ranked := make([]*Node, len(nodes))
	for i := range nodes {
		ranked[i] = &nodes[i]
	}
	slices.SortFunc(ranked, byUrgency)
	for _, n := range ranked {
		for _, dst := range n.Dsts {
			switch {
			case losers[nodeDst{n.Name, dst}], n.Yields, n.Reach != "":
			case n.Via.IsValid() && !n.Unrouted && !n.Encrypted:
				w.Routes = append(w.Routes, NodeRoute{
					Route{Dst: dst, Via: n.Via}, n.Name, !cutsAny(ranges, dst), n.Aliases,
				})
			default:
				w.Held = append(w.Held, dst)
			}
		}
		w.Held = append(w.Held, n.Inside...)
	}
	return w
}

// Hold adds destinations to Held.
func (w Wanted) Hold(dsts []netip.Prefix) Wanted {
	w.Held = slices.Concat(w.Held, dsts)
	return w
}

type nodeDst struct {
	node string
	dst  netip.Prefix
}

// duplicates returns overlapping destinations. Two prefixes overlap only if one contains the
// other, so in address order all overlapping prefixes are consecutive, after the one that
// contains them, and only such runs are compared. A prefix that is no node prefix of a range
// is never routed, so it has no priority over others, however old its node is.
func duplicates(nodes []Node, ranges []Range) []Duplicate {
	type holding struct {
		node *Node
		dst  netip.Prefix
		fits bool // it is a node prefix of a range
	}
	var all []holding
	for i := range nodes {
		n := &nodes[i]
		for _, dst := range n.Dsts {
			all = append(all, holding{n, dst, cutsAny(ranges, dst)})
		}
		for _, dst := range n.Inside {
			all = append(all, holding{n, dst, true})
		}
	}
	slices.SortFunc(all, func(a, b holding) int {
		return cmp.Or(a.dst.Compare(b.dst), byAge(a.node, b.node))
	})
	var found []Duplicate
	for start := 0; start < len(all); {
		end := start + 1
		for end < len(all) && all[start].dst.Overlaps(all[end].dst) {
			end++
		}
		run := all[start:end]
		slices.SortFunc(run, func(a, b holding) int {
			return cmp.Or(firstIf(a.fits, b.fits), byAge(a.node, b.node), a.dst.Compare(b.dst))
		})
		var kept []holding
		for _, h := range run {
			i := slices.IndexFunc(kept, func(k holding) bool { return k.dst.Overlaps(h.dst) })
			if i < 0 {
				kept = append(kept, h)
				continue
			}
			found = append(found, Duplicate{
				Node: h.node.Name, Older: kept[i].node.Name, Dst: h.dst, OlderDst: kept[i].dst,
			})
		}
		start = end
	}
	return found
}

// byAge and byUrgency take pointers because they sort thousands of Nodes.
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
	}
	return 1
}
