package routes

import (
	"fmt"
	"net/netip"
	"slices"
)

// Plan is a sorted set of changes to a table. Deletions are first, because they make room and
// resolve overlaps, then gateway changes, then additions by priority.
type Plan struct {
	Delete  []Route
	Replace []Change
	Add     []NodeRoute
	// Refused are the routes that can't be added now, with reasons.
	Refused []Refusal
	// Postponed are deletions beyond the limit.
	Postponed []Route
}

// Change replaces the gateway of a destination.
type Change struct {
	Old Route
	New NodeRoute
}

// Refusal is a route that the table can't take.
type Refusal struct {
	NodeRoute
	Cause Cause
	// By is the conflicting route, if Cause is Obstructed.
	By Route
}

// Cause is the reason for a refusal.
type Cause int

const (
	// Full means that the table has no room within its limit and reserve.
	Full Cause = iota + 1
	// Obstructed means that a route that isn't ours overlaps the destination.
	Obstructed
	// Outside means that the podCIDR is in none of our ranges.
	Outside
)

// String returns a message with the remedy.
func (r Refusal) String() string {
	switch r.Cause {
	case Obstructed:
		return fmt.Sprintf("route %s is not ours and overlaps podCIDR %s; remove that route from the network if nothing needs it", r.By, r.Dst)
	case Outside:
		return fmt.Sprintf("podCIDR %s is outside every --cluster-cidr or has another size; delete this Node and let it join again, or add its range", r.Dst)
	default:
		return fmt.Sprintf("no room in the network's route table for podCIDR %s; remove routes or nodes, or have the limit raised and set routes.limit", r.Dst)
	}
}

// Empty reports whether the plan has no writes.
func (p Plan) Empty() bool { return len(p.Delete)+len(p.Replace)+len(p.Add) == 0 }

// Diff compares the desired with the existing routes. Held destinations keep their routes;
// those that overlap another user's route are refused.
func Diff(w Wanted, o Ownership) Plan {
	have := make(map[netip.Prefix]Route, o.Total())
	for _, r := range slices.Concat(o.Foreign, o.Ambiguous, o.Ours) {
		have[r.Dst] = r
	}
	others := slices.Concat(o.Ambiguous, o.Foreign)

	var p Plan
	wanted := make(map[netip.Prefix]bool, len(w.Routes))
	for _, needed := range w.Routes {
		wanted[needed.Dst] = true
		old, found := have[needed.Dst]
		if found && needed.MetBy(old) {
			continue
		}
		inTheWay := slices.IndexFunc(others, func(r Route) bool { return clash(r.Dst, needed.Dst) })
		switch {
		case inTheWay >= 0:
			p.Refused = append(p.Refused, Refusal{
				NodeRoute: needed, Cause: Obstructed, By: others[inTheWay],
			})
		case needed.Outside:
			p.Refused = append(p.Refused, Refusal{NodeRoute: needed, Cause: Outside})
		case found:
			p.Replace = append(p.Replace, Change{Old: old, New: needed})
		default:
			p.Add = append(p.Add, needed)
		}
	}
	for _, r := range o.Ours {
		held := slices.ContainsFunc(w.Held, r.Dst.Overlaps)
		if !wanted[r.Dst] && !held {
			p.Delete = append(p.Delete, r)
		}
	}
	return p
}

// clash reports whether a table rejects both destinations. A default route fits with any.
func clash(a, b netip.Prefix) bool {
	return a == b || a.Bits() > 0 && b.Bits() > 0 && a.Overlaps(b)
}

// Without returns the plan without the destinations that are skipped for now.
func (p Plan) Without(skip func(netip.Prefix) bool) Plan {
	p.Delete = slices.DeleteFunc(slices.Clone(p.Delete), func(r Route) bool { return skip(r.Dst) })
	p.Replace = slices.DeleteFunc(slices.Clone(p.Replace), func(c Change) bool {
		return skip(c.New.Dst)
	})
	p.Add = slices.DeleteFunc(slices.Clone(p.Add), func(n NodeRoute) bool { return skip(n.Dst) })
	return p
}

// removing returns the plan with deletions and replacements of these routes only. An empty set
// leaves what is safe while the purpose of the routes is unknown.
func (p Plan) removing(these map[Route]bool) Plan {
	p.Delete = slices.DeleteFunc(slices.Clone(p.Delete), func(r Route) bool { return !these[r] })
	p.Replace = slices.DeleteFunc(slices.Clone(p.Replace), func(c Change) bool {
		return !these[c.Old]
	})
	return p
}

// Step is a single write to a table.
type Step struct {
	Verb     Verb
	Old, New Route
	// Node is the node that needs New; empty for a deletion.
	Node string
}

// Verb is the kind of a Step.
type Verb string

const (
	Delete  Verb = "delete"
	Replace Verb = "replace"
	Add     Verb = "add"
)

// Steps returns the plan's writes in order.
func (p Plan) Steps() []Step {
	steps := make([]Step, 0, len(p.Delete)+len(p.Replace)+len(p.Add))
	for _, r := range p.Delete {
		steps = append(steps, Step{Verb: Delete, Old: r})
	}
	for _, c := range p.Replace {
		steps = append(steps, Step{Verb: Replace, Old: c.Old, New: c.New.Route, Node: c.New.Node})
	}
	for _, c := range p.Add {
		steps = append(steps, Step{Verb: Add, New: c.Route, Node: c.Node})
	}
	return steps
}

// Route returns the new route of a step, or the deleted one.
func (s Step) Route() Route {
	if s.Verb == Delete {
		return s.Old
	}
	return s.New
}

// Apply returns the content of a table after the step.
func (s Step) Apply(have []Route) []Route {
	left := slices.DeleteFunc(slices.Clone(have), func(r Route) bool { return r == s.Old })
	if s.Verb != Delete {
		left = append(left, s.New)
	}
	return sortRoutes(left)
}
