package config

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated document instead of comparing it")

const (
	documentPath  = "../../docs/reference/configuration.md"
	referencePath = "testdata/reference.yaml"
)

// TestDocument keeps docs/reference/configuration.md equal to the table, except for the column
// "meaning", which is written there. To update it: go test ./internal/config -run TestDocument
// -update.
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
		t.Error("the document differs from the table; run: go test ./internal/config -run TestDocument -update")
	}
}

var example = regexp.MustCompile("(?s)(\n## A complete file\n\n```yaml\n).*(```\n)")

// rendered returns the document with the rows as they are in the table and the reference file.
func rendered(t *testing.T, document string) string {
	t.Helper()
	file, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	unwritten := map[string]setting{}
	for _, s := range documented() {
		unwritten[s.field()] = s
	}
	var b strings.Builder
	for line := range strings.Lines(document) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		s, is := unwritten[strings.Trim(cells[0], "`")]
		meaning := cells[len(cells)-1]
		if !is || !strings.HasPrefix(line, "| `") || len(meaning) == 0 {
			b.WriteString(line)
			continue
		}
		delete(unwritten, s.field())
		columns := []string{code(s.field())}
		if s.key != "" && !strings.Contains(s.key, "[]") {
			columns = append(columns, code(s.env))
		}
		fallback := code(s.fallback)
		if s.fallback == required {
			fallback = required
		}
		columns = append(columns, s.describe, fallback, meaning)
		b.WriteString("| " + strings.Join(columns, " | ") + " |\n")
	}
	for field := range unwritten {
		t.Errorf("%s has no row with a meaning", field)
	}
	return example.ReplaceAllStringFunc(b.String(), func(found string) string {
		parts := example.FindStringSubmatch(found)
		return parts[1] + string(file) + parts[2]
	})
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// TestReferenceFile loads the file that users copy from: it must contain every key, and every
// default in it must be the true one.
func TestReferenceFile(t *testing.T) {
	content, err := os.ReadFile(referencePath)
	if err != nil {
		t.Fatal(err)
	}
	files := fakeFiles{"/etc/underlay/token": tokenText, "/etc/underlay/robot/user": "user", "/etc/underlay/robot/password": tokenText}
	_, warnings, err := Load(ipv4Only(), content, func(string) string { return "" }, files.read)
	if err != nil || len(warnings) > 0 {
		t.Errorf("Load: %v, warnings %v", err, warnings)
	}
	decoded := &loader{values: map[string][]string{}}
	decoded.rows = settings(decoded)
	decoded.loadFile(content)
	if len(decoded.problems) > 0 {
		t.Fatal(decoded.problems)
	}
	for _, row := range documented() {
		value, has := decoded.values[row.key]
		_, name := cutLast(row.key)
		switch {
		case row.key == "":
		case strings.Contains(row.key, "[]"):
			if !strings.Contains(string(content), " "+name+": ") {
				t.Errorf("no item has %s", row.key)
			}
		case !has && !strings.Contains(string(content), "# "+name+":"):
			t.Errorf("%s is missing", row.key)
		case has && row.fallback != "" && row.fallback != required && !slices.Equal(value, []string{row.fallback}):
			t.Errorf("%s is %v, the default is %s", row.key, value, row.fallback)
		}
	}
}

// TestTable checks the rows by themselves.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, row := range documented() {
		for _, name := range []string{row.flag, row.key, row.env} {
			if name != "" && seen[name] {
				t.Errorf("%s is in the table twice", name)
			}
			seen[name] = true
		}
		if row.describe == "" {
			t.Errorf("%s is not described", row.field())
		}
		if row.fallback != "" && row.fallback != required {
			if problems := row.read([]string{row.fallback}); len(problems) > 0 {
				t.Errorf("the default of %s: %v", row.field(), problems[0])
			}
		}
	}
}
