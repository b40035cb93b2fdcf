package archtest

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"math"
	"slices"
	"strings"
)

// Sizes of the picture, in pixels.
const (
	boxWidth, boxHeight = 130, 46 // a box is wider if its name is
	letterWidth         = 8.0     // of a bold name, on average and generously
	gapX, gapY          = 22, 58
	bendWidth           = 14 // of a row's place through which an arrow passes
	margin              = 24
	legendHeight        = 34
)

// place is where a package stands in the picture, or where an arrow bends in a row between.
type place struct {
	path string // "" for a bend
	row  int
	x    float64 // centre
}

func (p *place) width() float64 {
	if p.path == "" {
		return bendWidth
	}
	return max(boxWidth, letterWidth*float64(len(p.path))+16)
}

func (p *place) top() float64 { return margin + legendHeight + float64(p.row)*(boxHeight+gapY) }

// Picture draws the packages of the product and their imports as SVG: each package below all that
// import it, and no arrow where a longer way says the same. The same imports give the same bytes.
func Picture(packages []Package) string {
	imports := productImports(packages)
	rows := rowsOf(imports)
	edges := withoutShortcuts(imports)
	grid, chains := layout(rows, edges)
	lines := map[string]int{}
	for _, p := range packages {
		lines[short(p.Path)] = p.Lines
	}
	return draw(grid, chains, lines)
}

// productImports maps each package that the programs are made of to those of them that it imports.
func productImports(packages []Package) map[string][]string {
	imports := map[string][]string{}
	for _, p := range packages {
		if path := short(p.Path); p.Code > 0 && !strings.HasPrefix(path, "test/") && !strings.HasSuffix(path, "test") {
			imports[path] = nil
		}
	}
	for _, p := range packages {
		if _, drawn := imports[short(p.Path)]; !drawn {
			continue
		}
		for _, to := range p.Imports {
			if _, drawn := imports[short(to)]; drawn {
				imports[short(p.Path)] = append(imports[short(p.Path)], short(to))
			}
		}
	}
	return imports
}

