package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	strictyaml "sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/test/checks/docs/markdown"
)

// others are groups whose types this module doesn't have, or that are decoded by
// somebody else: of their objects only the YAML is looked at.
func others() map[string]string {
	return map[string]string{
		"underlay.dev":              "decoded by the tests of internal/config",
		"kubeadm.k8s.io":            "the types are in the module test/kube",
		"kubelet.config.k8s.io":     "the types are in the module test/kube",
		"kubeproxy.config.k8s.io":   "the types are in the module test/kube",
		"gateway.networking.k8s.io": "an API server decodes them in test/e2e/gatewayapi",
		"projectcontour.io":         "an API server decodes them in test/e2e/gatewayapi",
		"monitoring.coreos.com":     "beside PrometheusRule nobody here has the types",
	}
}

// problemOfYAML says what is wrong with a block: it must be YAML, and an object
// of Kubernetes must be one strictly.
func problemOfYAML(content string) error {
	decoder := yaml.NewDecoder(strings.NewReader(content))
	for {
		var node yaml.Node
		err := decoder.Decode(&node)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		text, err := yaml.Marshal(&node)
		if err != nil {
			return err
		}
		if err := problemOfObject(text); err != nil {
			return err
		}
	}
}

func problemOfObject(text []byte) error {
	var head struct{ APIVersion, Kind string }
	if err := strictyaml.Unmarshal(text, &head); err != nil || head.APIVersion == "" || head.Kind == "" {
		return nil // a part of something, or a list
	}
	group, err := schema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return err
	}
	if group.Group == "monitoring.coreos.com" && head.Kind == "PrometheusRule" {
		return strictyaml.UnmarshalStrict(text, &prometheusRule{})
	}
	if others()[group.Group] != "" {
		return nil
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := strict.Decode(text, nil, nil); err != nil {
		return fmt.Errorf("%s %s: %w", head.APIVersion, head.Kind, err)
	}
	return nil
}

// TestBlocks: what is marked as YAML or JSON can be decoded. That files of
// --cloud-config work is for the tests of internal/config.
func TestBlocks(t *testing.T) {
	for _, d := range documents(t) {
		for _, b := range d.Blocks {
			switch b.Language {
			case "yaml", "yml":
				if err := problemOfYAML(b.Content); err != nil {
					t.Errorf("%s: %v\n%s", d.Path, err, b.Content)
				}
			case "json":
				if !json.Valid([]byte(b.Content)) {
					t.Errorf("%s: this is no JSON:\n%s", d.Path, b.Content)
				}
			}
		}
	}
}

func TestBlocksAreJudged(t *testing.T) {
	const good = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {type: LoadBalancer}\n"
	for content, wrong := range map[string]bool{
		good:                                false,
		good + "---\nroutes: {limit: 50}\n": false,
		"apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nelse: where\n": false,
		strings.Replace(good, "type:", "typ:", 1):                             true,
		good + "---\n" + strings.Replace(good, "Service", "Servant", 1):       true,
		"apiVersion: example.org/v1\nkind: Thing\n":                           true,
		"a: b: c\n": true,
		"apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nspec: {groups: [{rule: []}]}": true,
	} {
		if err := problemOfYAML(content); (err != nil) != wrong {
			t.Errorf("%v\n%s", err, content)
		}
	}
}

// commands is what text may tell readers to run, as far as this tree decides it.
type commands struct {
	targets     map[string]bool            // of make
	flags       map[string]map[string]bool // by program
	subcommands map[string]map[string]bool
	metrics     []metric
	keys        string // the page that has every key of the configuration
}

var (
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	makeCommand  = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*make((?: [A-Z_]+=\S+| [a-z][a-z0-9-]*)*)`)
	treePath     = regexp.MustCompile(`(?:^|[\s=])(?:\./)?((?:deploy|docs|test|cmd|internal|ipam|routes|lb)/[A-Za-z0-9_./-]*)`)
	programFlag  = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z0-9-]*)`)
	placeholders = regexp.MustCompile(`[<>*$…]|\.\.\.`)
	ourMetric    = regexp.MustCompile(`\bunderlay_[a-z_]+[a-z]\b`)
	configKey    = regexp.MustCompile("`((?:routes|families|loadBalancers)\\.[A-Za-z0-9.]+)`")
)

// ourPrograms have their flags on the page of flags.
var ourPrograms = regexp.MustCompile(`(?:^|[\s/])(underlay-ccm|underlay-agent|underlayctl|hcloud-sim|kubectl underlay)((?: .*)?)$`)

