package docs

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	strictyaml "sigs.k8s.io/yaml"
)

// others are groups whose types this module doesn't have, or that another test decodes: of their
// objects only the YAML is checked.
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

// problemOfYAML returns the problem of a block: it must be YAML, and an object of Kubernetes must
// decode strictly.
func problemOfYAML(content string) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(content)))
	for {
		text, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = strictyaml.Unmarshal(text, new(any))
		}
		if err == nil {
			err = problemOfObject(text)
		}
		if err != nil {
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
	strict := serializer.NewCodecFactory(scheme.Scheme,
		serializer.EnableStrict).UniversalDeserializer()
	if _, _, err := strict.Decode(text, nil, nil); err != nil {
		return fmt.Errorf("%s %s: %w", head.APIVersion, head.Kind, err)
	}
	return nil
}

// TestBlocks: blocks marked as YAML or JSON can be decoded. The tests of internal/config check
// files of --cloud-config.
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

// commands are the parts of commands that the tree determines.
type commands struct {
	targets     map[string]bool            // of make
	flags       map[string]map[string]bool // by program
	subcommands map[string]map[string]bool
}

var (
	makeTarget   = regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)
	makeCommand  = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*make((?: [A-Z_]+=\S+| [a-z][a-z0-9-]*)*)`)
	treePath     = regexp.MustCompile(`(?:^|[\s=])(?:\./)?((?:deploy|docs|test|cmd|internal|ipam|routes|lb)/[A-Za-z0-9_./-]*)`)
	programFlag  = regexp.MustCompile(`(?:^|\s)(--[a-z][a-z0-9-]*)`)
	manifestFlag = regexp.MustCompile(`(?m)^ *- "?(--[a-z][a-z0-9-]*)=`)
	placeholders = regexp.MustCompile(`[<>*$…]|\.\.\.`)
	ourMetric    = regexp.MustCompile(`\bunderlay_[a-z_]+[a-z]\b`)
	configKey    = regexp.MustCompile("`((?:routes|families|loadBalancers)\\.[A-Za-z0-9.]+)`")
)

// ourPrograms have their flags on the page of flags.
var ourPrograms = regexp.MustCompile(`(?:^|[\s/])(underlay-ccm|underlay-agent|underlayctl|hcloud-sim|kubectl underlay)((?: .*)?)$`)

// problems returns the names in a line of a command block that don't exist.
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

// commandsOf reads them from the tree.
func commandsOf(t *testing.T) commands {
	t.Helper()
	c := commands{
		targets: map[string]bool{}, flags: map[string]map[string]bool{},
		subcommands: map[string]map[string]bool{},
	}
	for _, m := range makeTarget.FindAllStringSubmatch(readTree(t, "Makefile"), -1) {
		c.targets[m[1]] = true
	}
	for section := range strings.SplitSeq(readTree(t, "docs/reference/flags.md"), "\n## ") {
		program, _, _ := strings.Cut(section, "\n")
		c.flags[program], c.subcommands[program] = map[string]bool{}, map[string]bool{}
		for _, flag := range regexp.MustCompile(`--[a-z][a-z0-9-]*`).FindAllString(section, -1) {
			c.flags[program][flag] = true
		}
		for _, m := range regexp.MustCompile(`(?m)^### \S+ (\S+)`).FindAllStringSubmatch(section, -1) {
			c.subcommands[program][m[1]] = true
		}
	}
	return c
}

// TestCommands: targets of make, files, programs' flags and subcommands, metrics and keys of the
// configuration that text names exist, as do flags of the manifests.
func TestCommands(t *testing.T) {
	all := documents(t)
	c, metrics, keys := commandsOf(t), allMetrics(t), all["docs/reference/configuration.md"].Prose
	checked := 0
	for _, folder := range []string{"ccm/deployment", "agent/daemonset", "metal/underlay"} {
		file := "deploy/" + folder + ".yaml"
		for _, m := range manifestFlag.FindAllStringSubmatch(readTree(t, file), -1) {
			if !c.flags["underlay-ccm"][m[1]] && !c.flags["underlay-agent"][m[1]] {
				t.Errorf("%s: no program has a flag %s", file, m[1])
			}
		}
	}
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
			if !provided(metrics, name) && !provided(metrics, name+"_sum") {
				t.Errorf("%s: there is no metric %s", d.Path, name)
			}
		}
		for _, m := range configKey.FindAllStringSubmatch(d.Prose, -1) {
			if !strings.Contains(keys, "| `"+m[1]+"` |") {
				t.Errorf("%s: the configuration has no key %s", d.Path, m[1])
			}
		}
	}
	if checked < 100 {
		t.Errorf("%d commands were found, there are more", checked)
	}
}
