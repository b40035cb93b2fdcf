package lb

import (
	"fmt"
	"slices"
	"strings"
)

// LabelKept names the settings of a load balancer that was taken over which nobody says anything about: they
// stay as they are, because somebody may have set them by hand. What is said once is not kept any more.
const LabelKept = "underlay.dev/kept"

// Said tells which settings an annotation decides, or a default that is not the built-in one.
type Said struct{ Name, Type, Algorithm, Public bool }

// keepable is a setting that a takeover leaves as it is. Their order is that of the label's value.
type keepable struct {
	name string
	said bool
	// differs reports whether the load balancer is not as the spec says.
	differs bool
	keep    func(*Spec)
	shown   string
}

func (s Spec) keepables(have State) []keepable {
	said := s.Takeover.Said
	return []keepable{
		{"algorithm", said.Algorithm, s.Algorithm != have.Algorithm, func(s *Spec) { s.Algorithm = have.Algorithm }, string(have.Algorithm)},
		{"name", said.Name, s.Name != have.Name, func(s *Spec) { s.Name = have.Name }, fmt.Sprintf("%q", have.Name)},
		// Without its public interface it could not reach targets at their public addresses.
		{"public-interface", said.Public || !s.UsePrivateIP, s.Public != have.Public, func(s *Spec) {
			if s.Public = have.Public; !s.Public {
				s.IPv4Name, s.IPv6Name = "", ""
			}
		}, "off"},
		{"type", said.Type, s.Type != have.Type, func(s *Spec) { s.Type = have.Type }, have.Type},
	}
}

// keep leaves the settings of a load balancer that was made by others as they were found at the takeover.
func (s Spec) keep(have State) (Spec, []Note) {
	if !have.Exists() {
		return s, nil
	}
	remembered, found := strings.Split(have.Labels[LabelKept], "."), !s.Owner.Owns(have.Labels)
	var shown []string
	for _, k := range s.keepables(have) {
		if k.said || !slices.Contains(remembered, k.name) && (!found || !k.differs) {
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
	return s, []Note{{
		Grade: Warning, Reason: ReasonSettingsKept, Text: fmt.Sprintf("the load balancer was taken over and keeps its %s: set the annotations for them to decide otherwise", strings.Join(shown, ", ")),
	}}
}

// keepAll is the label for a Service of which nobody knows what it says.
func keepAll(have State) string {
	var names []string
	for _, k := range (Spec{}).keepables(have) {
		names = append(names, k.name)
	}
	return strings.Join(names, ".")
}
