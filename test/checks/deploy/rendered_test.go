package deploy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestManifestsAreThoseOfTheChart compares checksums: whoever edits a rendered
// manifest, or the chart without rendering it, is told. That the chart renders to
// just these files is for the module test/checks/chart, which brings Helm along.
func TestManifestsAreThoseOfTheChart(t *testing.T) {
	const folder = repository + "/deploy"
	content, err := os.ReadFile(folder + "/rendered.sha256")
	if err != nil {
		t.Fatal(err)
	}
	summed := map[string]string{}
	for line := range strings.Lines(string(content)) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok {
			t.Fatalf("rendered.sha256: line %q isn't of the form that sha256sum writes", line)
		}
		summed[name] = sum
	}
	found := map[string]string{}
	for _, part := range []string{"chart", "values", "ccm", "agent", "metal", "kubeadm/cloud-dual-stack/values.yaml", "kubeadm/metal-dual-stack/values.yaml", "../test/testenv/kubeadm/underlay.yaml", "../test/testenv/kubeadm/underlay-metal.yaml"} {
		err := filepath.WalkDir(filepath.Join(folder, part), func(path string, entry fs.DirEntry, err error) error {
			rendered := part == "chart" || filepath.Ext(path) == ".yaml"
			if err != nil || entry.IsDir() || !rendered {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			name, err := filepath.Rel(folder, path)
			found[filepath.ToSlash(name)] = fmt.Sprintf("%x", sha256.Sum256(content))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(found) < 20 {
		t.Fatalf("only %d files found", len(found))
	}
	names := slices.Concat(slices.Collect(maps.Keys(found)), slices.Collect(maps.Keys(summed)))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if found[name] != summed[name] {
			t.Errorf("deploy/%s isn't as it was rendered; run \"make manifests\"", name)
		}
	}
}

// TestChartTakesEveryKeyOfTheConfiguration compares the schema of the chart's
// values with the reference, which is generated.
func TestChartTakesEveryKeyOfTheConfiguration(t *testing.T) {
	type schema struct {
		Properties map[string]schema
		Items      *schema
	}
	content, err := os.ReadFile(repository + "/deploy/chart/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(content, &root); err != nil {
		t.Fatal(err)
	}
	var inSchema []string
	var walk func(prefix string, s schema)
	walk = func(prefix string, s schema) {
		if s.Items != nil && s.Items.Properties != nil {
			walk(prefix+"[]", *s.Items)
		}
		if s.Properties == nil {
			inSchema = append(inSchema, prefix)
		}
		for name, property := range s.Properties {
			walk(strings.TrimPrefix(prefix+"."+name, "."), property)
		}
	}
	walk("", root.Properties["config"])

	reference, err := os.ReadFile(repository + "/docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	var inReference []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z][A-Za-z0-9.\\[\\]]+)` \\|").FindAllStringSubmatch(string(reference), -1) {
		if key := row[1]; key != "apiVersion" && key != "kind" { // those the chart adds
			inReference = append(inReference, key)
		}
	}
	slices.Sort(inSchema)
	slices.Sort(inReference)
	if !slices.Equal(inSchema, inReference) {
		t.Errorf("the schema has\n%v\nthe reference\n%v", inSchema, inReference)
	}
}
