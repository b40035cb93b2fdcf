// Package recording turns the printed output of a demo into a picture that moves: an SVG
// in which the lines come at the pace at which they came. It is pure, and invents
// nothing: lines and times are those of the output. What it must never do is need a
// script or a font of its own, because README pages show neither.
package recording

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Recording is a demo's output with the time at which each line came.
type Recording struct{ lines []line }

type line struct {
	at   time.Duration
	text string
}

const (
	// longest is how long the picture stands still at most, however long nothing came.
	longest = 1500 * time.Millisecond
	// reading is how long a table stands at least before the next comes.
	reading = 2 * time.Second
	// typed is how long the command stands before its output begins.
	typed = time.Second
	// columns is the width of the terminal. Longer lines go on in the next.
	columns = 112
)

var (
	// event is a line with a time since something began; milestone one since the step did.
	event     = regexp.MustCompile(`^ +\+([0-9.]+)s  (\S+) +(.*?)(?:  +(.*))?$`)
	milestone = regexp.MustCompile(`^ +([0-9.]+) s  `)
	held      = regexp.MustCompile(`^  ✓ after ([0-9.]+) s$`)
)

// Parse reads the output of a demo, as it is printed where there is no color. Its first
// line is the command.
func Parse(output string) Recording {
	var r Recording
	var step, now time.Duration // when the step began, and how far it is
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

// since is the time that a line says; 0: none. That of a step's end is among them.
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
