package archtest_test

import (
	"flag"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/archtest"
)

// module is the path of the module's folder.
const module = "../../.."

func packages(t *testing.T) []archtest.Package {
	t.Helper()
	found, err := archtest.LoadPackages(t.Context(), module)
	if err != nil || len(found) < 50 {
		t.Fatalf("only %d packages found: %v", len(found), err)
	}
	return found
}

// read returns a file of the tree.
func read(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(module, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestPackages(t *testing.T) {
	for name, check := range map[string]func([]archtest.Package) []string{
		"imports": archtest.CheckImports,
		"names":   archtest.CheckNames,
		"docs":    archtest.CheckDocs,
	} {
		t.Run(name, func(t *testing.T) {
			for _, violation := range check(packages(t)) {
				t.Error(violation)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	files, err := archtest.LoadFiles(module)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("only %d files found: the checks would pass for want of anything to check", len(files))
	}
	violations, err := archtest.CheckFiles(files)
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range violations {
		t.Error(violation)
	}
}

// The page for contributors shows where to find things: each package has a row, or a folder above
// it has.
func TestContributingListsEveryPackage(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "CONTRIBUTING.md"), "\n## Where things are\n")
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
	for _, p := range packages(t) {
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

var update = flag.Bool("update", false, "write what the page says of imports anew")

const page = "docs/explanation/architecture.md"

// The page's sentences and diagram about imports are generated from the rules and the imports, so
// they can't drift.
func TestDocumentSentences(t *testing.T) {
	found, got := packages(t), read(t, page)
	want := got
	for name, text := range map[string]string{
		"pure": archtest.Deciding(found), "importers": "\n" + archtest.Importers(),
		"picture": "\n" + archtest.Picture(found) + "\n",
	} {
		if want = between(t, want, name, text); !strings.Contains(text, "hcloud") {
			t.Errorf("nothing to say of %s", name)
		}
	}
	if *update {
		if err := os.WriteFile(filepath.Join(module, page), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Error(`docs/explanation/architecture.md does not say what the rules say: run "make generate"`)
	}
}

// The size of each folder is shown as of the last update of the page: exact numbers would make
// every commit change this page. They are at most a tenth off, or 500 lines.
func TestDocumentSizes(t *testing.T) {
	files, err := archtest.LoadFiles(module)
	if err != nil {
		t.Fatal(err)
	}
	got, sizes := read(t, page), archtest.Sizes(files)
	if *update {
		want := between(t, got, "sizes", "\n"+archtest.SizeTable(sizes))
		if err := os.WriteFile(filepath.Join(module, page), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	row := regexp.MustCompile("(?m)^\\| `(.+)` \\| (\\d+) \\| (\\d+) \\|$")
	shown := map[string][]int{}
	for _, cells := range row.FindAllStringSubmatch(got, -1) {
		product, _ := strconv.Atoi(cells[2])
		tests, _ := strconv.Atoi(cells[3])
		shown[cells[1]] = []int{product, tests}
	}
	for _, s := range sizes {
		for i, lines := range []int{s.Product, s.Tests} {
			if was := shown[s.Room]; was == nil || max(was[i]-lines, lines-was[i]) > max(500, lines/10) {
				t.Errorf(`%s has %d and %d lines, and %s has %v: run "make generate"`,
					s.Room, s.Product, s.Tests, page, was)
			}
		}
	}
}

// between puts a text between the marks of a name, which must occur exactly once.
func between(t *testing.T, whole, name, text string) string {
	t.Helper()
	begin, end := "<!-- begin "+name+" -->", "<!-- end "+name+" -->"
	before, rest, found := strings.Cut(whole, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended || strings.Contains(after, begin) {
		t.Fatalf("%s has to have %s and %s once", page, begin, end)
	}
	return before + begin + text + end + after
}

// Templates call methods by name, so the linker keeps every method of every type in a program with
// templates. Among the imports of our programs, gRPC's trace pages use templates, unless a build
// tag leaves them out.
func TestProgramsAreLinkedWithoutTraces(t *testing.T) {
	const tag = "-tags grpcnotrace"
	list := exec.CommandContext(t.Context(), "go", append([]string{"list", "-deps"}, append(strings.Fields(tag), "./cmd/...")...)...)
	list.Dir = module
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range strings.Fields(string(out)) {
		if path == "golang.org/x/net/trace" {
			t.Errorf("a program has %s, 30 MB of methods that nobody calls", path)
		}
	}
	for file, line := range map[string]string{
		"Dockerfile": "go build -trimpath " + tag + " -o /out/",
		"Makefile":   "TAGS := " + tag,
	} {
		if !strings.Contains(read(t, file), line) {
			t.Errorf("%s builds programs without %s", file, tag)
		}
	}
}
