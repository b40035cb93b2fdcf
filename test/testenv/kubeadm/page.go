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

// Tutorial is the page about the installation of a first cluster.
const Tutorial = "docs/tutorial/first-cluster.md"

// Page holds the commands and blocks of a document.
type Page struct {
	name     string
	commands []string
	blocks   []markdown.Block
	used     int
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
	document := markdown.Read(name, string(content))
	p := &Page{name: name, blocks: document.Blocks}
	for _, place := range document.Commands() {
		commands, err := markdown.Whole(ctx, place)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.commands = append(p.commands, commands...)
	}
	return p, nil
}

// Command returns the page's first command with a prefix, in which each text is replaced by the
// next, as readers replace names by their own.
func (p *Page) Command(begins string, instead ...string) (string, error) {
	for _, command := range p.commands {
		if strings.HasPrefix(command, begins) {
			p.used++
			return strings.NewReplacer(instead...).Replace(command), nil
		}
	}
	return "", fmt.Errorf("%s tells nobody to type a command that begins with %q, only\n%s", p.name, begins, strings.Join(p.commands, "\n"))
}

// Block returns the page's first block of a language, in which each text is replaced by the next.
func (p *Page) Block(language string, instead ...string) (string, error) {
	for _, b := range p.blocks {
		if b.Language == language {
			return strings.NewReplacer(instead...).Replace(b.Content), nil
		}
	}
	return "", fmt.Errorf("%s has no block of %s", p.name, language)
}

// Used counts the commands used so far, for the figure that the page states.
func (p *Page) Used() int { return p.used }
