// Package table holds what underlayctl shows: rows of cells under columns. A command prints
// them on a terminal, and the page of `underlayctl ui` draws the same ones. JSON and YAML
// print the values that the tables are made of.
//
// It must never let a text change what is around it: names, Events and reports are written
// by others, so Harmless removes control characters before a terminal gets them.
package table

import (
	"fmt"
	"strings"
)

// Tone is what a cell means besides its text.
type Tone string

// The tones.
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

// Column is the head of a column.
type Column struct {
	Name  string `json:"name"`
	Wide  bool   `json:"-"`               // only with -o wide and on the page
	Right bool   `json:"right,omitempty"` // numbers
}

// Row has a cell for each column.
type Row struct {
	// About is the object of the row, as in "Node/worker-1" or "Service/shop/web".
	About string `json:"about,omitempty"`
	Cells []Cell `json:"cells"`
	// A Wide row is only with -o wide and on the page, a Narrow one only without.
	Wide   bool `json:"-"`
	Narrow bool `json:"-"`
}

// Table is a head and rows of as many cells. A printer cuts nothing in it.
type Table struct {
	Title   string   `json:"title,omitempty"`
	Columns []Column `json:"columns"`
	Rows    []Row    `json:"rows"`
}

// Page is what a command shows to people.
type Page struct {
	Tables []Table  `json:"tables,omitempty"`
	Lines  []string `json:"lines,omitempty"` // below the tables
	// Notes and NotSeen go to standard error, so that the tables can be piped.
	Notes   []string `json:"notes,omitempty"`
	NotSeen []string `json:"notSeen,omitempty"`
}

// Shown is a value that people see as a Page.
type Shown interface{ Page() Page }

// New makes a table without rows. A name that begins with + is of a wide column, one that
// begins with > is of a column of numbers.
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

// Add adds a row. What is no Cell is one without a tone.
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
		return Cell{Text: None} // the zero netip.Addr or Prefix
	}
	return Cell{Text: fmt.Sprint(v)}
}

// Cell is a cell with the tone.
func (t Tone) Cell(v any) Cell { return Toned(v, t, true) }

// Toned is a cell that has the tone when a condition holds and it has a text.
func Toned(v any, tone Tone, when bool) Cell {
	c := cell(v)
	if when && c.Text != "" {
		c.Tone = tone
	}
	return c
}

// OrNone is a text, or None if that is empty.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}
