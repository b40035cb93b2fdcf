// Package doctor finds out from one look at a cluster what is wrong with it, and
// says what to do. It is a list of checks over a survey.Snapshot: values in,
// findings out, no requests and no clock.
//
// Where the controllers decide the same at their start or while they run, their
// own code is asked (routes.Decide, routes.Check, ipam.Ledger, cloud.Gateways),
// so that doctor and the controllers never disagree.
//
// It must never take what could not be seen for healthy: a check whose parts of
// the Snapshot are missing says so, once, with the reason. And it must say
// nothing about a healthy cluster: a check that can't tell trouble from a state
// that passes by itself waits until the state is old.
//
// Where its facts come from: kubeadm's manifests and the defaults of kube-proxy
// v1.37 (cmd/kube-proxy/app), and the conditions, Events and objects that
// Underlay's programs leave in the API server.
package doctor

import (
	"cmp"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
)

// Severity says how soon a person should act.
type Severity string

// The severities, worst first.
const (
	// Error: something doesn't work, or is about to harm others.
	Error Severity = "error"
	// Warning: it works, and will not for long, or not in every case.
	Warning Severity = "warning"
	// Info: something could not be looked at.
	Info Severity = "info"
)

// rank is 0 for the worst.
func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Finding is one thing that a person should know.
type Finding struct {
	// Check is the stable name of the check, in words joined by dashes.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Object is what it is about, as in "Node/worker-1" or "Service/shop/web".
	// Empty: the cluster as a whole.
	Object string `json:"object,omitempty"`
	// What was found, with the values.
	What string `json:"what"`
	// Remedy is what to do, with the command or the key.
	Remedy string `json:"remedy"`
}

// notChecked begins the findings about what could not be looked at.
const notChecked = "not checked: "

// Examine runs every check. The findings are sorted by severity, then check, then
// object. None: everything was looked at and is as it should be.
func Examine(s *survey.Snapshot) []Finding {
	x := newCluster(s)
	var all []Finding
	for _, c := range checks() {
		all = append(all, c.run(x)...)
	}
	slices.SortStableFunc(all, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Severity.rank(), b.Severity.rank()),
			strings.Compare(a.Check, b.Check),
			strings.Compare(a.Object, b.Object),
			strings.Compare(a.What, b.What))
	})
	return all
}

// Checks is how many checks Examine runs.
func Checks() int { return len(checks()) }

// Worst is the worst severity among findings; empty for none.
func Worst(findings []Finding) Severity {
	var worst Severity
	for _, f := range findings {
		if worst == "" || f.Severity.rank() < worst.rank() {
			worst = f.Severity
		}
	}
	return worst
}
