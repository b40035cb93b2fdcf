package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
)

// teller says what is going on, on standard error. On a terminal what is being done stands in the
// last line and gives way to what comes next.
type teller struct {
	mu      sync.Mutex
	out     io.Writer
	paint   painter
	live    bool
	prefix  string // of names that isn't said
	doing   bool   // something stands in the last line
	silence bool
}

// narrowest is how much of what is being done stands on a terminal of 80 columns.
const narrowest = 76

const freshLine = "\r\x1b[K"

// progress says what is being done now.
func (t *teller) progress(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silence {
		return
	}
	what = oneLine(what)
	if t.prefix != "" {
		what = strings.ReplaceAll(what, t.prefix, "")
	}
	if !t.live {
		fmt.Fprintln(t.out, "  "+what)
		return
	}
	// A line that wraps could not be cleared.
	if runes := []rune(what); len(runes) > narrowest {
		what = string(runes[:narrowest-1]) + "…"
	}
	fmt.Fprint(t.out, freshLine+t.paint.paint(faint, "  "+what))
	t.doing = true
}

// say writes a line that stays.
func (t *teller) say(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silence {
		return
	}
	if t.doing {
		fmt.Fprint(t.out, freshLine)
	}
	t.doing = false
	fmt.Fprintln(t.out, line)
}

// stop lets nothing more be said.
func (t *teller) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.doing {
		fmt.Fprint(t.out, freshLine)
	}
	t.doing, t.silence = false, true
}

// consent asks, unless --yes was given.
func (m *measuring) consent(ctx context.Context, w process, question, remedy string) error {
	if m.yes {
		return nil
	}
	if !w.asks {
		return errors.New("nobody can be asked here: " + remedy)
	}
	fmt.Fprint(w.stderr, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(w.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(w.stderr)
		return errors.New("nothing was made: it was interrupted")
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
	}
	return errors.New("nothing was done: the answer was not yes")
}
