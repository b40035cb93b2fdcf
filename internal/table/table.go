// Package table holds the output of underlayctl: rows of cells under columns. Commands print
// them on a terminal or, as values by the names of their columns, in JSON and YAML. The page of
// `underlayctl ui` draws the same tables.
//
// Text in a cell must never affect the output around it: names, Events and reports come from
// untrusted writers, so Harmless removes control characters before they reach a terminal.
package table

import (
	"fmt"
	"reflect"
	"strings"
	"time"
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
	Text  string `json:"text"`
	Tone  Tone   `json:"tone,omitempty"`
	value any    // for programs; nil without a value
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
	Name    string   `json:"-"` // its key in Values
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

// New returns a table without rows. A column's name with prefix + is of a wide column, with
// prefix > of numbers.
func New(name, title string, columns ...string) Table {
	t := Table{Name: name, Title: title, Rows: []Row{}}
	for _, column := range columns {
		var c Column
		column, c.Wide = strings.CutPrefix(column, "+")
		c.Name, c.Right = strings.CutPrefix(column, ">")
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

// cell returns the elements of a slice joined by commas, and None for the zero value of a
// netip.Addr, a netip.Prefix or a time and for an empty slice.
func cell(v any) Cell {
	switch v := v.(type) {
	case Cell:
		return v
	case string:
		return Cell{Text: v, value: v}
	case time.Time:
		if !v.IsZero() {
			return cell(v.UTC().Format(time.RFC3339))
		}
		return Cell{Text: None}
	case interface{ IsValid() bool }:
		if !v.IsValid() {
			return Cell{Text: None}
		}
	}
	all := reflect.ValueOf(v)
	if all.Kind() != reflect.Slice {
		return Cell{Text: fmt.Sprint(v), value: v}
	}
	if all.Len() == 0 {
		return Cell{Text: None}
	}
	texts := make([]string, all.Len())
	for i := range texts {
		texts[i] = fmt.Sprint(all.Index(i))
	}
	return Cell{Text: strings.Join(texts, ","), value: v}
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

// Repeated returns v as a Cell whose text is left out, because the row above has it.
func Repeated(v any) Cell { return Cell{value: cell(v).value} }

// OrNone returns text, or None if text is empty.
func OrNone(text string) string {
	if text == "" {
		return None
	}
	return text
}

// Values returns the page for programs: the rows of each table by its name, with the values of
// their cells by the names of the columns in camel case. Cells without a value are left out.
func (p Page) Values() map[string]any {
	out := map[string]any{}
	for _, t := range p.Tables {
		rows := make([]map[string]any, len(t.Rows))
		for i, r := range t.Rows {
			rows[i] = map[string]any{}
			for j, c := range r.Cells {
				if c.value != nil && c.value != "" && c.value != None {
					rows[i][camelCase(t.Columns[j].Name)] = c.value
				}
			}
		}
		out[t.Name] = rows
	}
	for name, texts := range map[string][]string{
		"lines": p.Lines, "notes": p.Notes, "notSeen": p.NotSeen,
	} {
		if len(texts) > 0 {
			out[name] = texts
		}
	}
	return out
}

func camelCase(name string) string {
	words := strings.Fields(strings.ToLower(name))
	for i := 1; i < len(words); i++ {
		words[i] = strings.ToUpper(words[i][:1]) + words[i][1:]
	}
	return strings.Join(words, "")
}
