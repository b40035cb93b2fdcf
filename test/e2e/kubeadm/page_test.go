//go:build linux

package kubeadm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/docs/markdown"
)

// page is what a document tells its readers to type.
type page struct {
	name  string
	lines []string
	// used counts the commands that were run, for the figure that the page may state.
	used int
}

func readPage(t *testing.T, name string) *page {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(tree, name))
	if err != nil {
		t.Fatal(err)
	}
	p := &page{name: name}
	for _, place := range markdown.Read(name, string(content)).Commands() {
		p.lines = append(p.lines, place...)
	}
	return p
}

// command is the first of the page's commands that begins so, with what readers put in the place
// of other words.
func (p *page) command(t *testing.T, begins string, instead ...string) string {
	t.Helper()
	for _, line := range p.lines {
		if strings.HasPrefix(line, begins) {
			p.used++
			return strings.NewReplacer(instead...).Replace(line)
		}
	}
	t.Fatalf("%s tells nobody to type a command that begins with %q:\n%s", p.name, begins, strings.Join(p.lines, "\n"))
	return ""
}

// edited is a file of deploy with each text replaced by the next, as its marks EDIT ask for.
func edited(t *testing.T, name string, instead ...string) string {
	t.Helper()
	text, err := replaced(name, instead...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
