// Package screen renders the demo's state as text. It is pure: the same input gives the same text,
// on every machine. It never reads a clock, a terminal or the environment: whether color is allowed
// is an argument.
package screen

import (
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/underlay-ccm/underlay/test/demo/state"
)

// Painter renders text; without Color it contains no escape codes.
type Painter struct{ Color bool }

// Select Graphic Rendition, ECMA-48 8.3.117.
const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (p Painter) paint(style, text string) string {
	if !p.Color || text == "" {
		return text
	}
	return "\x1b[" + style + "m" + text + "\x1b[0m"
}

// subject has a color of its own, always the same; names that differ in their last digit only have
// different ones.
func (p Painter) subject(name, padded string) string {
	colors := []string{"36", "35", "34", "96", "95", "94", "37"}
	sum := 0
	for i := range len(name) {
		sum += int(name[i])
	}
	return p.paint(colors[sum%len(colors)], padded)
}

// Widths of a timeline's columns; longer texts shift the rest.
const (
	subjectWidth = 7
	whatWidth    = 24
)

// Heading begins a step.
func (p Painter) Heading(number, of int, title string) string {
	return "\n" + p.paint(bold, fmt.Sprintf("▸ %d/%d %s", number, of, title)) + "\n"
}

// Note is a line of explanation.
func (p Painter) Note(text string) string { return p.paint(dim, "  "+text) + "\n" }

// Event is one line of the timeline, with the time since its subject's start.
func (p Painter) Event(e state.Event) string { return p.event(Since(e.Since), e) }

// EventAt is one line of the timeline with the time of day, for changes that users make without a
// start.
func (p Painter) EventAt(at time.Time, e state.Event) string {
	return p.event(at.Format(time.TimeOnly), e)
}

func (p Painter) event(when string, e state.Event) string {
	style := ""
	switch {
	case e.Over:
		style = yellow
	case e.What == state.Ready || strings.HasSuffix(e.What, "healthy"):
		style = green
	}
	what := pad(e.What, whatWidth)
	if style != "" {
		what = p.paint(style, what)
	}
	line := fmt.Sprintf("  %6s  %s  %s", when, p.subject(e.Subject, pad(e.Subject, subjectWidth)), what)
	if e.Detail != "" {
		line += "  " + p.paint(dim, e.Detail)
	}
	return strings.TrimRight(line, " ") + "\n"
}

// Since is a time from the start of something.
func Since(d time.Duration) string { return fmt.Sprintf("+%.1fs", d.Seconds()) }

// Result is the outcome of a step.
type Result struct {
	Name  string
	Title string
	Took  time.Duration
	// Err is the error; nil: the step succeeded. A step that was never started has Took 0 and
	// Skipped.
	Err     error
	Skipped bool
	// Missing is the expected state that was missing.
	Missing []string
}

// Held is the line that ends a successful step.
func (p Painter) Held(r Result) string {
	return p.paint(green, fmt.Sprintf("  ✓ after %.1f s", r.Took.Seconds())) + "\n"
}

// Failure is a text about the failed step, the expected state, and the logs.
func (p Painter) Failure(r Result, logs string) string {
	var b strings.Builder
	b.WriteString("\n" + p.paint(red, fmt.Sprintf("✗ %s: %v", r.Title, r.Err)) + "\n")
	if len(r.Missing) > 0 {
		b.WriteString("  expected, and not there:\n")
	}
	for _, m := range r.Missing {
		b.WriteString("    " + m + "\n")
	}
	b.WriteString("  logs: " + logs + "\n")
	return b.String()
}

// Summary is one line with all steps.
func (p Painter) Summary(results []Result) string {
	var parts []string
	var sum time.Duration
	for _, r := range results {
		sum += r.Took
		switch {
		case r.Skipped:
			parts = append(parts, p.paint(dim, "– "+r.Name))
		case r.Err != nil:
			parts = append(parts, p.paint(red, fmt.Sprintf("✗ %s %.1fs", r.Name, r.Took.Seconds())))
		default:
			parts = append(parts, p.paint(green, fmt.Sprintf("✓ %s %.1fs", r.Name, r.Took.Seconds())))
		}
	}
	return fmt.Sprintf("\n%s  = %.1fs\n", strings.Join(parts, "  "), sum.Seconds())
}

// Status describes the missing state that is waited for, in one line of at most width columns.
func (p Painter) Status(elapsed time.Duration, missing []string, width int) string {
	text := fmt.Sprintf("  … %.0f s, waiting for %s", elapsed.Seconds(), strings.Join(missing, "; "))
	if runes := []rune(text); len(runes) > width {
		text = string(runes[:max(0, width-1)]) + "…"
	}
	return p.paint(dim, text)
}

func pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(text)))
}

func orDash(text string) string { return cmp.Or(text, "–") }
