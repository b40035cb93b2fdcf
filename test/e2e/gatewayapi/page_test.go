package gatewayapi_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/checks/docs/markdown"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubebinary"
)

// root is the path of the module's folder.
const root = "../../.."

// page is the document that the test follows, command by command, as a reader would.
type page struct {
	t        *testing.T
	text     string
	commands []string // not executed yet
	dir      string   // contains the files of the page's blocks
	env      []string
	instead  *strings.Replacer
}

// openPage reads a page and writes the files that its blocks name in their first line. Texts of its
// commands are replaced by pairs.
func openPage(t *testing.T, plane *controlplane.ControlPlane, name string, pairs ...string) *page {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	kubectl, err := kubebinary.Path(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t, text: string(content), dir: t.TempDir(), instead: strings.NewReplacer(pairs...)}
	if err := os.Symlink(kubectl, filepath.Join(p.dir, "kubectl")); err != nil {
		t.Fatal(err)
	}
	p.env = []string{
		"PATH=" + p.dir, "HOME=" + p.dir, "KUBECONFIG=" + plane.AdminKubeconfig(),
		"KUBECACHEDIR=" + filepath.Join(p.dir, "cache"),
	}
	document := markdown.Read(name, string(content))
	for _, b := range document.Blocks {
		first, _, _ := strings.Cut(b.Content, "\n")
		if file, is := strings.CutPrefix(first, "# "); is && b.Language == "yaml" {
			if err := os.WriteFile(filepath.Join(p.dir, file), []byte(b.Content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, lines := range document.Commands() {
		commands, err := markdown.Whole(t.Context(), lines)
		if err != nil {
			t.Fatal(err)
		}
		p.commands = append(p.commands, commands...)
	}
	return p
}

// skip takes the next of the page's commands, which must have the prefix.
func (p *page) skip(begins string) (command string) {
	p.t.Helper()
	if len(p.commands) == 0 {
		p.t.Fatalf("the page has no further command, want one that begins with %q", begins)
	}
	command = p.commands[0]
	if !strings.HasPrefix(command, begins) {
		p.t.Fatalf("the next command of the page is\n%s\nwant one that begins with %q", command, begins)
	}
	p.commands = p.commands[1:]
	return command
}

// follow runs the next of the page's commands, which must have the prefix, and returns its output.
func (p *page) follow(begins string) string {
	p.t.Helper()
	command := p.skip(begins)
	shell := exec.CommandContext(p.t.Context(), "/bin/bash", "-c", p.instead.Replace(command))
	shell.Dir, shell.Env = p.dir, p.env
	out, err := shell.CombinedOutput()
	p.t.Logf("$ %s\n%s", command, out)
	if err != nil {
		p.t.Fatalf("%s: %v", command, err)
	}
	return string(out)
}

// names checks that the page contains a text that the test used.
func (p *page) names(what string) {
	p.t.Helper()
	if !strings.Contains(p.text, what) {
		p.t.Errorf("the page doesn't say %q, which is what it is tested with", what)
	}
}

// end checks that no command of the page was left out.
func (p *page) end() {
	p.t.Helper()
	if len(p.commands) > 0 {
		p.t.Errorf("commands of the page that were not run:\n%s", strings.Join(p.commands, "\n"))
	}
}
