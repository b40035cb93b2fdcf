package routes

import (
	"net/netip"
	"slices"
)

// Observed is everything that one decision rests on.
type Observed struct {
	// Table are all routes that stand, whoever's they are.
	Table []Route
	// Ranges are the pools whose node prefixes are routed through the table.
	Ranges []Range
	// VSwitch is where podCIDRs are that need no route.
	VSwitch VSwitch
	// Nodes are those of the cluster. Decide fills in their addresses from
	// Gateways, and takes out of their Dsts what needs no route.
	Nodes    []Node
	Gateways Gateways
	// Departed are the podCIDRs of Nodes that left and that nobody else has had
	// since, by the provider ID of the server that each Node ran on. Their routes
	// are adopted as those of Nodes are, while their servers live.
	Departed map[string][]netip.Prefix
	// Record is what this cluster wrote or adopted.
	Record Record
	// Stood are the routes that may be deleted or replaced; nil: all that are ours.
	Stood map[Route]bool
	// Kept are destinations that keep what stands for them, whatever else is known.
	Kept   []netip.Prefix
	Budget Budget
}

// Decision is what an observation leads to.
type Decision struct {
	Observed
	Wanted    Wanted
	Ownership Ownership
	// Changes is all that differs, and Plan what of it is to be done now.
	Changes, Plan Plan
	// Usage is how full the table is when all changes are made that fit.
	Usage Usage
}

// Decide says what a network's table should hold and what to change. In doubt
// about the servers it only adds.
func Decide(o Observed) Decision {
	o.Nodes = o.Gateways.locate(o.Nodes)
	o.VSwitch.divide(o.Nodes)
	d := Decision{Observed: o, Wanted: Desired(o.Nodes, o.Ranges).Hold(o.kept()), Ownership: Owned(o)}
	d.Changes = Diff(d.Wanted, d.Ownership)
	switch {
	case o.Gateways.Doubt != nil:
		d.Changes = d.Changes.removing(map[Route]bool{})
	case o.Stood != nil:
		d.Changes = d.Changes.removing(o.Stood)
	}
	d.Plan = o.Budget.Trim(d.Changes, d.Ownership)
	d.Usage = o.Budget.Usage(d.Plan, d.Ownership)
	return d
}

// kept are Kept less what Nodes have that yield their routes.
func (o Observed) kept() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(o.Kept), func(p netip.Prefix) bool {
		return slices.ContainsFunc(o.Nodes, func(n Node) bool { return n.Yields && slices.Contains(n.Dsts, p) })
	})
}

// Without is the decision with a plan that leaves some destinations alone for now.
// The room that they would take is for others.
func (d Decision) Without(skip func(netip.Prefix) bool) Decision {
	d.Plan = d.Budget.Trim(d.Changes.Without(skip), d.Ownership)
	return d
}

// NodeStatuses says of every node, by its name, whether the table makes it reachable.
func (d Decision) NodeStatuses() map[string]NodeStatus {
	return NodeStatuses(d.Nodes, d.Table, d.Wanted, d.Plan)
}

// Waiting are the names of the nodes that have podCIDRs to route and no gateway,
// in the order of Nodes.
func (d Decision) Waiting() []string {
	var names []string
	for _, n := range d.Nodes {
		if len(n.Dsts) > 0 && !n.Via.IsValid() {
			names = append(names, n.Name)
		}
	}
	return names
}
