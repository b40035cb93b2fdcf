package lb

import (
	"fmt"
	"slices"
	"strings"
)

// A setting is what the Service's annotation says, else what a load balancer that was taken over
// had, else what is configured, else the built-in value. This file is the second layer: somebody
// may have set by hand what differs from the configuration, so it stays until an annotation says
// otherwise.

// LabelKept names the adopted settings, at the load balancer that has them.
const LabelKept = "underlay.dev/kept"

// Words of LabelKept for targets that stay as they are: how those are reached that come later.
const (
	keptPrivate = "private-targets"
	keptPublic  = "public-targets"
)

// keepable is a setting that can be adopted. Their order is that of the label's value.
type keepable struct {
	name      string
	annotated bool
	// differs reports whether the load balancer is not as the layers below say.
	differs bool
	keep    func(*Spec)
	shown   string
}

func (s Spec) keepables(have State) []keepable {
	annotated := s.Takeover.Annotated
	return []keepable{
		{"algorithm", annotated.Algorithm, s.Algorithm != have.Algorithm, func(s *Spec) { s.Algorithm = have.Algorithm }, string(have.Algorithm)},
		{"name", annotated.Name, s.Name != have.Name, func(s *Spec) { s.Name = have.Name }, fmt.Sprintf("%q", have.Name)},
		// Only the lack of one is adopted, where targets are reached without it: a configuration
		// that closes the load balancer to the internet is not for somebody's earlier setting to
		// undo.
		{"public-interface", annotated.Public || !s.Public || !s.UsePrivateIP, s.Public != have.Public, func(s *Spec) {
			s.Public, s.ReverseDNS = false, ReverseDNS{}
		}, "off"},
		{"type", annotated.Type, s.Type != have.Type, func(s *Spec) { s.Type = have.Type }, have.Type},
	}
}

// keep puts the adopted settings over those that are configured or built in.
func (s Spec) keep(have State) (Spec, []Note) {
	if !have.Exists() {
		return s, nil
	}
	remembered, found := strings.Split(have.Labels[LabelKept], "."), !s.Owner.Owns(have.Labels)
	s, shown := s.keepTargets(have, remembered, found) // the public interface follows from it
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

// keepTargets leaves each target to be reached as it is: at another address it would be out of
// service until it is found healthy there. What comes is reached as all servers that are there, or
// as all addresses where there is no server; where these differ or there are none, as was
// remembered.
func (s Spec) keepTargets(have State, remembered []string, found bool) (Spec, []string) {
	wasPrivate, wasPublic := slices.Contains(remembered, keptPrivate), slices.Contains(remembered, keptPublic)
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
	case !s.Public, way && s.Network == 0 && have.Network == 0: // so they cannot be reached
		return s, nil
	}
	s.UsePrivateIP, s.Targets, s.Kept = way, targets, append(s.Kept, keptTargets(way))
	if !differs {
		return s, nil
	}
	return s, []string{shown + " (" + annotationPrivateIP + ")"}
}

// deciding are the targets that say how nodes are reached that come: servers, which are reached
// either way. A dedicated server may have had no choice.
func deciding(targets []Target) []Target {
	nodes := slices.DeleteFunc(slices.Clone(targets), Target.Pod)
	servers := slices.DeleteFunc(slices.Clone(nodes), func(t Target) bool { return t.Address.IsValid() })
	if len(servers) == 0 {
		return nodes
	}
	return servers
}

// reached reports whether any target is reached at its public address, and any at its private one.
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

// keepAll is the label for a Service of which nobody knows what it says.
func keepAll(have State) string {
	var names []string
	if public, private := reached(deciding(have.Targets)); public || private {
		names = append(names, keptTargets(private)) // as [Member.asFound] has it
	}
	for _, k := range (Spec{}).keepables(have) {
		names = append(names, k.name)
	}
	return strings.Join(names, ".")
}
