package archtest_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/archtest"
)

// Whoever looks for something finds its folder on the page for contributors: each package has a row,
// or a folder above it has.
func TestContributingSaysWhereThingsAre(t *testing.T) {
	content, err := os.ReadFile(module + "/CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(content), "\n## Where things are\n")
	table, _, _ = strings.Cut(table, "\n## ")
	named := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, name := range regexp.MustCompile("`([^`…]+)`").FindAllStringSubmatch(cells[1], -1) {
			named[name[1]] = true
			if info, err := os.Stat(filepath.Join(module, name[1])); err != nil || !info.IsDir() {
				t.Errorf("CONTRIBUTING.md says where %s is: there is no such folder", name[1])
			}
		}
	}
	packages, err := archtest.LoadPackages(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages {
		folder := strings.TrimPrefix(p.Path, "github.com/underlay-ccm/underlay/")
		above := folder
		for above != "." && !named[above] {
			above = path.Dir(above)
		}
		if above == "." {
			t.Errorf(`CONTRIBUTING.md, "Where things are", has no row for %s`, folder)
		}
	}
}
