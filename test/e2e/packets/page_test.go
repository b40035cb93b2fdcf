//go:build linux

package packets

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// commands are the lines of a page's blocks of code.
type commands struct {
	page  string
	lines []string
}

func page(t *testing.T, name string) commands {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "how-to", name))
	if err != nil {
		t.Fatal(err)
	}
	c := commands{page: name}
	inside := false
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if inside {
			c.lines = append(c.lines, line)
		}
	}
	return c
}

// line returns the line with a prefix.
func (c commands) line(t *testing.T, begins string) string {
	t.Helper()
	var found []string
	for _, line := range c.lines {
		if strings.HasPrefix(line, begins) {
			found = append(found, line)
		}
	}
	if len(slices.Compact(found)) != 1 {
		t.Fatalf("%s has %d different commands that begin with %q; this test runs the one", c.page, len(found), begins)
	}
	return found[0]
}

// arguments returns those of a command for a node, as a shell splits them.
func (c commands) arguments(t *testing.T, begins, node string) []string {
	t.Helper()
	line := strings.ReplaceAll(c.line(t, begins), "NODE", node)
	out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s\\0' "+line).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")[1:]
}