// rowsOf returns the row of each package: one below the lowest that imports it, 0 at the top, and
// what only decides, by what only decides, as low as can be.
func rowsOf(imports map[string][]string) map[string]int {
	rows := map[string]int{}
	var sink func(path string, row int)
	sink = func(path string, row int) {
		if have, seen := rows[path]; seen && have >= row {
			return
		}
		rows[path] = row
		for _, to := range imports[path] {
			sink(to, row+1)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(imports)) {
		sink(path, 0)
	}
	lowest := slices.Max(slices.Collect(maps.Values(rows)))
	var above func(path string) (rows int, alone bool) // how many rows of it there are below path
	above = func(path string) (int, bool) {
		rows, alone := 0, pure(path)
		for _, to := range imports[path] {
			below, also := above(to)
			rows, alone = max(rows, below+1), alone && also
		}
		return rows, alone
	}
	for path := range imports {
		if n, alone := above(path); alone {
			rows[path] = lowest - n
		}
	}
	return rows
}

// withoutShortcuts leaves out each import that other imports imply.
func withoutShortcuts(imports map[string][]string) map[string][]string {
	var reaches func(from, to string) bool
	reaches = func(from, to string) bool {
		return from == to || slices.ContainsFunc(imports[from], func(next string) bool { return reaches(next, to) })
	}
	kept := map[string][]string{}
	for from, tos := range imports {
		for _, to := range tos {
			implied := slices.ContainsFunc(tos, func(other string) bool { return other != to && reaches(other, to) })
			if !implied {
				kept[from] = append(kept[from], to)
			}
		}
		slices.Sort(kept[from])
	}
	return kept
}

// layout gives every package and every bend its place, ordered within a row by the mean of what
// it is tied to in the rows beside it. A chain is an arrow: a package, its bends, a package.
func layout(rows map[string]int, edges map[string][]string) (grid [][]*place, chains [][]*place) {
	grid = make([][]*place, slices.Max(slices.Collect(maps.Values(rows)))+1)
	at := map[string]*place{}
	add := func(path string, row int) *place {
		p := &place{path: path, row: row}
		grid[row] = append(grid[row], p)
		return p
	}
	for _, path := range slices.Sorted(maps.Keys(rows)) {
		at[path] = add(path, rows[path])
	}
	tied := map[*place][]*place{}
	for _, from := range slices.Sorted(maps.Keys(edges)) {
		for _, to := range edges[from] {
			chain := []*place{at[from]}
			for row := rows[from] + 1; row < rows[to]; row++ {
				chain = append(chain, add("", row))
			}
			chain = append(chain, at[to])
			for i := range chain[1:] {
				tied[chain[i]] = append(tied[chain[i]], chain[i+1])
				tied[chain[i+1]] = append(tied[chain[i+1]], chain[i])
			}
			chains = append(chains, chain)
		}
	}
	for _, row := range grid {
		spread(row)
	}
	for sweep := range 24 {
		for i := range grid {
			row := grid[i]
			if sweep%2 == 1 {
				row = grid[len(grid)-1-i]
			}
			order(row, tied)
		}
	}
	return grid, chains
}

// order sorts a row by the mean place of what each is tied to, and spreads it anew.
func order(row []*place, tied map[*place][]*place) {
	mean := map[*place]float64{}
	for _, p := range row {
		sum := 0.0
		for _, other := range tied[p] {
			sum += other.x
		}
		mean[p] = p.x
		if n := len(tied[p]); n > 0 {
			mean[p] = sum / float64(n)
		}
	}
	slices.SortStableFunc(row, func(a, b *place) int { return cmp.Compare(mean[a], mean[b]) })
	spread(row)
}

// spread centres a row around 0.
func spread(row []*place) {
	total := gapX * float64(len(row)-1)
	for _, p := range row {
		total += p.width()
	}
	x := -total / 2
	for _, p := range row {
		p.x = x + p.width()/2
		x += p.width() + gapX
	}
}

// kind is the class of a package's box, and what the legend says of it.
type kind struct{ class, says string }

func kinds() []kind {
	return []kind{
		{"program", "program"},
		{"pure", "decides: no clock, no network, no log"},
		{"edge", "acts: speaks to Kubernetes, a cloud or the kernel"},
		{"public", "the simulated cloud"},
	}
}

func kindOf(path string) kind {
	k := kinds()
	switch {
	case strings.HasPrefix(path, "cmd/"):
		return k[0]
	case strings.HasPrefix(path, "hcloudsim"):
		return k[3]
	case pure(path):
		return k[1]
	}
	return k[2]
}

func draw(grid, chains [][]*place, lines map[string]int) string {
	half := 0.0
	for _, row := range grid {
		for _, p := range row {
			half = math.Max(half, math.Abs(p.x)+p.width()/2)
		}
	}
	for _, row := range grid {
		for _, p := range row {
			p.x += half + margin
		}
	}
	width := 2 * (half + margin)
	height := grid[len(grid)-1][0].top() + boxHeight + margin
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="Helvetica, Arial, sans-serif" font-size="13" role="img" aria-labelledby="title">
  <title id="title">Packages of Underlay and what they import</title>
  <defs>
    <marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 10 5 0 10z" fill="#64748b"/></marker>
    <style>
      rect { stroke-width: 1.5 }
      .program { fill: #e0f2fe; stroke: #0369a1 }
      .pure { fill: #dcfce7; stroke: #15803d; stroke-width: 2.5 }
      .edge { fill: #f8fafc; stroke: #94a3b8 }
      .public { fill: #fef3c7; stroke: #b45309 }
      path.a { stroke: #64748b; stroke-width: 1.3; fill: none; marker-end: url(#tip) }
      .n { font-weight: bold; fill: #0f172a }
      .l { font-size: 11px; fill: #475569 }
    </style>
  </defs>
  <rect width="100%%" height="100%%" fill="#ffffff"/>
`, width, height)
	x := float64(margin)
	for _, k := range kinds() {
		fmt.Fprintf(&out, "  <rect class=\"%s\" x=\"%.0f\" y=\"16\" width=\"16\" height=\"16\" rx=\"3\"/><text class=\"l\" x=\"%.0f\" y=\"28\">%s</text>\n", k.class, x, x+23, html.EscapeString(k.says))
		x += 48 + 5.6*float64(len(k.says))
	}
	for _, chain := range chains {
		fmt.Fprintf(&out, "  <path class=\"a\" d=\"%s\"/>\n", curve(chain))
	}
	for _, row := range grid {
		for _, p := range row {
			if p.path == "" {
				continue
			}
			fmt.Fprintf(&out, "  <rect class=\"%s\" x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%d\" rx=\"5\"/>\n", kindOf(p.path).class, p.x-p.width()/2, p.top(), p.width(), boxHeight)
			fmt.Fprintf(&out, "  <text class=\"n\" text-anchor=\"middle\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", p.x, p.top()+20, p.path)
			fmt.Fprintf(&out, "  <text class=\"l\" text-anchor=\"middle\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", p.x, p.top()+36, thousand(lines[p.path]))
		}
	}
	out.WriteString("</svg>\n")
	return out.String()
}

// thousand rounds a number of lines, so that the picture changes only when a package does.
func thousand(lines int) string {
	if lines < 250 {
		return "under 250 lines"
	}
	return fmt.Sprintf("%.1f thousand lines", math.Round(float64(lines)/500)/2)
}

// curve is the way of an arrow through its bends.
func curve(chain []*place) string {
	var out strings.Builder
	last := chain[0]
	fmt.Fprintf(&out, "M%.0f %.0f", last.x, last.top()+boxHeight)
	for _, p := range chain[1:] {
		from, to := last.top()+boxHeight, p.top()
		fmt.Fprintf(&out, " C%.0f %.0f %.0f %.0f %.0f %.0f", last.x, from+gapY/2, p.x, to-gapY/2, p.x, to)
		if p.path == "" {
			fmt.Fprintf(&out, " V%.0f", to+boxHeight)
		}
		last = p
	}
	return out.String()
}
