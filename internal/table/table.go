// Package table holds the output of underlayctl: rows of cells under columns. Commands print
// them on a terminal, and the page of `underlayctl ui` draws the same tables. JSON and YAML
// print the values from which the tables are built.
//
// Text in a cell must never affect the output around it: names, Events and reports come from
// untrusted writers, so Harmless removes control characters before they reach a terminal.
package table

import (
	"fmt"
	"strings"
)

// Tone is the severity of a cell, by which it is colored.
type Tone string

const (
	Plain Tone = ""
	Good  Tone = "good"
	Warn  Tone = "warn"
	Bad   Tone = "bad"
	Faint Tone = "faint"
)

// None is the text of a cell without a value.
const None = "–"

// Cell is a text with a tone.
type Cell struct {
	Text string `json:"text"`
	Tone Tone   `json:"tone,omitempty"`
}

// Column is the header of a column.
type Column struct {
	Name  string `json:"name"`
	Wide  bool   `json:"-"`               // only with -o wide and on the page
	Right bool   `json:"right,omitempty"` // right-aligned, for numbers
}

// Row has a cell for each column.
type Row struct {
	// About is the object of the row, such as "Node/worker-1" or "Service/shop/web".
	About string `json:"about,omitempty"`
	Cells []Cell `json:"cells"`
	// A Wide row is shown only with -o wide and on the page, a Narrow row only elsewhere.
	Wide   bool `json:"-"`
	Narrow bool `json:"-"`
}

// Table has rows with as many cells as columns. Printing truncates no cell.
type Table struct {
	Title   string   `json:"title,omitempty"`
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
}

// Page is the human-readable output of a command.
type Page struct {
	Tables []Table  `json:"tables,omitempty"`
	Lines  []string `json:"lines,omitempty"` // below the tables
	// Notes and NotSeen are printed to standard error, so that the tables can be piped.
	Notes   []string `json:"notes,omitempty"`
	NotSeen []string `json:"notSeen,omitempty"`
}

// Shown is a value with a human-readable Page.
type Shown interface{ Page() Page }

// New returns a table without rows. A name with prefix + is of a wide column, with prefix > of
// numbers.
func New(title string, names ...string) Table {
	t := Table{Title: title, Rows: []Row{}}
	for _, name := range names {
		var c Column
		name, c.Wide = strings.CutPrefix(name, "+")
		c.Name, c.Right = strings.CutPrefix(name, ">")
		t.Columns = append(t.Columns, c)
	}
	return t
}

// Add adds a row. Values other than Cells have no tone.
func (t *Table) Add(values ...any) *Row {
	row := Row{Cells: make([]Cell, len(values))}
	for i, v := range values {
		row.Cells[i] = cell(v)
	}
	t.Rows = append(t.Rows, row)
	return &t.Rows[len(t.Rows)-1]
}

func cell(v any) Cell {
	if c, is := v.(Cell); is {
		return c
	}
	if value, is := v.(interface{ IsValid() bool }); is && !value.IsValid() {
		return Cell{Text: None} // the zero netip.Addr or netip.Prefix
	}
	return Cell{Text: fmt.Sprint(v)}
}

// Cell returns v as a Cell with the tone t.
func (t Tone) Cell(v any) Cell { return Toned(v, t, true) }

// Toned returns v as a Cell, with the tone if the condition holds and the text is not empty.
func Toned(v any, tone Tone, when bool) Cell {
	c := cell(v)
	if when && c.Text != "" {
		c.Tone = tone
	}
	return c
}

// OrNone returns text, or None if text is empty.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}
