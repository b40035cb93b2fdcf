package table

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Painter formats pages for a terminal, with or without color.
type Painter struct{ Color, Wide bool }

const (
	reset = "\x1b[0m"
	bold  = "\x1b[1m"
)

// Paint returns a text in the color of a tone.
func (p Painter) Paint(t Tone, s string) string {
	codes := map[Tone]string{Good: "\x1b[32m", Warn: "\x1b[33m", Bad: "\x1b[31m", Faint: "\x1b[2m"}
	if !p.Color || codes[t] == "" || s == "" {
		return s
	}
	return codes[t] + s + reset
}

// Harmless replaces the characters that move a terminal's cursor or reorder its output: control
// characters except newlines and tabs, and bidirectional control characters.
func Harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// OneLine returns a harmless text on one line.
func OneLine(text string) string { return Harmless(strings.Join(strings.Fields(text), " ")) }

// Page returns the text of a page without its remarks.
func (p Painter) Page(shown Page) string {
	var parts []string
	for _, t := range shown.Tables {
		if text := p.Table(t); text != "" {
			parts = append(parts, text)
		}
	}
	if len(shown.Lines) > 0 {
		parts = append(parts, Harmless(strings.Join(shown.Lines, "\n"))+"\n")
	}
	return strings.Join(parts, "\n")
}

// Remarks returns a line for each note and for each part that was not seen.
func (p Page) Remarks() []string {
	var out []string
	for _, note := range p.Notes {
		out = append(out, "note: "+OneLine(note))
	}
	for _, gap := range p.NotSeen {
		out = append(out, "not seen: "+OneLine(gap))
	}
	return out
}

// Table returns the text of a table, empty if the table has no rows.
func (p Painter) Table(t Table) string {
	var head []Cell
	for _, c := range t.Columns {
		head = append(head, Faint.Cell(c.Name))
	}
	lines := [][]Cell{head}
	oneLine := strings.NewReplacer("\n", " ", "\t", " ") // a newline in a cell would begin a row
	for _, row := range t.Rows {
		if p.Wide && row.Narrow || !p.Wide && row.Wide {
			continue
		}
		cells := slices.Clone(row.Cells)
		for i := range cells {
			cells[i].Text = oneLine.Replace(Harmless(cells[i].Text))
		}
		lines = append(lines, cells)
	}
	if len(lines) == 1 {
		return ""
	}
	var shown []int
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		if p.Wide || !c.Wide {
			shown = append(shown, i)
		}
		for _, cells := range lines {
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i].Text))
		}
	}
	var b strings.Builder
	if t.Title != "" {
		title := Harmless(t.Title)
		if p.Color {
			title = bold + title + reset
		}
		b.WriteString(title + "\n")
	}
	for _, cells := range lines {
		p.line(&b, t, shown, widths, cells)
	}
	return b.String()
}

// line writes one line. It pads before it colors, because escape codes have no width, and adds
// no trailing spaces.
func (p Painter) line(b *strings.Builder, t Table, shown, widths []int, cells []Cell) {
	last := len(shown) - 1
	for last > 0 && cells[shown[last]].Text == "" {
		last--
	}
	for n, i := range shown[:last+1] {
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cells[i].Text))
		painted := p.Paint(cells[i].Tone, cells[i].Text)
		switch {
		case t.Columns[i].Right:
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
