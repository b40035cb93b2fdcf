package survey

import (
	"fmt"
	"slices"
)

// NotSeen says for people, in one line for each reason, what stayed unseen. That
// there is no cloud keeps nobody from seeing it.
func (s *Snapshot) NotSeen() []string {
	var reasons []string
	parts := map[string]Parts{}
	for _, g := range s.Gaps {
		if g.Reason == noCloud {
			continue
		}
		if !slices.Contains(reasons, g.Reason) {
			reasons = append(reasons, g.Reason)
		}
		parts[g.Reason] |= g.Part
	}
	out := make([]string, len(reasons))
	for i, reason := range reasons {
		out[i] = parts[reason].String() + ": " + reason
	}
	return out
}

// Require is an error that names what of the parts was not seen and why, nil if
// all were. One reason is enough: the others mostly follow from it.
func (s *Snapshot) Require(parts Parts) error {
	for _, g := range s.Gaps {
		if g.Part&parts != 0 {
			return fmt.Errorf("%s can't be seen: %s", g.Part, g.Reason)
		}
	}
	if !s.Saw(parts) {
		return fmt.Errorf("nobody looked at: %s", parts&^s.Parts)
	}
	return nil
}
