// Package doctor diagnoses a cluster: it runs a list of checks over a survey.Snapshot and
// returns findings with remedies. It is pure, without requests and without a clock.
//
// Where a controller decides the same question, doctor calls the controller's code
// (routes.Decide, routes.Check, ipam.Ledger, cloud.Gateways), so that they never disagree.
//
// It must never treat an unread part as healthy: a check that lacks a part of the Snapshot
// reports that once, with the reason. And it must report nothing about a healthy cluster: a
// check that can't distinguish a problem from a transient state waits until the state is old.
//
// Sources: kubeadm's manifests, the defaults of kube-proxy v1.37 (cmd/kube-proxy/app), and the
// conditions, Events and objects that Underlay's programs write to the API server.
package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

// Severity is the urgency of a Finding.
type Severity string

// The severities, the worst first.
const (
	// Error: something doesn't work, or is about to break other things.
	Error Severity = "error"
	// Warning: it works, but not for long or not in every case.
	Warning Severity = "warning"
	// Info: something could not be checked.
	Info Severity = "info"
)

// rank is 0 for the worst.
func (s Severity) rank() int { return slices.Index([]Severity{Error, Warning, Info}, s) }

// Finding is a problem, or a check that could not be run.
type Finding struct {
	// Check is the stable name of the check, in words joined by dashes.
	Check    string   `json:"check"`
	Severity Severity `json:"severity"`
	// Object is such as "Node/worker-1" or "Service/shop/web"; empty for the whole cluster.
	Object string `json:"object,omitempty"`
	// What describes the problem, with the values.
	What string `json:"what"`
	// Remedy is the action to take, with the command or the configuration key.
	Remedy string `json:"remedy"`
}

// notChecked begins the findings of checks that could not be run.
const notChecked = "not checked: "

// Examine runs every check. The findings are sorted by severity, then check, then object.
// Without findings, everything was checked and is healthy.
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

// Checks returns the number of checks that Examine runs.
func Checks() int { return len(checks()) }

// Worst returns the worst severity among findings, empty without findings.
func Worst(findings []Finding) Severity {
	var worst Severity
	for _, f := range findings {
		if worst == "" || f.Severity.rank() < worst.rank() {
			worst = f.Severity
		}
	}
	return worst
}

// Diagnosis is the output of doctor.
type Diagnosis struct {
	Findings []Finding `json:"findings"`
	NotSeen  []string  `json:"notSeen,omitempty"`
}

// Diagnose runs Examine on a Snapshot.
func Diagnose(s *survey.Snapshot) Diagnosis {
	return Diagnosis{Findings: append([]Finding{}, Examine(s)...), NotSeen: s.NotSeen()}
}

// Page shows each remedy below its finding, or beside it in a wide table.
func (d Diagnosis) Page() table.Page {
	t := table.New("findings", "", "SEVERITY", "CHECK", "OBJECT", "FOUND", "+REMEDY")
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
		out.Lines = []string{"No problem was found in the parts that could be read."}
	default:
		out.Lines = []string{fmt.Sprintf("Nothing is wrong: all %d checks pass.", Checks())}
	}
	return out
}

// grouped merges checks that could not be run for the same reason, at the place of the first.
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
			f.Remedy = "give underlayctl the access that it needs; " +
				"-o json names each check, and how to make it by hand"
		}
		out = append(out, f)
	}
	return out
}

// shown limits the names that few lists.
const shown = 3

func few(all []string) string {
	if len(all) <= shown {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:shown], ", "), len(all)-shown)
}

// about returns a finding to which the check's severity and remedy apply.
func about(object, format string, values ...any) Finding {
	return Finding{Object: object, What: fmt.Sprintf(format, values...)}
}
