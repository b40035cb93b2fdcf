package lb

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Limits of a load balancer type.
type Limits struct{ Listeners, Targets, Certificates int }

// LimitsOf returns the capacity of a load balancer type. For a type that is not listed here it
// returns no limits; the cloud enforces its own.
func LimitsOf(typ string) Limits {
	switch typ {
	case "lb11":
		return Limits{Listeners: 5, Targets: 25, Certificates: 10}
	case "lb21":
		return Limits{Listeners: 15, Targets: 75, Certificates: 25}
	case "lb31":
		return Limits{Listeners: 30, Targets: 150, Certificates: 50}
	}
	return Limits{Listeners: math.MaxInt, Targets: math.MaxInt, Certificates: math.MaxInt}
}

// Fit trims the targets to the capacity of the type. Preferred nodes and a pod of each node are
// kept first, then existing targets, so that a cluster that is too large for its type does not
// shuffle its targets with every change.
func (s Spec) Fit(have State, preferred []Node) (Spec, []Note) {
	room := max(LimitsOf(s.Type).Targets-have.OtherTargets, 0)
	if len(s.Targets) <= room {
		return s, nil
	}
	kind, remedy := "nodes", "fewer nodes with "+AnnotationNodeSelector
	if s.PodTargets {
		kind, remedy = "pods", "set "+AnnotationTargets+" to nodes"
	}
	note := errorNote(ReasonTargetsTruncated, AnnotationType, s.Type,
		"only %d %s are targets, the type holds no more: choose a larger type, or %s",
		room, kind, remedy)
	note.Figures = fmt.Sprintf("%d of %d %s", room, len(s.Targets), kind)
	s.Targets = slices.SortedFunc(slices.Values(s.byRank(have, preferred)[:room]), Target.Compare)
	return s, []Note{note}
}

func (s Spec) byRank(have State, preferred []Node) []Target {
	rank := make(map[Target]int, len(s.Targets)) // the lowest is removed first
	nth := make(map[Target]int)                  // index among the pods of its node
	now, _ := s.match(have.Targets)
	for t := range now {
		rank[t]++
	}
	sorted := func() []Target {
		return slices.SortedFunc(slices.Values(s.Targets), func(a, b Target) int {
			return cmp.Or(cmp.Compare(rank[b], rank[a]), cmp.Compare(nth[a], nth[b]), a.Compare(b))
		})
	}
	for t := range targetsOf(preferred) {
		rank[t] += 2
	}
	pods := make(map[int64]int) // by server
	for _, t := range slices.DeleteFunc(sorted(), func(t Target) bool { return !t.Pod() }) {
		if pods[t.Server] == 0 {
			rank[t] += 2
		}
		nth[t] = pods[t.Server]
		pods[t.Server]++
	}
	return sorted()
}

// Hindrances are the reasons not to create a load balancer. An existing load balancer already has
// a location, and [Input.Plan] handles its other reasons.
func (s Spec) Hindrances() []Note {
	return slices.Concat(s.Barred, s.Placeless, s.crowded())
}

// crowded returns a note for each capacity of the type that is exceeded.
func (s Spec) crowded() (notes []Note) {
	limits := LimitsOf(s.Type)
	if len(s.Listeners) > limits.Listeners {
		notes = append(notes, errorNote(ReasonInvalid, AnnotationType, s.Type,
			"the type carries %d ports and the Service has %d: choose a larger type, or split the "+
				"Service",
			limits.Listeners, len(s.Listeners)))
	}
	if refs := s.references(); len(refs) > limits.Certificates {
		notes = append(notes, errorNote(ReasonInvalid, annotationCertificates, strings.Join(refs, ","),
			"%s carries %d certificates and these are %d: set fewer, or a larger %s",
			s.Type, limits.Certificates, len(refs), AnnotationType))
	}
	return notes
}

// ReasonNoNodes is the service controller's reason for a load balancer without targets.
const ReasonNoNodes = "UnAvailableLoadBalancer"

func noNodes() Note {
	return warningNote(ReasonNoNodes, "", "",
		"no node can be a target: nodes need a provider ID hcloud://… or hrobot://…, to be Ready "+
			"when they join, no label node.kubernetes.io/exclude-from-external-load-balancers, "+
			"and to match the node selector if there is one")
}
