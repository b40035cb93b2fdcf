package main

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// ours is the name of Underlay's column in the records.
const ours = "underlay"

// A section is all records of a subject, each list in the order of first occurrence.
type section struct {
	subject    string
	machine    results.Machine
	versions   []results.Version
	contenders []string // the table's columns, Underlay first
	rows       []row
	notes      []results.Note
	plots      []plotted
}

// A row is one quantity of a scenario.
type row struct {
	scenario, quantity, unit string
	cells                    map[string]cell // by contender
}

// A cell contains a contender's values of a row: of all rounds, ascending.
type cell struct {
	values []float64
	source string
}

// plotted are the lines of one plot.
type plotted struct {
	title string
	lines []results.Line
}

// median is the middle value, of an even number the mean of the two in the middle.
func (c cell) median() float64 {
	n := len(c.values)
	return (c.values[(n-1)/2] + c.values[n/2]) / 2
}

// sections reads the records, first those in the page's order, then the others by name.
func sections(tree string) ([]section, error) {
	files, err := filepath.Glob(filepath.Join(tree, folder, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no records in " + folder + ": run \"make bench-all\"")
	}
	var out []section
	for _, path := range files {
		entries, err := readFile(path)
		if err != nil {
			return nil, err
		}
		out = append(out, collect(strings.TrimSuffix(filepath.Base(path), ".jsonl"), entries))
	}
	slices.SortStableFunc(out, func(a, b section) int { return order(a.subject) - order(b.subject) })
	return out, nil
}

// collect merges a subject's entries.
func collect(subject string, entries []results.Entry) section {
	s := section{subject: subject, contenders: []string{ours}}
	for _, e := range entries {
		switch {
		case e.Machine != nil:
			s.machine = *e.Machine
		case e.Version != nil:
			s.versions = append(s.versions, *e.Version)
		case e.Note != nil:
			s.notes = append(s.notes, *e.Note)
		case e.Line != nil:
			s.draw(*e.Line)
		case e.Figure != nil:
			s.add(*e.Figure)
		}
	}
	s.group()
	return s
}

// group moves the rows of each scenario together, to the position of its first: a scenario's
// figures may be recorded between others'.
func (s *section) group() {
	first := map[string]int{}
	for i, r := range s.rows {
		if _, seen := first[r.scenario]; !seen {
			first[r.scenario] = i
		}
	}
	slices.SortStableFunc(s.rows, func(a, b row) int { return first[a.scenario] - first[b.scenario] })
}

func (s *section) add(f results.Figure) {
	if !slices.Contains(s.contenders, f.Contender) {
		s.contenders = append(s.contenders, f.Contender)
	}
	i := slices.IndexFunc(s.rows, func(r row) bool {
		return r.scenario == f.Scenario && r.quantity == f.Quantity && r.unit == f.Unit
	})
	if i < 0 {
		i = len(s.rows)
		s.rows = append(s.rows, row{
			scenario: f.Scenario, quantity: f.Quantity, unit: f.Unit, cells: map[string]cell{},
		})
	}
	c := s.rows[i].cells[f.Contender]
	at, _ := slices.BinarySearch(c.values, f.Value)
	s.rows[i].cells[f.Contender] = cell{values: slices.Insert(c.values, at, f.Value), source: f.Source}
}

func (s *section) draw(l results.Line) {
	i := slices.IndexFunc(s.plots, func(p plotted) bool { return p.title == l.Plot })
	if i < 0 {
		i = len(s.plots)
		s.plots = append(s.plots, plotted{title: l.Plot})
	}
	lines := s.plots[i].lines
	if at := slices.IndexFunc(lines, func(other results.Line) bool {
		return other.Contender == l.Contender
	}); at >= 0 {
		lines[at] = l
	} else {
		s.plots[i].lines = append(lines, l)
	}
}

// value is the median of a contender's values of a quantity of a scenario.
func value(all []section, subject, scenario, quantity, contender string) (float64, bool) {
	for _, s := range all {
		for _, r := range s.rows {
			if c, has := r.cells[contender]; has && s.subject == subject && r.scenario == scenario &&
				r.quantity == quantity {
				return c.median(), true
			}
		}
	}
	return 0, false
}
