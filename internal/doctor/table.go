package doctor

import (
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// check is a row of the table, of which the reference is made.
type check struct {
	name string
	// looks is what it looks at, and for what; for the reference.
	looks string
	// severities are those that its findings can have, the usual one first. A
	// finding that says none has that.
	severities []Severity
	// remedy is what to do in general; for the reference, and for findings that
	// know nothing better.
	remedy string
	// needs are the parts of the Snapshot without which nothing can be said.
	needs survey.Parts
	// concerns says whether the cluster has what is checked at all; nil: every
	// cluster has. It is asked with the parts that it needs, and no others.
	concerns func(*exam) bool
	// given are the parts that concerns needs.
	given survey.Parts
	// find looks. What it could not see although the parts are there is unseen,
	// one line with the reason; findings may come with it.
	find func(x *exam) (found []Finding, unseen string)
}

// checks is the table, in the order of the reference.
func checks() []check {
	return slices.Concat(
		managerChecks(), kubeProxyChecks(), rivalChecks(), agentChecks(),
		poolChecks(), ledgerChecks(), nodeChecks(), podCIDRChecks(), routeChecks(), serviceChecks(), balancerChecks(),
	)
}

// run makes a check's findings complete, or says why there are none.
func (c check) run(x *exam) []Finding {
	if c.concerns != nil {
		if reason, blind := x.blind(c.given); blind {
			return []Finding{c.unseen(reason)}
		}
		if !c.concerns(x) {
			return nil
		}
	}
	if reason, blind := x.blind(c.needs); blind {
		return []Finding{c.unseen(reason)}
	}
	found, unseen := c.find(x)
	for i := range found {
		f := &found[i]
		f.Check = c.name
		if f.Severity == "" {
			f.Severity = c.severities[0]
		}
		if f.Remedy == "" {
			f.Remedy = c.remedy
		}
		f.Remedy = placed(f.Remedy, x.Namespace)
	}
	if unseen != "" {
		found = append(found, c.unseen(unseen))
	}
	return found
}

// placed puts the namespace of Underlay's programs into a remedy.
func placed(remedy, namespace string) string { return strings.ReplaceAll(remedy, here, namespace) }

func (c check) unseen(reason string) Finding {
	return Finding{
		Check: c.name, Severity: Info, What: notChecked + reason,
		Remedy: "give underlayctl what it needs to see it, or check by hand: " + c.looks,
	}
}

// blind says why parts were not seen.
func (x *exam) blind(parts survey.Parts) (reason string, blind bool) {
	if x.Saw(parts) {
		return "", false
	}
	var reasons []string
	for _, gap := range x.Gaps {
		if gap.Part&parts != 0 && !slices.Contains(reasons, gap.Reason) {
			reasons = append(reasons, gap.Reason)
		}
	}
	for p := survey.Part(1); len(reasons) == 0 && p <= parts; p <<= 1 {
		if p&parts != 0 && !x.Saw(p) {
			reasons = append(reasons, "the "+p.String()+" could not be seen")
		}
	}
	return strings.Join(reasons, "; "), true
}
