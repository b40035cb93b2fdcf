package main

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/term"

	"github.com/underlay-ccm/underlay/test/demo/screen"
)

// terminal is the demo's output. On a real one there is color, and a last line with the state that
// is waited for; elsewhere there are plain lines.
type terminal struct {
	screen.Painter
	out    io.Writer
	width  int
	status bool // the last line is a status
}

// openTerminal determines the kind of a file. NO_COLOR: see no-color.org.
func openTerminal(f *os.File, env func(string) string) *terminal {
	t := &terminal{out: f, width: 80}
	if term.IsTerminal(int(f.Fd())) && env("NO_COLOR") == "" && env("TERM") != "dumb" {
		t.Color = true
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			t.width = width
		}
	}
	return t
}

// print adds text below everything so far.
func (t *terminal) print(text string) {
	t.wipe()
	fmt.Fprint(t.out, text)
}

// wait shows a status until the next print.
func (t *terminal) wait(status string) {
	if !t.Color {
		return
	}
	t.wipe()
	fmt.Fprint(t.out, status)
	t.status = true
}

func (t *terminal) wipe() {
	if t.status {
		fmt.Fprint(t.out, "\r\x1b[2K")
		t.status = false
	}
}
