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
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
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

// Diagnosis is what doctor found, and what it could not see.
type Diagnosis struct {
	Findings []Finding `json:"findings"`
	NotSeen  []string  `json:"notSeen,omitempty"`
}

// Diagnose examines a look.
func Diagnose(s *survey.Snapshot) Diagnosis {
	return Diagnosis{Findings: append([]Finding{}, Examine(s)...), NotSeen: s.NotSeen()}
}

// Page has each remedy below its finding, or in a wide table beside it.
func (d Diagnosis) Page() table.Page {
	t := table.New("", "SEVERITY", "CHECK", "OBJECT", "FOUND", "+REMEDY")
	tones := map[Severity]table.Tone{Error: table.Bad, Warning: table.Warn, Info: table.Faint}
	blind := len(d.NotSeen) > 0
	for _, f := range grouped(d.Findings) {
		blind = blind || f.Severity == Info
		remedy := table.OneLine(f.Remedy)
		t.Add(tones[f.Severity].Cell(string(f.Severity)), f.Check, table.OrNone(f.Object),
			table.OneLine(f.What), remedy).About = f.Object
		if remedy != "" {
			t.Add("", "", "", table.Faint.Cell("→ "+remedy), "").Narrow = true
		}
	}
	out := table.Page{Tables: []table.Table{t}, NotSeen: d.NotSeen}
	switch worst := Worst(d.Findings); {
	case worst == Error || worst == Warning:
	case blind:
		out.Lines = []string{"Nothing is wrong with what could be seen."}
	default:
		out.Lines = []string{fmt.Sprintf("Nothing is wrong: all %d checks pass.", Checks())}
	}
	return out
}

// grouped has one row for all checks that were not made for the same cause, at the place of
// the first. A check of its own keeps its own row.
func grouped(all []Finding) (out []Finding) {
	checks := map[string][]string{}
	for _, f := range all {
		if f.Severity == Info {
			checks[f.What] = append(checks[f.What], f.Check)
		}
	}
	for _, f := range all {
		if same := checks[f.What]; f.Severity == Info && len(same) > 1 {
			if f.Check != same[0] {
				continue
			}
			f.Check, f.Object = fmt.Sprintf("%d checks", len(same)), ""
			f.Remedy = "give underlayctl what it needs to see it; " +
				"-o json names each check, and how to make it by hand"
		}
		out = append(out, f)
	}
	return out
}

// shown is how many of a kind a finding names.
const shown = 3

// few names the first of many.
func few(all []string) string {
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

// long is a duration as people say it.
func long(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

// about is a finding about an object, with the check's severity and remedy.
func about(object, format string, values ...any) Finding {
	return Finding{Object: object, What: fmt.Sprintf(format, values...)}
}
