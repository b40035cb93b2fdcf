package docs

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/docs/markdown"
)

// documents reads every Markdown file of the tree.
func documents(t *testing.T) map[string]markdown.Document {
	t.Helper()
	found, err := markdown.ReadTree(root)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// broken returns the problem of a link; empty: none.
func broken(from markdown.Document, target string, all map[string]markdown.Document) string {
	file, anchor, _ := strings.Cut(target, "#")
	to := from.Path
	if file != "" {
		if strings.HasPrefix(file, "/") {
			return "begins with a slash, and leads elsewhere in each place that shows it"
		}
		to = path.Join(path.Dir(from.Path), file)
		if !inTree(to) {
			return "leads to " + to + ", which is not there"
		}
	}
	if anchor == "" {
		return ""
	}
	if d, is := all[to]; !is || !d.Anchors()[anchor] {
		return to + " has no headline for #" + anchor
	}
	return ""
}

func inTree(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

// ours match whole URLs of files of this tree, which are for readers elsewhere.
var ours = regexp.MustCompile(`https://(?:raw\.githubusercontent\.com/underlay-ccm/underlay|github\.com/underlay-ccm/underlay/blob)/main/([^#)"\s]+)`)

func TestLinks(t *testing.T) {
	all := documents(t)
	checked := 0
	for _, d := range append(slices.Collect(maps.Values(all)), markdown.Read("deploy/chart/Chart.yaml", readTree(t, "deploy/chart/Chart.yaml"))) {
		for _, target := range ours.FindAllStringSubmatch(d.Prose, -1) {
			if !inTree(target[1]) {
				t.Errorf("%s: %s leads nowhere", d.Path, target[0])
			}
		}
		for _, target := range d.Links() {
			checked++
			if problem := broken(d, target, all); problem != "" {
				t.Errorf("%s: the link %s %s", d.Path, target, problem)
			}
		}
	}
	if checked < 50 {
		t.Errorf("%d links were found, there are more", checked)
	}
	// Artifact Hub shows it, where relative links have no base.
	if chart := all["deploy/chart/README.md"]; len(chart.Links()) > 0 || len(ours.FindAllString(chart.Prose, -1)) < 6 {
		t.Errorf("%s has the links %q, want whole URLs", chart.Path, chart.Links())
	}
}

// TestEveryPageIsReached: each page is linked, directly or indirectly, from the README.
func TestEveryPageIsReached(t *testing.T) {
	all := documents(t)
	reached := map[string]bool{}
	queue := []string{"README.md"}
	for len(queue) > 0 {
		name := queue[0]
		queue = queue[1:]
		d, is := all[name]
		if reached[name] || !is {
			continue
		}
		reached[name] = true
		for _, target := range d.Links() {
			file, _, _ := strings.Cut(target, "#")
			to := path.Join(path.Dir(name), file)
			// A folder shows its README.
			queue = append(queue, to, path.Join(to, "README.md"))
		}
	}
	for name := range all {
		if !reached[name] && strings.HasPrefix(name, "docs/") {
			t.Errorf("no way leads from README.md to %s: link it from a page on the same subject", name)
		}
	}
}
