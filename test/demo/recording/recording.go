// Package recording turns the printed output of a demo into an animated picture: an SVG in which
// the lines appear with their original timing. It is pure, and invents nothing: lines and times are
// those of the output. It must never need a script or a font of its own, because README pages show
// neither.
package recording

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Recording is a demo's output with the time of each line.
type Recording struct{ lines []line }

type line struct {
	at   time.Duration
	text string
}

const (
	// longest is the longest pause in the picture, however long the real one was.
	longest = 1500 * time.Millisecond
	// reading is how long a table is shown at least before the next appears.
	reading = 2 * time.Second
	// typed is how long the command is shown before its output begins.
	typed = time.Second
	// columns is the width of the terminal. Longer lines are wrapped.
	columns = 112
)

var (
	// event is a line with a time since some start; milestone one since the start of the step.
	event     = regexp.MustCompile(`^ +\+([0-9.]+)s  (\S+) +(.*?)(?:  +(.*))?$`)
	milestone = regexp.MustCompile(`^ +([0-9.]+) s  `)
	held      = regexp.MustCompile(`^  ✓ after ([0-9.]+) s$`)
)

// Parse parses the output of a demo without color. Its first line is the command.
func Parse(output string) Recording {
	var r Recording
	var step, now time.Duration // start of the step, and time within it
	shift := typed
	for i, text := range strings.Split(strings.TrimRight(output, "\n"), "\n") {
		before := now
		switch {
		case i == 0:
			now = 0
		case strings.HasPrefix(text, "▸ "):
			step = now
		case strings.HasPrefix(text, "── "), strings.HasPrefix(text, "✓ "):
			shift += reading
		default:
			now = max(now, step+since(text))
		}
		if pause := now - before; pause > longest {
			shift -= pause - longest
		}
		at := now + shift
		if i == 0 {
			at = 0
		}
		for _, part := range broken(text) {
			r.lines = append(r.lines, line{at, part})
		}
	}
	return r
}

// since is the time in a line; 0: none. That of a step's end is among them.
func since(text string) time.Duration {
	for _, form := range []*regexp.Regexp{event, milestone, held} {
		if found := form.FindStringSubmatch(text); found != nil {
			seconds, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				return 0
			}
			return time.Duration(seconds * float64(time.Second))
		}
	}
	return 0
}

// broken are the lines of a terminal that show a text.
func broken(text string) []string {
	var out []string
	for utf8.RuneCountInString(text) > columns {
		runes := []rune(text)
		out, text = append(out, string(runes[:columns])), string(runes[columns:])
	}
	return append(out, text)
}
