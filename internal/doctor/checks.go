package doctor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// check is a row of the table. What it looks at is written in docs/reference/doctor.md, in the
// row with its name, which a finding about what could not be seen refers to.
type check struct {
	name string
	// severity is that of a finding without one.
	severity Severity
	// when reports whether the cluster has what is checked at all, by its configuration; nil:
	// every cluster has.
	when func(*cluster) bool
	// needs are what has to be seen, and derived, to make the check.
	needs survey.Parts
	// remedy is what to do in general, of a finding that has none of its own.
	remedy string
	// find looks. What it could not see although the parts are there is among the findings,
	// see unseen.
	find func(x *cluster) []Finding
}

func newCheck(
	name string, severity Severity, when func(*cluster) bool, needs survey.Parts,
	remedy string, find func(*cluster) []Finding,
) check {
	return check{name, severity, when, needs, remedy, find}
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
	if reason, blind := x.blind(c.first()); blind {
		return c.complete(x, unseen(reason))
	}
	if c.when != nil && !c.when(x) {
		return nil
	}
	if reason, blind := x.blind(c.needs); blind {
		return c.complete(x, unseen(reason))
	}
	return c.complete(x, c.find(x))
}

// first are the parts by which when decides.
func (c check) first() survey.Parts {
	if c.when == nil {
		return 0
	}
	return survey.PartConfig
}

// complete adds to findings what the check has in general.
func (c check) complete(x *cluster, found []Finding) []Finding {
	for i := range found {
		f := &found[i]
		f.Check, f.Severity = c.name, cmp.Or(f.Severity, c.severity)
		if f.Severity == Info {
			f.Remedy = cmp.Or(f.Remedy, "give underlayctl what it needs to see it, or check by hand: docs/reference/doctor.md#"+c.name)
		}
		f.Remedy = placed(cmp.Or(f.Remedy, c.remedy), x.Namespace)
	}
	return found
}

// unseen is the finding of a check that could not be made.
func unseen(reason string) []Finding {
	return []Finding{{Severity: Info, What: notChecked + reason}}
}

// placed puts the namespace of Underlay's programs into a remedy.
func placed(remedy, namespace string) string { return strings.ReplaceAll(remedy, here, namespace) }

// blind reports whether parts were not seen, or what is derived of them can't be, and why.
func (x *cluster) blind(needs survey.Parts) (reason string, blind bool) {
	derived := needs & (book | routing | proxy)
	parts := needs &^ derived
	if x.Saw(parts) {
		errs := map[survey.Part]error{book: x.bookErr, routing: x.routingErr, proxy: x.proxyErr}
		if err := errs[derived]; err != nil {
			return err.Error(), true
		}
		return "", false
	}
	for _, gap := range x.Gaps {
		if gap.Part&parts != 0 {
			return gap.Reason, true
		}
	}
	missing := parts &^ x.Parts
	return "the " + (missing & -missing).String() + " could not be seen", true
}
