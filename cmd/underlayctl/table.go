package main

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// tone is what a cell says besides its text.
type tone int

const (
	plain tone = iota
	good
	warn
	bad
	faint
)

// cell is a text with a tone.
type cell struct {
	text string
	tone tone
}

func text(s string) cell { return cell{text: s} }

// column is a column's head.
type column struct {
	name  string
	wide  bool // only with -o wide
	right bool // numbers
}

// table is a head and rows of as many cells. Nothing in it is cut.
type table struct {
	title   string // "" for none
	columns []column
	rows    [][]cell
}

// painter writes tables, with or without color.
type painter struct{ color, wide bool }

const (
	reset = "\x1b[0m"
	bold  = "\x1b[1m"
)

func (p painter) paint(t tone, s string) string {
	code := map[tone]string{good: "\x1b[32m", warn: "\x1b[33m", bad: "\x1b[31m", faint: "\x1b[2m"}[t]
	if !p.color || code == "" || s == "" {
		return s
	}
	return code + s + reset
}

// harmless is a text without what orders a terminal about or turns around what it shows: control
// characters but line ends and tabs, and those that set the direction of writing. Nodes, Services,
// Events and the cloud say what others have written.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// harmlessCell is what a cell shows: a line end in it would begin a row.
func harmlessCell(c cell) cell {
	c.text = strings.NewReplacer("\n", " ", "\t", " ").Replace(harmless(c.text))
	return c
}

// table is the text of a table; a table without rows is nothing.
func (p painter) table(t table) string {
	if len(t.rows) == 0 {
		return ""
	}
	rows := make([][]cell, len(t.rows))
	for i, row := range t.rows {
		for _, c := range row {
			rows[i] = append(rows[i], harmlessCell(c))
		}
	}
	t.rows = rows
	var shown []int
	for i, c := range t.columns {
		if p.wide || !c.wide {
			shown = append(shown, i)
		}
	}
	widths := make([]int, len(t.columns))
	for _, i := range shown {
		widths[i] = utf8.RuneCountInString(t.columns[i].name)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
	}
	var b strings.Builder
	if t.title != "" {
		b.WriteString(p.heading(harmless(t.title)))
	}
	head := make([]cell, len(t.columns))
	for i, c := range t.columns {
		head[i] = cell{c.name, faint}
	}
	p.line(&b, t, shown, widths, head)
	for _, row := range t.rows {
		p.line(&b, t, shown, widths, row)
	}
	return b.String()
}

func (p painter) heading(s string) string {
	if p.color {
		s = bold + s + reset
	}
	return s + "\n"
}

// line pads before it paints: a color has no width. No line ends with a space.
func (p painter) line(b *strings.Builder, t table, shown, widths []int, row []cell) {
	last := len(shown) - 1
	for last > 0 && row[shown[last]].text == "" {
		last--
	}
	for n := 0; n <= last; n++ {
		i := shown[n]
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(row[i].text))
		painted := p.paint(row[i].tone, row[i].text)
		switch {
		case t.columns[i].right:
			painted = space + painted
		case n < last:
			painted += space
		}
		if n > 0 {
			b.WriteString("  ")
		}
		b.WriteString(painted)
	}
	b.WriteString("\n")
}
