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
		_, err = fmt.Fprintln(w.stdout, harmless(string(out)))
		return err
	case "yaml":
		out, err := yaml.Marshal(view)
		if err != nil {
			return fmt.Errorf("writing YAML: %w", err)
		}
		_, err = fmt.Fprint(w.stdout, harmless(string(out)))
		return err
	}
	shown := people()
	if _, err := fmt.Fprint(w.stdout, o.painter(w).page(shown)); err != nil {
		return err
	}
	for _, remark := range shown.remarks() {
		fmt.Fprintln(w.stderr, remark)
	}
	return nil
}

func (o *options) painter(w process) painter {
	return painter{color: w.colorful(), wide: o.output == "wide"}
}

// page is the text of a page without its remarks.
func (p painter) page(shown page) string {
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
		parts = append(parts, harmless(strings.Join(shown.lines, "\n"))+"\n")
	}
	return strings.Join(parts, "\n")
}

// remarks are a line for each note and for each thing that was not seen.
func (p page) remarks() []string {
	var out []string
	for _, note := range p.notes {
		out = append(out, "note: "+oneLine(note))
	}
	for _, gap := range p.notSeen {
		out = append(out, "not seen: "+oneLine(gap))
	}
	return out
}

// colorful reports whether the output is a terminal that wants colors
// (https://no-color.org).
func (w process) colorful() bool { return w.terminal && w.wantsColor() }

func (w process) wantsColor() bool {
	return w.getenv("NO_COLOR") == "" && w.getenv("TERM") != "dumb"
}
