package doctor

import (
	"cmp"
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
	// concerns reports whether the cluster has what is checked at all; nil: every
	// cluster has. It is asked with the parts that it needs, and no others.
	concerns func(*cluster) bool
	// given are the parts that concerns needs; none: PartConfig.
	given survey.Parts
	// fails is why what was seen leads to nothing that can be checked; nil: it does.
	fails func(*cluster) error
	// find looks. What it could not see although the parts are there is among the
	// findings, see unseen.
	find func(x *cluster) []Finding
}

// checks is the table, in the order of the reference.
func checks() []check {
	return slices.Concat(
		managerChecks(), kubeProxyChecks(), conflictChecks(), agentChecks(),
		poolChecks(), ledgerChecks(), nodeChecks(), podCIDRChecks(), routeChecks(), vSwitchChecks(), serviceChecks(), balancerChecks(), addressChecks(),
	)
}

// run makes the check if what it needs was seen.
func (c check) run(x *cluster) []Finding {
	if c.concerns != nil {
		if reason, blind := x.blind(c.first()); blind {
			return c.complete(x, unseen(reason))
		}
		if !c.concerns(x) {
			return nil
		}
	}
	if reason, blind := x.blind(c.needs); blind {
		return c.complete(x, unseen(reason))
	}
	if c.fails != nil {
		if err := c.fails(x); err != nil {
			return c.complete(x, unseen(err.Error()))
		}
	}
	return c.complete(x, c.find(x))
}

// first are the parts that tell whether the check concerns the cluster.
func (c check) first() survey.Parts {
	if c.concerns == nil {
		return 0
	}
	return cmp.Or(c.given, survey.PartConfig)
}

// complete adds to findings what the check says in general.
func (c check) complete(x *cluster, found []Finding) []Finding {
	for i := range found {
		f := &found[i]
		f.Check = c.name
		if f.Severity == "" {
			f.Severity = c.severities[0]
		}
		switch {
		case f.Remedy != "":
		case f.Severity == Info:
			f.Remedy = "give underlayctl what it needs to see it, or check by hand: " + c.looks
		default:
			f.Remedy = c.remedy
		}
		f.Remedy = placed(f.Remedy, x.Namespace)
	}
	return found
}

// unseen is the finding of a check that could not be made.
func unseen(reason string) []Finding {
	return []Finding{{Severity: Info, What: notChecked + reason}}
}

// placed puts the namespace of Underlay's programs into a remedy.
func placed(remedy, namespace string) string { return strings.ReplaceAll(remedy, here, namespace) }

// blind reports whether parts were not seen, and why.
func (x *cluster) blind(parts survey.Parts) (reason string, blind bool) {
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
