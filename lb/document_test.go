package lb_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/lb"
)

var update = flag.Bool("update", false, "write the generated document instead of comparing it")

const documentPath = "../docs/reference/annotations.md"

// TestDocument keeps docs/reference/annotations.md equal to the table that Parse reads, except for
// ranges that are not listed there, defaults and effects, which are written in the document. To
// update it: go test ./lb -run TestDocument -update.
func TestDocument(t *testing.T) {
	got, err := os.ReadFile(documentPath)
	if err != nil {
		t.Fatal(err)
	}
	want := rendered(t, string(got))
	if *update {
		if err := os.WriteFile(documentPath, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if string(got) != want {
		t.Error("the document differs from the table; run: go test ./lb -run TestDocument -update")
	}
}

var columns = regexp.MustCompile(`(?:[^|\\]|\\.)+`)

func rendered(t *testing.T, document string) string {
	t.Helper()
	rows := make(map[string]lb.Annotation) // by heading and name
	for _, row := range lb.Annotations() {
		for _, prefix := range []string{lb.HetznerPrefix, lb.OwnPrefix} {
			if name, ok := strings.CutPrefix(row.Name, prefix); ok {
				rows[prefix+"…"+name] = row
			}
		}
	}
	for _, row := range lb.PortOptions() {
		rows["Options of a port"+row.Option] = row
	}
	var b strings.Builder
	heading := ""
	for line := range strings.Lines(document) {
		if text, ok := strings.CutPrefix(line, "## "); ok {
			heading = strings.Trim(text, "`\n")
		}
		cells := columns.FindAllString(strings.TrimSpace(line), -1)
		if !strings.HasPrefix(line, "| `") {
			b.WriteString(line)
			continue
		}
		name := strings.Trim(cells[0], " `")
		row, ok := rows[heading+name]
		if !ok {
			t.Errorf("below %q: no annotation or option has the name %q", heading, name)
			continue
		}
		delete(rows, heading+name)
		if heading == "Options of a port" {
			_, of, _ := strings.Cut(row.Name, "/")
			fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", name, row.Type, of)
			continue
		}
		if len(cells) != 5 || strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[4]) == "" {
			t.Errorf("%s is not explained: %q", row.Name, cells)
			continue
		}
		if row.Range != "" {
			cells[2] = " " + row.Range + " "
		}
		fmt.Fprintf(&b, "| `%s` | %s |%s|%s|%s|\n", name, row.Type, cells[2], cells[3], cells[4])
	}
	for name := range rows {
		t.Errorf("%s has no row", name)
	}
	return b.String()
}
