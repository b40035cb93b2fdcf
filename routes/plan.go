package routes

import (
	"fmt"
	"net/netip"
	"slices"
)

// Plan is the change of a table. Deletions are first, because they make room and resolve overlaps,
// then gateway changes, then additions by priority.
type Plan struct {
	Steps []Step
	// Refused are the routes that can't be added now, with reasons.
	Refused []Refusal
	// Postponed are deletions beyond the limit.
	Postponed []Route
}

// Step is a single write to a table.
type Step struct {
	Verb Verb
	// Old is the deleted or replaced route; New the route in its place, or the added one.
	Old Route
	New NodeRoute
}

// Verb is the kind of a Step.
type Verb string

const (
	Delete  Verb = "delete"
	Replace Verb = "replace"
	Add     Verb = "add"
)

// Refusal is a route that the table can't take.
type Refusal struct {
	NodeRoute
	Cause Cause
	// By is the conflicting route, if Cause is Obstructed.
	By Route
}

// Cause is the reason for a refusal.
type Cause string

const (
	// Full means that the table has no room within its limit and reserve.
	Full Cause = "full"
	// Obstructed means that a route that isn't ours overlaps the destination.
	Obstructed Cause = "obstructed"
	// Outside means that the podCIDR is in none of our ranges.
	Outside Cause = "outside"
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

// Count returns the number of steps of a kind.
func (p Plan) Count(verb Verb) (count int) {
	for _, s := range p.Steps {
		if s.Verb == verb {
			count++
		}
	}
	return count
}

// Refusals returns the number of routes refused for a cause.
func (p Plan) Refusals(cause Cause) (count int) {
	for _, r := range p.Refused {
		if r.Cause == cause {
			count++
		}
	}
	return count
}

// keep returns the plan with only some of its steps.
func (p Plan) keep(these func(Step) bool) Plan {
	p.Steps = slices.DeleteFunc(slices.Clone(p.Steps), func(s Step) bool { return !these(s) })
	return p
}

// Diff compares the desired with the existing routes. Held destinations keep their routes;
// those that overlap another user's route are refused.
func Diff(w Wanted, o Ownership) Plan {
	have := make(map[netip.Prefix]Route, o.Total())
	for _, r := range slices.Concat(o.Foreign, o.Ambiguous, o.Ours) {
		have[r.Dst] = r
	}
	others := slices.Concat(o.Ambiguous, o.Foreign)

	var p Plan
	var deletions, replacements, additions []Step
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
			replacements = append(replacements, Step{Verb: Replace, Old: old, New: needed})
		default:
			additions = append(additions, Step{Verb: Add, New: needed})
		}
	}
	for _, r := range o.Ours {
		if !wanted[r.Dst] && !slices.ContainsFunc(w.Held, r.Dst.Overlaps) {
			deletions = append(deletions, Step{Verb: Delete, Old: r})
		}
	}
	p.Steps = slices.Concat(deletions, replacements, additions)
	return p
}

// clash reports whether a table rejects both destinations. A default route fits with any.
func clash(a, b netip.Prefix) bool {
	return a == b || a.Bits() > 0 && b.Bits() > 0 && a.Overlaps(b)
}

// Route returns the new route of a step, or the deleted one.
func (s Step) Route() Route {
	if s.Verb == Delete {
		return s.Old
	}
	return s.New.Route
}

// Apply returns the content of a table after the step.
func (s Step) Apply(have []Route) []Route {
	left := slices.DeleteFunc(slices.Clone(have), func(r Route) bool { return r == s.Old })
	if s.Verb != Delete {
		left = append(left, s.New.Route)
	}
	return sortRoutes(left)
}
