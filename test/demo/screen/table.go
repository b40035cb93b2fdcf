package screen

import (
	"strings"
	"unicode/utf8"
)

// table is a title, a head and rows of as many cells.
type table struct {
	title string
	head  []string
	rows  [][]string
	// paint colors a cell after it has its width; nil: no color.
	paint func(column int, padded string) string
}

func (p Painter) table(t table) string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	b.WriteString("\n" + p.paint(bold, "── "+t.title+" ──") + "\n")
	b.WriteString(line(t.head, widths, func(_ int, cell string) string { return p.paint(dim, cell) }))
	for _, row := range t.rows {
		b.WriteString(line(row, widths, t.paint))
	}
	return b.String()
}

func line(row []string, widths []int, paint func(int, string) string) string {
	cells := make([]string, len(row))
	for i, cell := range row {
		// The last is not padded: no line ends with a space.
		if i < len(row)-1 {
			cell = pad(cell, widths[i])
		}
		if paint != nil {
			cell = paint(i, cell)
		}
		cells[i] = cell
	}
	return "  " + strings.TrimRight(strings.Join(cells, "  "), " ") + "\n"
}
