package lb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Limits of a load balancer type.
type Limits struct{ Listeners, Targets, Certificates int }

// LimitsOf returns what a load balancer type holds, and false for a type that this version does not
// know.
func LimitsOf(typ string) (Limits, bool) {
	switch typ {
	case "lb11":
		return Limits{Listeners: 5, Targets: 25, Certificates: 10}, true
	case "lb21":
		return Limits{Listeners: 15, Targets: 75, Certificates: 25}, true
	case "lb31":
		return Limits{Listeners: 30, Targets: 150, Certificates: 50}, true
	}
	return Limits{}, false
}

// Fit trims the targets to what the type holds. Preferred nodes come first, then those that are
// targets already, so that a cluster too large for its type does not shuffle its targets with every
// change.
func (s Spec) Fit(have State, preferred []Node) (Spec, []Note) {
	if s.PodTargets {
		return s.fitPods(have)
	}
	limits, known := LimitsOf(s.Type)
	room := max(limits.Targets-have.OtherTargets, 0)
	if !known || len(s.Targets) <= room {
		return s, nil
	}
	rank := make(map[Target]int, len(s.Targets)) // the lower, the sooner it goes
	now, _ := s.match(have.Targets)
	for t := range now {
		rank[t]++
	}
	for t := range targetsOf(preferred) {
		rank[t] += 2
	}
	nodes := len(s.Targets)
	s.Targets = slices.Clone(s.Targets)
	slices.SortStableFunc(s.Targets, func(a, b Target) int {
		return cmp.Or(cmp.Compare(rank[b], rank[a]), a.Compare(b))
	})
	s.Targets = s.Targets[:room]
	slices.SortFunc(s.Targets, Target.Compare)
	return s, []Note{{
		Grade: Error, Reason: ReasonTargetsTruncated, Field: AnnotationType, Value: s.Type,
		Figures: fmt.Sprintf("%d of %d nodes", room, nodes),
		Text:    fmt.Sprintf("only %d nodes are targets, the type holds no more: choose a larger type, or fewer nodes with %s", room, AnnotationNodeSelector),
	}}
}

// Retarget returns a load balancer's type and targets, with these nodes as its targets. It is for a
// Service that says nothing usable: how a node is reached is read off the targets that are there.
// Of the spec only the excluded nodes count.
func (s Spec) Retarget(have State, nodes, preferred []Node) (Spec, []Note) {
	_, private := reached(deciding(have.Targets))
	private = private || !have.Public
	want := Spec{Type: have.Type, Public: have.Public, UsePrivateIP: private, Excluded: s.Excluded}.WithTargets(nodes).asFound(have.Targets, private)
	missing := want.unaddressed()
	want, notes := want.keepUnaddressed(have).Fit(have, preferred)
	return want, slices.Concat(missing, notes)
}

// DiffTargets is the part of [Diff] that concerns targets.
func DiffTargets(want Spec, have State) []Op {
	gone, added, replaced := diffTargets(want, have.Targets, nil)
	gone, last := want.goLast(have, gone, len(added))
	return slices.Concat(gone, added, replaced, last)
}

// Hindrances are the reasons for which no load balancer may be created. One that there is needs no
// place, and has its own answer to the others: see [Spec.Against].
func (s Spec) Hindrances() []Note {
	return slices.Concat(s.Barred, s.Placeless, s.crowded())
}

// crowded says what the type has no room for.
func (s Spec) crowded() (notes []Note) {
	limits, known := LimitsOf(s.Type)
	if !known {
		return nil
	}
	if len(s.Listeners) > limits.Listeners {
		notes = append(notes, Note{
			Grade: Error, Reason: ReasonInvalid, Field: AnnotationType, Value: s.Type,
			Text: fmt.Sprintf("the type carries %d ports and the Service has %d: choose a larger type, or split the Service", limits.Listeners, len(s.Listeners)),
		})
	}
	refs := s.references()
	if len(refs) > limits.Certificates {
		notes = append(notes, Note{
			Grade: Error, Reason: ReasonInvalid, Field: annotationCertificates, Value: strings.Join(refs, ","),
			Text: fmt.Sprintf("%s carries %d certificates and these are %d: set fewer, or a larger %s", s.Type, limits.Certificates, len(refs), AnnotationType),
		})
	}
	return notes
}

// bounded fits the spec to a load balancer that must not, or cannot, come to serve more than it
// does. A type that is too small is not taken; where that does not help, or more may not be served,
// no port opens and none closes: one that closed would take traffic down for the sake of one that
// may not open.
func (s Spec) bounded(have State) (Spec, []Note) {
	notes := s.crowded()
	if len(notes) > 0 {
		s.Type = have.Type
	}
	notes = slices.Concat(s.Barred, notes)
	if len(s.Barred) == 0 && len(s.crowded()) == 0 {
		return s, notes
	}
	wanted := ByPort(s.Listeners)
	s.Listeners = slices.Clone(have.Listeners)
	for i, old := range have.Listeners {
		if want, ok := wanted[old.Port]; ok {
			want.HTTP.Redirect = want.HTTP.Redirect && old.HTTP.Redirect // it opens a port too
			s.Listeners[i] = want
		}
	}
	s.Public = s.Public && have.Public
	return s, notes
}
