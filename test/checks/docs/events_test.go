package docs

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// told is a row of docs/reference/events.md: a message about an object, by an Event (Normal or
// Warning), by a condition (its type and status), or by both.
type told struct{ reason, event, condition string }

var (
	toldRow      = regexp.MustCompile("^\\| `(\\w+)` \\| (Normal|Warning)? \\| (?:`([^`]+)`)? \\| [^|]+ \\| [^|]+ \\|$")
	conditionRow = regexp.MustCompile("^\\| `([\\w./]+)` \\| (?:Node|Service) \\| [^|]+ \\|$")
)

// eventsPage reads the tables of the page: conditions, then a table for each kind of object. Nodes
// report problems of addresses in an annotation, some of them in no Event and no condition.
func eventsPage(t *testing.T) (conditions []string, all []told) {
	t.Helper()
	sections := strings.Split(readTree(t, "docs/reference/events.md"), "\n## ")
	for i, section := range sections {
		for line := range strings.Lines(section) {
			line = strings.TrimSpace(line)
			if !strings.HasPrefix(line, "| `") {
				continue
			}
			row, condition := toldRow.FindStringSubmatch(line), conditionRow.FindStringSubmatch(line)
			switch {
			case i == 0 && condition != nil:
				conditions = append(conditions, condition[1])
			case i > 0 && row != nil && (row[2]+row[3] != "" || strings.Contains(section, "Reported by")):
				all = append(all, told{row[1], row[2], row[3]})
			default:
				t.Errorf("docs/reference/events.md: this row lacks something: %s", line)
			}
		}
	}
	return conditions, all
}

// TestReasons compares the page with the code, both ways.
func TestReasons(t *testing.T) {
	conditions, rows := eventsPage(t)
	code := facts(t)
	for _, problem := range code.wrong {
		t.Error(problem)
	}
	listed := map[string][]string{} // the types of a reason's Events
	for _, r := range rows {
		listed[r.reason] = append(listed[r.reason], r.event)
		if kind, _, _ := strings.Cut(r.condition, "="); kind != "" && !slices.Contains(conditions, kind) {
			t.Errorf("%s: there is no condition %s", r.reason, kind)
		}
	}
	for reason, uses := range code.reasons {
		if listed[reason] == nil {
			t.Errorf("%s: reason %s is not on docs/reference/events.md: say when it is given and what to do", uses[0].where, reason)
			continue
		}
		for _, u := range uses {
			if u.event != "" && !slices.Contains(listed[reason], u.event) {
				t.Errorf("%s: reason %s is sent as %s, the page says otherwise", u.where, reason, u.event)
			}
		}
	}
	for reason, events := range listed {
		normal := slices.ContainsFunc(code.reasons[reason], func(u use) bool { return u.event == "Normal" })
		if len(code.reasons[reason]) == 0 || slices.Contains(events, "Normal") && !normal {
			t.Errorf("reason %s is on docs/reference/events.md, and nobody gives it, or not as Normal", reason)
		}
	}
	for _, name := range conditions {
		if !code.conditions[name] && strings.Contains(name, "/") {
			t.Errorf("condition %s is on the page, and nobody sets it", name)
		}
	}
	for name := range maps.Keys(code.conditions) {
		if !slices.Contains(conditions, name) {
			t.Errorf("condition %s is not on docs/reference/events.md", name)
		}
	}
	if len(rows) < 80 || len(code.reasons) < 80 {
		t.Errorf("%d rows and %d reasons were found, there are more", len(rows), len(code.reasons))
	}
}
