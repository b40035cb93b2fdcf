package measure

import "github.com/underlay-ccm/underlay/hcloudsim/profile"

// Observation is what was seen of a fact.
type Observation struct {
	Fact FactID
	// Seen is the answer, in the words that [Fact.Assumed] uses where the simulator knows both;
	// empty: there is none, and Why says why.
	Seen string
	// Why there is no answer, or no sure one: for a person, with the remedy if there is one.
	Why string
	// Note is what else was seen, of which the table has no room: quantiles, codes, statuses.
	Note string
	// Record writes the answer into a profile; nil: the simulator has no such switch.
	Record func(*profile.Profile)
}
