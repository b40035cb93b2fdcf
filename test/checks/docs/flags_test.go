package docs

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

const flagsIntro = `# Flags

The output of ` + "`--help`" + ` of every program and each of its commands. The [configuration](configuration.md) describes all other settings, and the meaning for Underlay of flags that it shares with Kubernetes; see also the [environment](environment.md) variables.
`

// abouts are introductions of programs. A program without one has only its help.
func abouts() map[string]string {
	return map[string]string{
		"underlay-ccm":   "The flags and their meaning are those of Kubernetes' cloud controller manager; `--node-cidr-mask-size`, `--node-cidr-mask-size-ipv4`, `--node-cidr-mask-size-ipv6` and `--service-cluster-ip-range` are those of kube-controller-manager. `--external-cloud-volume-plugin` and `--node-sync-period` have no effect.",
		"underlay-agent": "`run` maintains the node's network, `check` shows the changes that `run` would make, `cleanup` removes everything.",
		"underlayctl":    "It only reads, except for one command: `connectivity` starts pods, in a dedicated namespace. Installed as `kubectl-underlay` in the path it is a plugin of kubectl.",
		"hcloud-sim":     "How to use it: [hcloud-sim](../how-to/hcloud-sim.md).",
	}
}

// TestDocumentFlags keeps docs/reference/flags.md equal to the programs' help.
func TestDocumentFlags(t *testing.T) {
	var b strings.Builder
	b.WriteString(generated("the programs' help") + flagsIntro)
	folder := t.TempDir()
	if err := cluster.BuildAll(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	programs, err := os.ReadDir(filepath.Join(root, "cmd"))
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range programs {
		b.WriteString("\n## " + program.Name() + "\n\n" + abouts()[program.Name()] + "\n")
		writeHelp(&b, t, filepath.Join(folder, program.Name()))
	}
	comparePage(t, "reference/flags.md", b.String())
}

var (
	// gate is a line of a list that is too long to be useful here.
	gate       = regexp.MustCompile(`(?m)^ +(kube:)?\w+=true\|false \(.*\n`)
	commandsOn = regexp.MustCompile(`(?s)\nAvailable Commands:\n(.*?)\n\n`)
	listed     = regexp.MustCompile(`(?m)^  ([a-z][a-z0-9-]*) `)
)

// writeHelp writes the help of a program or of one of its commands, and of those below it. It is
// independent of this machine's environment.
func writeHelp(b *strings.Builder, t *testing.T, program string, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, append(slices.Clone(command), "--help")...)
	cmd.Env = []string{"HOME=/home/you"}
	var diagnostics bytes.Buffer
	cmd.Stderr = &diagnostics
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, &diagnostics)
	}
	help := gate.ReplaceAllString(string(out), "")
	b.WriteString("\n```text\n" + strings.TrimSpace(help) + "\n```\n")
	list := commandsOn.FindStringSubmatch(help)
	if list == nil {
		return
	}
	for _, sub := range listed.FindAllStringSubmatch(list[1], -1) {
		if sub[1] == "completion" || sub[1] == "help" {
			continue
		}
		below := append(slices.Clone(command), sub[1])
		b.WriteString("\n### " + filepath.Base(program) + " " + strings.Join(below, " ") + "\n")
		writeHelp(b, t, program, below...)
	}
}

// read by libraries, and not by our code
var libraries = strings.Fields("KUBERNETES_SERVICE_HOST KUBERNETES_SERVICE_PORT KUBECONFIG HTTPS_PROXY NO_PROXY GOMAXPROCS GOMEMLIMIT")

// TestVariables compares the page of variables, and that of the configuration, which has those of
// the cloud and of Robot, with the code, both ways.
func TestVariables(t *testing.T) {
	configuration := readTree(t, "docs/reference/configuration.md")
	listed := slices.Clone(libraries)
	for _, line := range strings.Split(readTree(t, "docs/reference/environment.md"), "\n") {
		cells := strings.Split(line, " | ")
		for _, m := range regexp.MustCompile("`([A-Z_]+)`").FindAllStringSubmatch(cells[0], -1) {
			if len(cells) == 3 {
				listed = append(listed, m[1])
			}
		}
	}
	read := facts(t).variables
	for name := range read {
		if strings.HasPrefix(name, "HCLOUD_") && !strings.Contains(configuration, "`"+name+"`") {
			t.Errorf("variable %s is not in docs/reference/configuration.md", name)
		} else if name != "" && !strings.HasPrefix(name, "HCLOUD_") && !slices.Contains(listed, name) {
			t.Errorf("variable %s is not in docs/reference/environment.md", name)
		}
	}
	for _, name := range listed {
		if !read[name] && !slices.Contains(libraries, name) {
			t.Errorf("variable %s is in docs/reference/environment.md, and nobody reads it", name)
		}
	}
	if len(read) < 8 || len(listed) < 12 {
		t.Errorf("only %v are read, and %v are on the page", read, listed)
	}
}
