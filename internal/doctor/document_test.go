package doctor

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/survey"
)

var update = flag.Bool("update", false, "write the generated columns of the document instead of comparing them")

const documentPath = "../../docs/reference/doctor.md"

// row matches a row of the document's table: the object of a check and its severities are written
// there, all else is the check's.
var row = regexp.MustCompile("(?m)^\\| <a id=\"([a-z0-9-]+)\"></a>`[^`]*` \\| ([^|]+) \\| ([a-z, ]+) \\| .*\n")

// written are the severities of each check in the document.
func written(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		out[m[1]] = m[3]
	}
	return out
}

// TestDocument keeps the rows of docs/reference/doctor.md equal to the checks. To update the
// generated cells: go test ./internal/doctor -run TestDocument -update.
func TestDocument(t *testing.T) {
	got, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for _, m := range row.FindAllStringSubmatch(string(got), -1) {
		rows[m[1]] = m
	}
	intro, _, _ := strings.Cut(string(got), "| <a ")
	var want strings.Builder
	want.WriteString(intro)
	for _, c := range checks() {
		m := rows[c.name]
		if m == nil {
			m = []string{"", c.name, "To be written.", string(c.severity)}
		}
		if m[2] == "To be written." || !strings.HasPrefix(m[3], string(c.severity)) {
			t.Errorf("write into the row of %s what it looks at, and its severities, the usual one first", c.name)
		}
		var needs []string
		for p := survey.Part(1); p <= survey.PartLoadBalancers; p <<= 1 {
			if (c.needs|c.first())&p != 0 {
				needs = append(needs, p.String())
			}
		}
		remedy := cell(placed(c.remedy, "kube-system"))
		fmt.Fprintf(&want, "| <a id=%q></a>`%s` | %s | %s | %s | %s |\n", c.name, c.name, m[2], m[3], remedy, strings.Join(needs, ", "))
	}
	if *update {
		if err := os.WriteFile(documentPath, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(got) != want.String() {
		t.Error("the document differs from the checks; run: go test ./internal/doctor -run TestDocument -update")
	}
}

// Users filter by names, so they are unique and of one form, and each row has all texts of its
// findings.
func TestTable(t *testing.T) {
	form := regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	seen := map[string]bool{}
	for _, c := range checks() {
		if !form.MatchString(c.name) || seen[c.name] {
			t.Errorf("the name %q is of another form, or there twice", c.name)
		}
		seen[c.name] = true
		if c.remedy == "" || c.find == nil || c.severity != Error && c.severity != Warning {
			t.Errorf("check %s is incomplete: %+v", c.name, c)
		}
		if got := c.run(newCluster(&survey.Snapshot{})); c.when != nil &&
			(len(got) != 1 || got[0].Severity != Info) {
			t.Errorf("check %s decides whether it concerns the cluster without having seen anything: %+v", c.name, got)
		}
	}
}

// cell makes a sentence, unless the text begins with a command.
func cell(text string) string {
	if strings.HasPrefix(text, "kubectl ") {
		return text + "."
	}
	return strings.ReplaceAll(strings.ToUpper(text[:1])+text[1:]+".", "|", "\\|")
}
