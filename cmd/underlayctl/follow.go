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

// feed provides successive Snapshots: a survey.Watcher.
type feed interface {
	Look(ctx context.Context) (survey.Live, error)
}

// shower prints successive views: in place on a terminal, otherwise only those that changed.
type shower[V table.Shown] struct {
	w            process
	o            *options
	title        string // the command as typed by the user
	of           func(*survey.Snapshot) (V, error)
	shown        []byte   // the last printed view
	shownRemarks []string // the last remarks on standard error
}

// follow prints a feed until ctx is done. Only an error of the first view is returned.
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

func (s *shower[V]) show(live survey.Live, view V) error {
	if s.w.redraws(s.o) {
		_, err := fmt.Fprint(s.w.stdout, s.frame(live, view))
		return err
	}
	content, err := json.Marshal(view)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	if changed := !bytes.Equal(content, s.shown); changed {
		s.shown = content
		if err := s.add(live, view, content); err != nil {
			return err
		}
	}
	shownRemarks := remarks(live, view.Page())
	for _, line := range shownRemarks {
		if !slices.Contains(s.shownRemarks, line) {
			fmt.Fprintln(s.w.stderr, line)
		}
	}
	s.shownRemarks = shownRemarks
	return nil
}

// add prints a view as a block with its time, a line of JSON, or a YAML document.
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

// ECMA-48 sequences: cursor to the top, clear below and to the right of it; and disabling line
// wrap, which would make the frame longer.
const (
	home        = "\x1b[H"
	clearScreen = home + "\x1b[2J"
	clearLine   = "\x1b[K"
	clearBelow  = "\x1b[J"
	cutLines    = "\x1b[?7l"
	breakLines  = "\x1b[?7h"
)

// frame returns a view that overwrites the previous one on a terminal. It is a single write, so
// that no partial frame is visible and the terminal's modes are restored.
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
	// The last line is kept free for the cursor.
	if room := s.w.lines() - 1; room > 1 && len(lines) > room {
		hidden := len(lines) - room + 1
		lines = append(lines[:room-1], p.Paint(table.Faint, fmt.Sprintf("%d more lines: make the terminal higher, or watch without a terminal: | cat", hidden)))
	}
	return cutLines + home + strings.Join(lines, clearLine+"\n") + clearLine + "\n" + clearBelow + breakLines
}

func remarks(live survey.Live, shown table.Page) []string {
	var out []string
	if live.Trouble != "" {
		out = append(out, "trouble: "+table.OneLine(live.Trouble))
	}
	return append(out, shown.Remarks()...)
}

func clock(live survey.Live) string { return live.Snapshot.Taken.UTC().Format(time.RFC3339) }

// redraws reports whether views overwrite each other.
func (w process) redraws(o *options) bool {
	return w.terminal && w.getenv("TERM") != "dumb" && (o.output == "table" || o.output == "wide")
}

// lines returns the terminal's height, 0 if unknown.
func (w process) lines() int {
	if w.height == nil {
		return 0
	}
	return w.height()
}
