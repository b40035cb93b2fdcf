package sysctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options holds the folders of sysctls and of the record.
type Options struct {
	// Root is the folder of sysctls; default /proc/sys.
	Root string
	// StateDir holds the record; default /run/underlay. A reboot must empty it.
	StateDir string
}

// Sysctls manages the sysctls of this machine. Not safe for concurrent use.
type Sysctls struct{ options Options }

// New returns Sysctls; it changes nothing.
func New(o Options) *Sysctls {
	o.Root = cmp.Or(o.Root, "/proc/sys")
	o.StateDir = cmp.Or(o.StateDir, "/run/underlay")
	return &Sysctls{options: o}
}

// Plan returns the changes that Apply would make, one line each.
func (s *Sysctls) Plan(_ context.Context, want Desired) (changes, warnings []string, err error) {
	planned, err := s.plan(want)
	for _, c := range planned {
		changes = append(changes, c.String())
	}
	return changes, nil, err
}

// Apply sets the values that are not sufficient, and returns a line per changed value.
func (s *Sysctls) Apply(_ context.Context, want Desired) (changed, warnings []string, err error) {
	planned, err := s.plan(want)
	if err != nil || len(planned) == 0 {
		return nil, nil, err
	}
	if err := s.remember(planned); err != nil {
		return nil, nil, err
	}
	for _, c := range planned {
		switch err := s.write(c.key, c.to); {
		case errors.Is(err, fs.ErrNotExist): // the interface was removed concurrently
		case err != nil:
			return changed, nil, fmt.Errorf("%w; run the agent with the host's /proc/sys mounted writable, or set the value by hand", err)
		default:
			changed = append(changed, c.String())
		}
	}
	return changed, nil, nil
}

// Cleanup restores the values that Apply changed, in this process or an earlier one, in reverse
// order. A value that another program has changed since is kept.
func (s *Sysctls) Cleanup(_ context.Context) (changed []string, err error) {
	recorded, err := s.readRecord()
	if err != nil || len(recorded) == 0 {
		return nil, err
	}
	var failed record
	var problems []error
	for _, e := range slices.Backward(recorded) {
		lines, err := s.undo(e)
		changed = append(changed, lines...)
		if err != nil {
			failed = append(record{e}, failed...)
			problems = append(problems, err)
		}
	}
	if err := s.writeRecord(failed); err != nil {
		problems = append(problems, err)
	}
	return changed, errors.Join(problems...)
}

func (s *Sysctls) plan(want Desired) ([]change, error) {
	for _, link := range slices.Concat(want.RouterAdvertised, want.Asymmetric, want.ProxyARP) {
		if link == "" || link == "." || link == ".." || strings.Contains(link, "/") {
			return nil, fmt.Errorf("%q is no name of an interface", link)
		}
	}
	have := values{}
	for _, key := range needed(want) {
		switch value, err := s.read(key); {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, err
		default:
			have[key] = value
		}
	}
	return plan(want, have)
}

// remember records the values before the changes. It never replaces the record of a value,
// because a later value may be our own.
func (s *Sysctls) remember(planned []change) error {
	recorded, err := s.readRecord()
	if err != nil {
		return err
	}
	known := len(recorded)
	for _, c := range planned {
		if recorded.has(c.key) {
			continue
		}
		before, err := s.along(c.key)
		if err != nil {
			return err
		}
		recorded = append(recorded, entry{Key: c.key, Before: c.from, After: c.to, Along: before})
	}
	if len(recorded) == known {
		return nil
	}
	return s.writeRecord(recorded)
}

// along returns the values that the kernel changes when the key is written.
func (s *Sysctls) along(key string) (values, error) {
	found := values{}
	for _, glob := range along(key) {
		paths, err := filepath.Glob(filepath.Join(s.options.Root, glob))
		if err != nil {
			return nil, fmt.Errorf("looking for the sysctls %s: %w", glob, err)
		}
		for _, path := range paths {
			other, err := filepath.Rel(s.options.Root, path)
			if err != nil || other == key {
				continue
			}
			switch value, err := s.read(other); {
			case errors.Is(err, fs.ErrNotExist):
			case err != nil:
				return nil, err
			default:
				found[other] = value
			}
		}
	}
	return found, nil
}

// undo restores a value and those that the kernel changed with it.
func (s *Sysctls) undo(e entry) (changed []string, err error) {
	put := func(key, before string, ours func(string) bool) error {
		value, err := s.read(key)
		if err == nil && value != before && ours(value) {
			if err = s.write(key, before); err == nil {
				changed = append(changed, fmt.Sprintf("%s was %s, is %s again", key, value, before))
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // the interface was removed
			return nil
		}
		return err
	}
	if err := put(e.Key, e.Before, func(now string) bool { return now == e.After }); err != nil {
		return changed, err
	}
	if now, err := s.read(e.Key); err != nil || now != e.Before {
		return changed, nil
	}
	var problems []error
	for _, key := range slices.Sorted(maps.Keys(e.Along)) {
		problems = append(problems, put(key, e.Along[key], func(string) bool { return true }))
	}
	return changed, errors.Join(problems...)
}

func (s *Sysctls) read(key string) (string, error) {
	content, err := os.ReadFile(filepath.Join(s.options.Root, key))
	if err != nil {
		return "", fmt.Errorf("reading the sysctl %s: %w", key, err)
	}
	return strings.TrimSpace(string(content)), nil
}

func (s *Sysctls) write(key, value string) error {
	// No O_CREATE: a missing file is a sysctl that doesn't exist.
	file, err := os.OpenFile(filepath.Join(s.options.Root, key), os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return fmt.Errorf("setting the sysctl %s to %s: %w", key, value, err)
	}
	_, err = file.WriteString(value + "\n")
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("setting the sysctl %s to %s: %w", key, value, err)
	}
	return nil
}
