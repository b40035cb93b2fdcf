package doctor

import (
	"fmt"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

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
