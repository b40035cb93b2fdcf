package routes

import (
	"net/netip"
	"slices"
)

// Observed is the complete input of a decision.
type Observed struct {
	// Table holds all routes of the table, whatever their owner.
	Table []Route
	// Ranges are the pools with node prefixes that are routed through the table.
	Ranges []Range
	// VSwitch has the podCIDRs that need no route.
	VSwitch VSwitch
	// Nodes are the Nodes of the cluster. Decide sets their addresses from Gateways, and
	// removes podCIDRs that need no route from their Dsts.
	Nodes    []Node
	Gateways Gateways
	// Departed has the podCIDRs of deleted Nodes that no other Node has had since, by the
	// provider ID of the server that the Node ran on. Their routes are adopted like those of
	// Nodes while their servers exist.
	Departed map[string][]netip.Prefix
	// Record has the routes that this cluster wrote or adopted.
	Record Record
	// Stood has the routes that may be deleted or replaced; nil allows all of ours.
	Stood map[Route]bool
	// Kept are destinations that keep their routes in any case.
	Kept   []netip.Prefix
	Budget Budget
	// Tunnels means that nodes without a route may be connected by tunnels.
	Tunnels Tunnels
}

// Decision is the result of Decide.
type Decision struct {
	Observed
	Wanted    Wanted
	Ownership Ownership
	// Changes has all differences, and Plan those of them to apply now.
	Changes, Plan Plan
}

// Decide returns the desired table and the changes to it, only additions while Doubt is set.
func Decide(o Observed) Decision {
	o.Nodes = o.Gateways.locate(o.Nodes)
	o.VSwitch.divide(o.Nodes)
	d := Decision{Observed: o, Wanted: Desired(o.Nodes, o.Ranges).Hold(o.kept()), Ownership: Owned(o)}
	d.Changes = Diff(d.Wanted, d.Ownership).keep(func(s Step) bool {
		switch {
		case s.Verb == Add:
			return true // safe while the purpose of the routes is unknown
		case o.Gateways.Doubt != nil:
			return false
		case o.Stood != nil:
			return o.Stood[s.Old]
		}
		return true
	})
	d.Plan = o.Budget.Trim(d.Changes, d.Ownership)
	return d
}

// kept returns Kept without the podCIDRs of Nodes that yield their routes.
func (o Observed) kept() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(o.Kept), func(p netip.Prefix) bool {
		return slices.ContainsFunc(o.Nodes, func(n Node) bool {
			return n.Yields && slices.Contains(n.Dsts, p)
		})
	})
}

// Without returns the decision without some destinations. Their room is used for others.
func (d Decision) Without(skip func(netip.Prefix) bool) Decision {
	d.Plan = d.Budget.Trim(d.Changes.keep(func(s Step) bool {
		return !skip(s.Route().Dst)
	}), d.Ownership)
	return d
}

// NodeStatuses returns, by node name, whether the table makes each node reachable.
func (d Decision) NodeStatuses() map[string]NodeStatus {
	return NodeStatuses(d.Nodes, d.Table, d.Wanted, d.Plan)
}

// Waiting returns the names of nodes that lack a gateway for podCIDRs, in the order of Nodes.
func (d Decision) Waiting() []string {
	var names []string
	for _, n := range d.Nodes {
		if len(n.Dsts) > 0 && !n.Via.IsValid() && n.Reach == "" && !n.Encrypted {
			names = append(names, n.Name)
		}
	}
	return names
}
