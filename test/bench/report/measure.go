package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/test/bench/results"
)

// subjects are the folders below test/bench that have a target bench-<folder> in the Makefile, in
// the Makefile's order.
func subjects(tree string) ([]string, error) {
	makefile, err := os.ReadFile(filepath.Join(tree, "Makefile"))
	if err != nil {
		return nil, err
	}
	var out []string
	for _, target := range regexp.MustCompile(`(?m)^bench-([a-z0-9]+):`).FindAllSubmatch(makefile, -1) {
		name := string(target[1])
		if info, err := os.Stat(filepath.Join(tree, "test/bench", name)); err == nil && info.IsDir() {
			out = append(out, name)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the Makefile has no target bench-<folder> for any folder of test/bench")
	}
	return out, nil
}

// chosen are those that the list names, or all if it is empty.
func chosen(all []string, only string) ([]string, error) {
	if only == "" {
		return all, nil
	}
	var out []string
	for name := range strings.SplitSeq(only, ",") {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("ONLY names %q: there are %s", name, strings.Join(all, ", "))
		}
		out = append(out, name)
	}
	return out, nil
}

// measure runs the subjects' benchmarks one after the other, and keeps their records. It continues
// after a failure, and returns all of them.
func measure(ctx context.Context, tree string, subjects []string) error {
	var failed []error
	m, err := machine(ctx, tree) // now: later the new records make the tree dirty
	if err != nil {
		return err
	}
	for _, subject := range subjects {
		if ctx.Err() != nil {
			return errors.Join(append(failed, ctx.Err())...)
		}
		if err := measureOne(ctx, tree, subject, m); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w; what was recorded before stays", subject, err))
		}
	}
	return errors.Join(failed...)
}

func measureOne(ctx context.Context, tree, subject string, m results.Machine) error {
	fresh, err := os.MkdirTemp("", "bench-"+subject+"-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh)
	// The benchmarks themselves end the processes that they started, when make's group is
	// interrupted.
	cmd := exec.Command(filepath.Join(tree, ".ci/step"), "benchmarks: "+subject, "make", "--no-print-directory", "bench-"+subject)
	cmd.Dir, cmd.Stdout, cmd.Stderr = tree, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), results.Folder+"="+fresh)
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	m.Date, m.Seconds = began.UTC().Format(time.DateOnly), int(time.Since(began).Seconds())
	entries, err := readFile(filepath.Join(fresh, results.File))
	if err != nil {
		return fmt.Errorf("reading what it recorded: %w", err)
	}
	return keep(tree, subject, append([]results.Entry{{Machine: &m}}, entries...))
}

// keep replaces a subject's records.
func keep(tree, subject string, entries []results.Entry) error {
	var out bytes.Buffer
	for _, e := range settled(entries) {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		out.Write(append(line, '\n'))
	}
	return writeFiles(tree, map[string][]byte{filepath.Join(folder, subject+".jsonl"): out.Bytes()})
}

// settled leaves out redundant entries: notes and versions that exist already, and lines that a
// later one replaces.
func settled(entries []results.Entry) (out []results.Entry) {
	for i, e := range entries {
		again := func(other results.Entry) bool {
			return e.Note != nil && other.Note != nil && *e.Note == *other.Note ||
				e.Version != nil && other.Version != nil && *e.Version == *other.Version
		}
		replaced := func(other results.Entry) bool {
			return e.Line != nil && other.Line != nil && e.Line.Plot == other.Line.Plot &&
				e.Line.Contender == other.Line.Contender
		}
		if !slices.ContainsFunc(out, again) && !slices.ContainsFunc(entries[i+1:], replaced) {
			out = append(out, e)
		}
	}
	return out
}

func readFile(path string) ([]results.Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	entries, err := results.Read(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return entries, nil
}