// problems says what a line of a command block names that isn't there.
func (c commands) problems(line string) (problems []string) {
	line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
	line, _, _ = strings.Cut(line, " #")
	if m := makeCommand.FindStringSubmatch(line); m != nil {
		for _, word := range strings.Fields(m[1]) {
			if !strings.Contains(word, "=") && !c.targets[word] {
				problems = append(problems, "make has no target "+word)
			}
		}
	}
	for _, m := range treePath.FindAllStringSubmatch(line, -1) {
		name := strings.TrimSuffix(strings.TrimSuffix(m[1], "..."), "/")
		if !placeholders.MatchString(m[1]) && !inTree(name) {
			problems = append(problems, "there is no "+name)
		}
	}
	m := ourPrograms.FindStringSubmatch(line)
	if m == nil || strings.HasPrefix(line, "kubectl ") && m[1] != "kubectl underlay" {
		return problems
	}
	program := strings.Replace(m[1], "kubectl underlay", "underlayctl", 1)
	words := strings.Fields(strings.TrimSuffix(m[2], `\`))
	if known := c.subcommands[program]; len(known) > 0 && len(words) > 0 && !strings.HasPrefix(words[0], "-") {
		if words[0] != "completion" && words[0] != "help" && !known[words[0]] {
			problems = append(problems, program+" has no subcommand "+words[0])
		}
	}
	for _, f := range programFlag.FindAllStringSubmatch(m[2], -1) {
		if f[1] != "--help" && !c.flags[program][f[1]] {
			problems = append(problems, program+" has no flag "+f[1])
		}
	}
	return problems
}

// commandsOf reads what there is from the tree.
func commandsOf(t *testing.T, all map[string]markdown.Document, makefile string) commands {
	t.Helper()
	c := commands{targets: map[string]bool{}, flags: map[string]map[string]bool{}, subcommands: map[string]map[string]bool{}}
	for _, m := range makeTarget.FindAllStringSubmatch(makefile, -1) {
		c.targets[m[1]] = true
	}
	program := ""
	for line := range strings.Lines(all["docs/reference/flags.md"].Prose) {
		line = strings.TrimSpace(line)
		switch words := strings.Fields(line); {
		case strings.HasPrefix(line, "## "):
			program = words[1]
			c.flags[program], c.subcommands[program] = map[string]bool{}, map[string]bool{}
		case strings.HasPrefix(line, "### "):
			c.subcommands[program][words[2]] = true
		case strings.HasPrefix(line, "| `--"):
			c.flags[program][strings.Trim(words[1], "`")] = true
		}
	}
	for _, s := range metricSources() {
		c.metrics = append(c.metrics, metricsOf(t, s)...)
	}
	c.keys = all["docs/reference/configuration.md"].Prose
	return c
}

// TestCommands: targets of make, files, programs' flags and subcommands, metrics
// and keys of the configuration that text names are there.
func TestCommands(t *testing.T) {
	all := documents(t)
	c := commandsOf(t, all, readTree(t, "Makefile"))
	checked := 0
	for _, d := range all {
		var lines []string
		for _, b := range d.Blocks {
			lines = append(lines, b.CommandLines()...)
		}
		lines = append(lines, d.InlineCode()...)
		for _, line := range lines {
			checked++
			for _, problem := range c.problems(line) {
				t.Errorf("%s: %s: %s", d.Path, line, problem)
			}
		}
		for _, name := range ourMetric.FindAllString(d.Prose, -1) {
			if !slices.ContainsFunc(c.metrics, func(m metric) bool { return m.provides(name) || m.name == name }) {
				t.Errorf("%s: there is no metric %s", d.Path, name)
			}
		}
		for _, m := range configKey.FindAllStringSubmatch(d.Prose, -1) {
			if !strings.Contains(c.keys, "| `"+m[1]+"` |") {
				t.Errorf("%s: the configuration has no key %s", d.Path, m[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d commands were found, there are more", checked)
	}
}

func TestCommandsAreJudged(t *testing.T) {
	all := map[string]markdown.Document{
		"docs/reference/flags.md": markdown.Read("f.md", "## underlay-agent\n\n| `--v` | Level |\n\n### underlay-agent run\n\n| `--port` | int |\n"),
	}
	c := commandsOf(t, all, "test: lint ## everything\n")
	for line, want := range map[string]int{
		"make test ONCE=1":                        0,
		"$ make tests":                            1,
		"ONCE=1 make tests":                       1,
		"go test ./test/checks/docs/...":          0,
		"kubectl apply -f deploy/nothing.yaml":    1,
		"kubectl apply -f deploy/ccm":             0,
		"underlay-agent run --port 1 --v=2":       0,
		"bin/underlay-agent walk":                 1,
		"underlay-agent run --sport 1":            1,
		"kubectl logs ds/underlay-agent --prefix": 0,
	} {
		if problems := c.problems(line); len(problems) != want {
			t.Errorf("%s: %q, want %d", line, problems, want)
		}
	}
}
