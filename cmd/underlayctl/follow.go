package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

// feed is looks that follow each other: a survey.Watcher.
type feed interface {
	Look(ctx context.Context) (survey.Live, error)
}

// shower shows one look after the other: on a terminal in place, else only what
// changed, below what was there.
type shower[V table.Shown] struct {
	w     process
	o     *options
	title string // the command, as a person called it
	of    func(*survey.Snapshot) (V, error)
	shown []byte   // the view that was shown last
	said  []string // what standard error was told last
}

// follow shows each look of a feed until ctx ends. A first look that shows nothing is an
// error; a later one is shown as trouble.
func (s *shower[V]) follow(ctx context.Context, from feed) error {
	var view V
	for first := true; ; first = false {
		live, err := from.Look(ctx)
		if err != nil {
			return nil // Ctrl-C
		}
		next, err := s.of(live.Snapshot)
		switch {
		case err == nil:
			view = next
		case first:
			return err
		case live.Trouble == "":
			live.Trouble = "not up to date: " + err.Error()
		}
		if first && s.w.redraws(s.o) {
			fmt.Fprint(s.w.stdout, clearScreen)
		}
		if err := s.show(live, view); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(survey.ShortestPause):
		}
	}
}

// show shows one look.
func (s *shower[V]) show(live survey.Live, view V) error {
	content, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	if s.w.redraws(s.o) {
		_, err := fmt.Fprint(s.w.stdout, s.frame(live, view))
		return err
	}
	if changed := !bytes.Equal(content, s.shown); changed {
		s.shown = content
		if err := s.add(live, view, content); err != nil {
			return err
		}
	}
	said := remarks(live, view.Page())
	for _, line := range said {
		if !slices.Contains(s.said, line) {
			fmt.Fprintln(s.w.stderr, line)
		}
	}
	s.said = said
	return nil
}

// add writes a look below the earlier ones: a block with its time, a line of JSON, or a
// document of YAML.
func (s *shower[V]) add(live survey.Live, view V, content []byte) error {
	switch s.o.output {
	case "json":
		_, err := fmt.Fprintln(s.w.stdout, table.Harmless(string(content)))
		return err
	case "yaml":
		if _, err := fmt.Fprintln(s.w.stdout, "---"); err != nil {
			return err
		}
		return s.o.print(s.w, view)
	}
	_, err := fmt.Fprintf(s.w.stdout, "%s\n%s\n", clock(live), s.o.painter(s.w).Page(view.Page()))
	return err
}

// ECMA-48: the cursor at the top, nothing below it, nothing right of it; and lines that
// are cut at the right side instead of being broken, which would make the frame longer.
const (
	home        = "\x1b[H"
	clearScreen = home + "\x1b[2J"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	cutLines    = "\x1b[?7l"
	breakLines  = "\x1b[?7h"
)

// frame is a look on a terminal, over the one before. It is one write, so that no half
// of it is ever seen and the terminal is left as it was found.
func (s *shower[V]) frame(live survey.Live, view V) string {
	p, shown := s.o.painter(s.w), view.Page()
	head := p.Paint(table.Faint, clock(live)+"  "+s.title+"  Ctrl-C ends it")
	lines := append([]string{head, ""}, strings.Split(strings.TrimSuffix(p.Page(shown), "\n"), "\n")...)
	if more := remarks(live, shown); len(more) > 0 {
		lines = append(lines, "")
		for _, line := range more {
			lines = append(lines, p.Paint(table.Warn, line))
		}
	}
	// The last line stays free for the cursor.
	if room := s.w.lines() - 1; room > 1 && len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(lines[:room-1], p.Paint(table.Faint, fmt.Sprintf("%d more lines: make the terminal higher, or watch without a terminal: | cat", hidden)))
	}
	return cutLines + home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearBelow + breakLines
}

// remarks are what goes to standard error where there is no terminal.
func remarks(live survey.Live, shown table.Page) []string {
	var out []string
	if live.Trouble != "" {
		out = append(out, "trouble: "+table.OneLine(live.Trouble))
	}
	return append(out, shown.Remarks()...)
}

func clock(live survey.Live) string { return live.Snapshot.Taken.UTC().Format(time.RFC3339) }

// redraws reports whether looks are drawn over each other: for people, on a terminal
// that can.
func (w process) redraws(o *options) bool {
	return w.terminal && w.getenv("TERM") != "dumb" && (o.output == "table" || o.output == "wide")
}

// lines is the terminal's height; 0 where it isn't known.
func (w process) lines() int {
	if w.height == nil {
		return 0
	}
	return w.height()
}
