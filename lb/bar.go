package lb

import (
	"fmt"
	"slices"
	"strings"
)

// Hindrances are the reasons for which no load balancer may be created. One that there is needs no place, and
// has its own answer to the others: see [Spec.Against].
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
	refs := slices.Compact(slices.Sorted(slices.Values(s.Certificates)))
	if len(refs) > limits.Certificates {
		notes = append(notes, Note{
			Grade: Error, Reason: ReasonInvalid, Field: annotationCertificates, Value: strings.Join(refs, ","),
			Text: fmt.Sprintf("%s carries %d certificates and these are %d: set fewer, or a larger %s", s.Type, limits.Certificates, len(refs), AnnotationType),
		})
	}
	return notes
}

// bounded fits the spec to a load balancer that must not, or cannot, come to serve more than it does. A type that
// is too small is not taken; where that does not help, or more may not be served, no port opens and none closes:
// one that closed would take traffic down for the sake of one that may not open.
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
