package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

const flagsIntro = `# Flags

Every flag of every program, as its ` + "`--help`" + ` shows it. What isn't said by a flag stands in the [configuration](configuration.md), which also explains what the flags mean to Underlay that both it and Kubernetes know; what comes from variables: [environment](environment.md).
`

// abouts are what is said about a program. One that isn't here has only its
// flags.
func abouts() map[string]string {
	return map[string]string{
		"underlay-ccm":   "Flags are those of Kubernetes' cloud controller manager and mean what they mean there; `--node-cidr-mask-size`, `--node-cidr-mask-size-ipv4`, `--node-cidr-mask-size-ipv6` and `--service-cluster-ip-range` are those of kube-controller-manager. `--external-cloud-volume-plugin` and `--node-sync-period` have no effect.",
		"underlay-agent": "`run` keeps the node's network as it should be, `check` shows what `run` would do, `cleanup` takes everything away again.",
		"underlayctl":    "It reads and never writes, but for one command: `connectivity` starts pods, in a namespace of its own. As `kubectl-underlay` in the path it is a plugin of kubectl.",
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
	for _, program := range programs(t) {
		b.WriteString("\n## " + program + "\n")
		if about := abouts()[program]; about != "" {
			b.WriteString("\n" + about + "\n")
		}
		binary := filepath.Join(folder, program)
		top := helpOf(t, binary)
		writeFlags(&b, top)
		writeSubcommands(&b, t, binary, nil, top)
	}
	comparePage(t, "reference/flags.md", b.String())
}

// writeSubcommands writes those of a command, and theirs.
func writeSubcommands(b *strings.Builder, t *testing.T, binary string, above []string, h help) {
	for _, sub := range h.subcommands {
		command := append(slices.Clone(above), sub[0])
		program := filepath.Base(binary)
		b.WriteString("\n### " + program + " " + strings.Join(command, " ") + "\n\n" + strings.TrimSuffix(sub[1], ".") + ".\n")
		own := helpOf(t, binary, command...)
		if !writeFlags(b, own) {
			b.WriteString("\nIt has the flags of `" + program + "` and no others.\n")
		}
		writeSubcommands(b, t, binary, command, own)
	}
}

// writeFlags leaves out what every subcommand repeats, and says whether there is
// anything else.
func writeFlags(b *strings.Builder, h help) (any bool) {
	for _, s := range h.sections {
		flags := slices.DeleteFunc(slices.Clone(s.flags), func(f flagRow) bool { return f.name == "--help" })
		if s.title == "Global Flags" || len(flags) == 0 {
			continue
		}
		any = true
		if s.title != "Flags" {
			b.WriteString("\n" + s.title + ":\n")
		}
		b.WriteString("\n| flag | value | default | meaning |\n|---|---|---|---|\n")
		for _, f := range flags {
			b.WriteString(row(code(f.name), f.kind, code(f.fallback), angle(f.meaning)))
		}
	}
	return any
}

// angle keeps what stands in angle brackets from being taken for HTML.
func angle(text string) string {
	return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(text)
}

// variable is one of the environment.
type variable struct{ name, program, meaning string }

// variables are those that programs read beside HCLOUD_* and ROBOT_*, which the
// configuration has.
func variables() []variable {
	return []variable{
		{"NODE_NAME", "underlay-agent", "The name of the machine's Node, if `--node-name` isn't given. The manifest sets it to the pod's node."},
		{"GOGC", "underlay-agent", "How much the heap may grow, in percent, before it is collected; 40 if it isn't set. Go's runtime reads it."},
		{"NO_COLOR", "underlayctl", "If it is set, nothing is colored."},
		{"TERM", "underlayctl", "If it is `dumb`, nothing is colored."},
	}
}

// libraries are variables that libraries read for the programs.
func libraries() []variable {
	return []variable{
		{"KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT", "underlay-ccm, underlay-agent", "Where the API server is, for a pod without a kubeconfig. The manifest of `underlay-ccm` sets them to the node's own, because the ClusterIP may depend on it; the agent has `--api-server`."},
		{"KUBECONFIG", "underlayctl", "The kubeconfig, if `--kubeconfig` isn't given."},
		{"HTTPS_PROXY, NO_PROXY", "underlay-ccm", "The proxy to the cloud's API."},
		{"GOMAXPROCS, GOMEMLIMIT", "all", "Go's runtime: threads at work, memory to aim at."},
	}
}

const environmentIntro = `# Environment variables

An empty variable counts as absent. Settings of ` + "`underlay-ccm`" + ` that begin with ` + "`HCLOUD_`" + ` or ` + "`ROBOT_`" + `, the secrets among them, are in the [configuration](configuration.md#the-file), with the keys that outrank them. Others of these have no effect, and ` + "`" + `underlay-ccm` + "`" + ` [warns of them](configuration.md#variables-without-effect).

| variable | program | meaning |
|---|---|---|
`

// TestDocumentEnvironment keeps docs/reference/environment.md equal to the tables.
func TestDocumentEnvironment(t *testing.T) {
	var b strings.Builder
	b.WriteString(generated("the tables in test/checks/docs, which are compared with the code,") + environmentIntro)
	for _, v := range append(variables(), libraries()...) {
		b.WriteString(row(code(strings.ReplaceAll(v.name, ", ", "`, `")), v.program, v.meaning))
	}
	comparePage(t, "reference/environment.md", b.String())
}

// TestVariables compares the tables with the code, both ways.
func TestVariables(t *testing.T) {
	configuration, err := os.ReadFile(filepath.Join(root, "docs/reference/configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	read := regexp.MustCompile(`\b(?i:getenv|lookupenv)\("([^"]*)"\)`)
	cloud := regexp.MustCompile(`"(HCLOUD_[A-Z0-9_]+)"`)
	found := map[string]bool{}
	clouds := 0
	for _, f := range sources(t) {
		for _, m := range read.FindAllSubmatch(f.content, -1) {
			name := string(m[1])
			found[name] = true
			if cloud.MatchString(`"` + name + `"`) {
				continue
			}
			if !slices.ContainsFunc(variables(), func(v variable) bool { return v.name == name }) {
				t.Errorf("%s reads the variable %s, which is in no table of test/checks/docs", f.path, name)
			}
		}
		for _, m := range cloud.FindAllSubmatch(f.content, -1) {
			clouds++
			if !strings.Contains(string(configuration), "`"+string(m[1])+"`") {
				t.Errorf("%s: variable %s is not in docs/reference/configuration.md", f.path, m[1])
			}
		}
	}
	if clouds == 0 {
		t.Error("no variable HCLOUD_* was found in the code, so the pattern is wrong")
	}
	for _, v := range variables() {
		if !found[v.name] {
			t.Errorf("variable %s is in the table, and nobody reads it", v.name)
		}
	}
}
