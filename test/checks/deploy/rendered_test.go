package deploy

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
