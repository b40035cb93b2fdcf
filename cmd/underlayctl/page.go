package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/internal/table"
)

// print prints a page, or as JSON and YAML a value.
func (o *options) print(w process, page table.Page, value any) error {
	text := o.painter(w).Page(page)
	switch o.output {
	case "json", "yaml":
		out, err := json.MarshalIndent(value, "", "  ")
		if err == nil && o.output == "yaml" {
			out, err = yaml.JSONToYAML(out)
		}
		if err != nil {
			return fmt.Errorf("writing %s: %w", o.output, err)
		}
		text = table.Harmless(strings.TrimSuffix(string(out), "\n")) + "\n"
		page = table.Page{} // the value has the notes
	}
	_, err := fmt.Fprint(w.stdout, text)
	for _, remark := range page.Remarks() {
		fmt.Fprintln(w.stderr, remark)
	}
	return err
}

func (o *options) painter(w process) table.Painter {
	return table.Painter{Color: w.colorful(), Wide: o.output == "wide"}
}

// colorful reports whether the output is a terminal with color (https://no-color.org).
func (w process) colorful() bool {
	return w.terminal && w.getenv("NO_COLOR") == "" && w.getenv("TERM") != "dumb"
}
