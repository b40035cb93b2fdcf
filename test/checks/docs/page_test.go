package docs

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the generated documents instead of comparing them")

// root is the path of the module's folder.
const root = "../../.."

// generated is the first line of a page that is written by a test of this package.
func generated(from string) string {
	return "<!-- Generated from " + from + ` by "go test ./test/checks/docs -run TestDocument -update". Do not edit. -->` + "\n\n"
}

// comparePage fails if a page below docs differs from the code, or writes it.
func comparePage(t *testing.T, page, want string) {
	t.Helper()
	path := filepath.Join(root, "docs", page)
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; write it: go test ./test/checks/docs -run TestDocument -update", err)
	}
	if string(got) == want {
		return
	}
	t.Errorf("docs/%s differs from the code; write it anew and see git diff: go test ./test/checks/docs -run TestDocument -update", page)
}

// row is a line of a table. A bar in a cell would end it.
func row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(c, "|", `\|`), "\n", " ")
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// readTree returns a file of the tree.
func readTree(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
