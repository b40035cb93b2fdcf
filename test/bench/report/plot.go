package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

const (
	plotWidth, plotHeight = 7.5 * vg.Inch, 3.8 * vg.Inch
	margin, legendLine    = 8 * vg.Length(1), 15 * vg.Length(1) // points
	// drawnWith is the font whose metrics determine the plot's layout; shownWith are similar ones
	// for systems without it.
	drawnWith, shownWith = "Liberation Sans", "Liberation Sans,Arial,Helvetica,sans-serif"
)

// A style is how a contender is drawn: in a color that color-blind readers can distinguish from the
// others (Okabe and Ito's), and with dashes, for those who see no colors.
type style struct {
	color  color.Color
	dashes []vg.Length
}

func palette() []style {
	return []style{
		{color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, nil},
		{color.RGBA{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, []vg.Length{6, 2}},
		{color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, []vg.Length{2, 2}},
		{color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff}, []vg.Length{8, 2, 2, 2}},
		{color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, []vg.Length{4, 4}},
		{color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, []vg.Length{1, 3}},
	}
}

// styles assigns each contender its own, the first to Underlay, the others by their order on the
// page. Contenders of a later subject don't affect the styles of an earlier one, so measuring it
// changes no other plot.
func styles(all []section) map[string]style {
	out := map[string]style{ours: palette()[0]}
	for _, s := range all {
		for _, p := range s.plots {
			used := 0 // by the contenders of this plot
			taken := func(i int) bool {
				return slices.ContainsFunc(p.lines, func(l results.Line) bool {
					has, ok := out[l.Contender]
					return ok && has.color == palette()[i].color
				})
			}
			for _, l := range p.lines {
				if _, has := out[l.Contender]; has {
					continue
				}
				for used < len(palette())-1 && taken(used) {
					used++
				}
				out[l.Contender] = palette()[used]
			}
		}
	}
	return out
}

// plots draws every plot; the names are those of the files.
func plots(all []section) (map[string][]byte, error) {
	out, styles := map[string][]byte{}, styles(all)
	for _, s := range all {
		for _, p := range s.plots {
			name := slug(p.title) + ".svg"
			if _, twice := out[name]; twice {
				return nil, fmt.Errorf("%s: two plots are called %q: give one another title", s.subject, p.title)
			}
			svg, err := p.svg(styles)
			if err != nil {
				return nil, fmt.Errorf("%s: plot %q: %w", s.subject, p.title, err)
			}
			out[name] = svg
		}
	}
	return out, nil
}

// svg is the same for the same records. Its background is opaque, so that it is readable on a dark
// page.
func (p plotted) svg(styles map[string]style) ([]byte, error) {
	drawn := plot.New()
	drawn.BackgroundColor = color.White
	drawn.Title.Text = p.title
	drawn.X.Label.Text, drawn.Y.Label.Text = p.lines[0].X, p.lines[0].Y
	legend := plot.NewLegend()
	legend.ThumbnailWidth, legend.Padding, legend.Left, legend.Top = 10*vg.Millimeter, 3, true, true
	for _, f := range []*font.Font{
		&drawn.Title.TextStyle.Font, &drawn.X.Label.TextStyle.Font, &drawn.Y.Label.TextStyle.Font,
		&drawn.X.Tick.Label.Font, &drawn.Y.Tick.Label.Font, &legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	drawn.Title.TextStyle.Font.Size = 14
	drawn.Title.Padding, drawn.X.Label.Padding, drawn.Y.Label.Padding = 8, 4, 4
	drawn.X.Tick.Marker, drawn.Y.Tick.Marker = plot.TickerFunc(even), plot.TickerFunc(even)
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xd0}, color.Gray{0xd0}
	drawn.Add(grid)
	for _, l := range p.lines {
		points, err := xys(l)
		if err != nil {
			return nil, err
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.Contender, err)
		}
		line.Width, line.Color, line.Dashes = 2, styles[l.Contender].color, styles[l.Contender].dashes
		drawn.Add(line)
		legend.Add(shown(l.Contender), line)
	}
	if p.lines[0].LogX {
		drawn.X.Scale, drawn.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(powers)
	} else {
		drawn.X.Min = 0
	}
	drawn.Y.Min = 0
	// The legend has its own area below, where it hides no line.
	below := legendLine*vg.Length(len(p.lines)) + margin
	canvas := vgsvg.New(plotWidth, plotHeight+below)
	whole := draw.New(canvas)
	whole.SetColor(color.White)
	whole.Fill(whole.Rectangle.Path())
	drawn.Draw(draw.Crop(whole, margin, -2*margin, below, -margin))
	legend.Draw(draw.Crop(whole, 5*margin, 0, 0, -plotHeight-margin/2))
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return bytes.ReplaceAll(out.Bytes(), []byte("font-family:"+drawnWith), []byte("font-family:"+shownWith)), nil
}

// xys are a line's points. It returns an error for a point that can't be drawn.
func xys(l results.Line) (plotter.XYs, error) {
	if len(l.Points) < 2 {
		return nil, fmt.Errorf("%s has %d points: a course has two at least", l.Contender, len(l.Points))
	}
	var out plotter.XYs
	for _, p := range l.Points {
		if l.LogX && p[0] <= 0 {
			return nil, fmt.Errorf("%s: x is %v, and is drawn logarithmically", l.Contender, p[0])
		}
		out = append(out, plotter.XY{X: p[0], Y: p[1]})
	}
	return out, nil
}

// even returns about six ticks at multiples of one, two or five times a power of ten.
func even(least, most float64) (out []plot.Tick) {
	apart := math.Pow(10, math.Floor(math.Log10((most-least)/6)))
	for _, times := range []float64{1, 2, 5, 10} {
		if (most-least)/(apart*times) <= 6 {
			apart *= times
			break
		}
	}
	for i := math.Ceil(least / apart); i*apart <= most; i++ {
		out = append(out, plot.Tick{Value: i * apart, Label: number(i * apart)})
	}
	return out
}

// powers are the powers of ten, and their multiples without a label.
func powers(least, most float64) []plot.Tick {
	all := plot.LogTicks{Prec: -1}.Ticks(least, most)
	for i := range all {
		if all[i].Label != "" {
			all[i].Label = number(all[i].Value)
		}
	}
	return all
}
