package policy

import (
	"cmp"
	"fmt"
	"slices"
)

// Selector is a LabelSelector: labels match if they meet every requirement.
type Selector []Requirement

// Requirement is an expression of a LabelSelector. A matchLabel is an In with one value.
type Requirement struct {
	Key      string
	Operator Operator
	Values   []string
}

// Operator is that of a LabelSelectorRequirement. An unknown operator matches nothing.
type Operator string

// The operators of the API.
const (
	In           Operator = "In"
	NotIn        Operator = "NotIn"
	Exists       Operator = "Exists"
	DoesNotExist Operator = "DoesNotExist"
)

// Matches reports whether the selector selects an object with these labels.
func (s Selector) Matches(labels map[string]string) bool {
	for i := range s {
		if !s[i].matches(labels) {
			return false
		}
	}
	return true
}

func (r *Requirement) matches(labels map[string]string) bool {
	value, exists := labels[r.Key]
	switch r.Operator {
	case In:
		return exists && slices.Contains(r.Values, value)
	case NotIn: // also without the label
		return !exists || !slices.Contains(r.Values, value)
	case Exists:
		return exists
	case DoesNotExist:
		return !exists
	}
	return false
}

// canonical returns a text that is equal for selectors with the same requirements.
func (s *Selector) canonical() string {
	if s == nil {
		return "any"
	}
	sorted := make(Selector, len(*s))
	for i, r := range *s {
		r.Values = slices.Compact(slices.Sorted(slices.Values(r.Values)))
		sorted[i] = r
	}
	slices.SortFunc(sorted, func(a, b Requirement) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Operator, b.Operator),
			slices.Compare(a.Values, b.Values))
	})
	return fmt.Sprintf("%q", sorted)
}
