package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"
)

// page is what a command shows to people.
type page struct {
	tables []table
	wide   []table  // instead of tables with -o wide, if any
	lines  []string // below the tables
	// notes and notSeen go to standard error, so that the tables can be piped.
	notes, notSeen []string
}

// print writes a view in the form that was asked for. What was not seen is in
// the view too, so JSON and YAML are whole.
func (o *options) print(w process, view any, people func() page) error {
	switch o.output {
	case "json":
		out, err := json.MarshalIndent(view, "", "  ")
		if err != nil {
			return fmt.Errorf("writing JSON: %w", err)
		}
		_, err = fmt.Fprintln(w.stdout, string(out))
		return err
	case "yaml":
		out, err := yaml.Marshal(view)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = w.stdout.Write(out)
		return err
	}
	p := painter{color: w.colorful(), wide: o.output == "wide"}
	shown := people()
	var parts []string
	if p.wide && shown.wide != nil {
		shown.tables = shown.wide
	}
	for _, t := range shown.tables {
		if text := p.table(t); text != "" {
			parts = append(parts, text)
		}
	}
	if len(shown.lines) > 0 {
		parts = append(parts, strings.Join(shown.lines, "\n")+"\n")
	}
	if _, err := fmt.Fprint(w.stdout, strings.Join(parts, "\n")); err != nil {
		return err
	}
	for _, note := range shown.notes {
		fmt.Fprintln(w.stderr, "note: "+oneLine(note))
	}
	for _, gap := range shown.notSeen {
		fmt.Fprintln(w.stderr, "not seen: "+oneLine(gap))
	}
	return nil
}

// colorful reports whether the output is a terminal that wants colors
// (https://no-color.org).
func (w process) colorful() bool {
	return w.terminal && w.getenv("NO_COLOR") == "" && w.getenv("TERM") != "dumb"
}
