package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/table"
)

// feed provides successive Snapshots: a survey.Watcher.
type feed interface {
	Look(ctx context.Context) (survey.Live, error)
}

// shower prints successive pages: in place on a terminal, otherwise those that differ, as a block
// with its time, a line of JSON, or a YAML document.
type shower struct {
	w            process
	o            *options
	title        string // the command as typed by the user
	of           func(*survey.Snapshot) (table.Page, error)
	shown        []byte   // the last printed page
	shownRemarks []string // the last remarks on standard error
}

// clearScreen moves the cursor to the top, and clears the terminal below it (ECMA-48).
const clearScreen = "\x1b[H\x1b[J"

// follow prints a feed until ctx is done. Only an error of the first page is returned.
func (s *shower) follow(ctx context.Context, from feed) error {
	var page table.Page
	for first := true; ; first = false {
		live, err := from.Look(ctx)
		if err != nil {
			return nil // Ctrl-C
		}
		next, err := s.of(live.Snapshot)
		switch {
		case err == nil:
			page = next
		case first:
			return err
		case live.Trouble == "":
			live.Trouble = "not up to date: " + err.Error()
		}
		if err := s.show(live, page); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(survey.ShortestPause):
		}
	}
}

func (s *shower) show(live survey.Live, page table.Page) error {
	remarks := page.Remarks()
	if live.Trouble != "" {
		remarks = append([]string{"trouble: " + table.OneLine(live.Trouble)}, remarks...)
	}
	content, err := json.Marshal(page.Values())
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	if s.redraws() {
		s.shown, s.shownRemarks = nil, nil // add clears them
	}
	if !bytes.Equal(content, s.shown) {
		s.shown = content
		if err := s.add(live, page, content); err != nil {
			return err
		}
	}
	for _, line := range remarks {
		if !slices.Contains(s.shownRemarks, line) {
			fmt.Fprintln(s.w.stderr, line)
		}
	}
	s.shownRemarks = remarks
	return nil
}

func (s *shower) add(live survey.Live, page table.Page, content []byte) error {
	text := s.o.painter(s.w).Page(page)
	taken := live.Snapshot.Taken.UTC().Format(time.RFC3339)
	switch {
	case s.o.output == "json":
		text = table.Harmless(string(content))
	case s.o.output == "yaml":
		if _, err := fmt.Fprintln(s.w.stdout, "---"); err != nil {
			return err
		}
		return s.o.print(s.w, table.Page{}, page.Values())
	case s.redraws():
		text = clearScreen + taken + "  " + s.title + "  Ctrl-C ends it\n\n" + text
	default:
		text = taken + "\n" + text
	}
	_, err := fmt.Fprintln(s.w.stdout, text)
	return err
}

// redraws reports whether pages overwrite each other.
func (s *shower) redraws() bool {
	return s.w.terminal && s.w.getenv("TERM") != "dumb" &&
		(s.o.output == "table" || s.o.output == "wide")
}
