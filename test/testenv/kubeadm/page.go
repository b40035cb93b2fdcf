//go:build linux

package kubeadm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/underlay-ccm/underlay/test/checks/docs/markdown"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// Tutorial is the page that tells how to install a first cluster.
const Tutorial = "docs/tutorial/first-cluster.md"

// Page is what a document tells its readers to type.
type Page struct {
	name  string
	lines []string
	used  int
}

// ReadPage reads a document of the source tree.
func ReadPage(ctx context.Context, name string) (*Page, error) {
	deploy, err := cluster.Manifests(ctx)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(filepath.Dir(deploy), name))
	if err != nil {
		return nil, err
	}
	p := &Page{name: name}
	for _, place := range markdown.Read(name, string(content)).Commands() {
		p.lines = append(p.lines, place...)
	}
	return p, nil
}

// Command is the first of the page's commands that begins so, in which each text is replaced by the
// next, as readers put names of their own in the place of others.
func (p *Page) Command(begins string, instead ...string) (string, error) {
	for _, line := range p.lines {
		if strings.HasPrefix(line, begins) {
			p.used++
			return strings.NewReplacer(instead...).Replace(line), nil
		}
	}
	return "", fmt.Errorf("%s tells nobody to type a command that begins with %q, only\n%s", p.name, begins, strings.Join(p.lines, "\n"))
}

// Used is how many commands were taken so far, for the figure that the page states.
func (p *Page) Used() int { return p.used }
