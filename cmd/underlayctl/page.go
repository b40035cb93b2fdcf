package main

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/internal/table"
)

// print prints a view in the requested format. JSON and YAML include the parts not seen.
func (o *options) print(w process, view table.Shown) error {
	switch o.output {
	case "json":
		out, err := json.MarshalIndent(view, "", "  ")
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		_, err = fmt.Fprintln(w.stdout, table.Harmless(string(out)))
		return err
	case "yaml":
		out, err := yaml.Marshal(view)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = fmt.Fprint(w.stdout, table.Harmless(string(out)))
		return err
	}
	shown := view.Page()
	if _, err := fmt.Fprint(w.stdout, o.painter(w).Page(shown)); err != nil {
		return err
	}
	for _, remark := range shown.Remarks() {
		fmt.Fprintln(w.stderr, remark)
	}
	return nil
}

func (o *options) painter(w process) table.Painter {
	return table.Painter{Color: w.colorful(), Wide: o.output == "wide"}
}

// colorful reports whether the output is a terminal with color (https://no-color.org).
func (w process) colorful() bool {
	return w.terminal && w.getenv("NO_COLOR") == "" && w.getenv("TERM") != "dumb"
}
