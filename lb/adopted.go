package lb

import (
	"fmt"
	"slices"
	"strings"
)

// A setting comes from the Service's annotation, else from a load balancer that was taken over,
// else from the configuration, else from the built-in default. This file implements the second
// layer: it keeps values that may have been set on purpose.

// LabelKept lists the adopted settings on the load balancer that has them.
const LabelKept = "underlay.dev/kept"

// Values in LabelKept for targets that are kept: how targets that are added later are reached.
const (
	keptPrivate = "private-targets"
	keptPublic  = "public-targets"
)

// keepable is a setting that can be adopted. Their order is the order in the label's value.
type keepable struct {
	name      string
	annotated bool
	// differs reports whether the load balancer differs from configured or built-in values.
	differs bool
	keep    func(*Spec)
	shown   string
}

func (s Spec) keepables(have State) []keepable {
	annotated := s.Takeover.Annotated
	return []keepable{
		{
			"algorithm", annotated.Algorithm, s.Algorithm != have.Algorithm,
			func(s *Spec) { s.Algorithm = have.Algorithm }, string(have.Algorithm),
		},
		{
			"name", annotated.Name, s.Name != have.Name, func(s *Spec) { s.Name = have.Name },
			fmt.Sprintf("%q", have.Name),
		},
		// Only a missing public interface is adopted, and only if targets are reached without it.
		// An earlier setting must not undo a configuration that closes it to the internet.
		{
			"public-interface", annotated.Public || !s.Public || !s.UsePrivateIP, s.Public != have.Public,
			func(s *Spec) {
				s.Public, s.ReverseDNS = false, ReverseDNS{}
			}, "off",
		},
		{"type", annotated.Type, s.Type != have.Type, func(s *Spec) { s.Type = have.Type }, have.Type},
	}
}

// keep overrides configured and built-in values with the adopted settings.
func (s Spec) keep(have State) (Spec, []Note) {
	if !have.Exists() {
		return s, nil
	}
	remembered, found := strings.Split(have.Labels[LabelKept], "."), !s.Owner.Owns(have.Labels)
	s, shown := s.keepTargets(have, remembered, found) // the public interface depends on it
	for _, k := range s.keepables(have) {
		if k.annotated || !slices.Contains(remembered, k.name) && (!found || !k.differs) {
			continue
		}
		s.Kept = append(s.Kept, k.name)
		if k.differs {
			k.keep(&s)
			shown = append(shown, k.name+" "+k.shown)
		}
	}
	if len(shown) == 0 {
		return s, nil
	}
	return s, []Note{warningNote(ReasonSettingsKept, "", "",
		"the load balancer was taken over and keeps its %s: set the annotations for them to "+
			"decide otherwise",
		strings.Join(shown, ", "))}
}

// keepTargets keeps how each existing target is reached: at another address it would be out of
// service until it is healthy there. A new target is reached like all existing servers, or all
// existing addresses without servers; if these differ or do not exist, as LabelKept records.
func (s Spec) keepTargets(have State, remembered []string, found bool) (Spec, []string) {
	wasPrivate, wasPublic := slices.Contains(remembered, keptPrivate), slices.Contains(remembered,
		keptPublic)
	way, shown := wasPrivate || s.UsePrivateIP && !wasPublic, "targets at the addresses that they have"
	if public, private := reached(deciding(have.Targets)); public != private {
		way = private
	}
	if public, private := reached(have.Targets); !(public && private) {
		shown = "targets at their " + addressesOf(way)
	}
	targets := s.asFound(have.Targets, way).Targets
	differs := way != s.UsePrivateIP || !slices.Equal(targets, s.Targets)
	switch {
	case s.Takeover.Annotated.Targets, !wasPrivate && !wasPublic && (!found || !differs):
		return s, nil
	case !s.Public, way && s.Network == 0 && have.Network == 0: // the targets would be unreachable
		return s, nil
	}
	s.UsePrivateIP, s.Targets, s.Kept = way, targets, append(s.Kept, keptTargets(way))
	if !differs {
		return s, nil
	}
	return s, []string{shown + " (" + annotationPrivateIP + ")"}
}

// deciding returns the targets that determine how new nodes are reached: servers, because a
// dedicated server may have had only one address.
func deciding(targets []Target) []Target {
	nodes := slices.DeleteFunc(slices.Clone(targets), Target.Pod)
	servers := slices.DeleteFunc(slices.Clone(nodes), func(t Target) bool {
		return t.Address.IsValid()
	})
	if len(servers) == 0 {
		return nodes
	}
	return servers
}

func reached(targets []Target) (public, private bool) {
	for _, t := range targets {
		public, private = public || !t.Private, private || t.Private
	}
	return public, private
}

func keptTargets(private bool) string {
	if private {
		return keptPrivate
	}
	return keptPublic
}

// keepAll returns the label's value for a Service that could not be parsed.
func keepAll(have State) string {
	var names []string
	if public, private := reached(deciding(have.Targets)); public || private {
		names = append(names, keptTargets(private)) // the same as in [Member.asFound]
	}
	for _, k := range (Spec{}).keepables(have) {
		names = append(names, k.name)
	}
	return strings.Join(names, ".")
}
