package sysctl

import (
	"context"
	"encoding/json"
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
	// Root is the folder of sysctls, /proc/sys.
	Root string
	// StateDir holds the record. A reboot must empty it.
	StateDir string
}

// Sysctls manages the sysctls of this machine. Not safe for concurrent use.
type Sysctls struct{ options Options }

// New returns Sysctls; it changes nothing.
func New(o Options) *Sysctls { return &Sysctls{options: o} }

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
	var failed error
	changes, err := plan(want, func(key string) (string, bool) {
		value, err := s.read(key)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
		return value, err == nil
	})
	if failed != nil {
		return nil, failed
	}
	return changes, err
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
		if slices.ContainsFunc(recorded, func(e entry) bool { return e.Key == c.key }) {
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
func (s *Sysctls) along(key string) (map[string]string, error) {
	found := map[string]string{}
	for _, glob := range map[string][]string{
		forwardIPv4: {"net/ipv4/conf/*/forwarding", "net/ipv4/conf/all/accept_redirects"},
		forwardIPv6: {"net/ipv6/conf/*/forwarding"},
	}[key] {
		others, err := fs.Glob(os.DirFS(s.options.Root), glob)
		if err != nil {
			return nil, fmt.Errorf("looking for the sysctls %s: %w", glob, err)
		}
		for _, other := range others {
			value, err := s.read(other)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			if err == nil && other != key {
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

type entry struct {
	Key string `json:"key"`
	// Before is the value before the first change, After the value that was set.
	Before string `json:"before"`
	After  string `json:"after"`
	// Along holds the previous values of sysctls that the kernel changed with it.
	Along map[string]string `json:"along,omitempty"`
}

// record lists the changed sysctls in the order of the changes.
type record []entry

func (s *Sysctls) recordPath() string { return filepath.Join(s.options.StateDir, "sysctl.json") }

func (s *Sysctls) readRecord() (record, error) {
	path := s.recordPath()
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading which values sysctls had before: %w", err)
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return nil, fmt.Errorf("%s, which has the previous values of sysctls, is damaged: %w; check it and remove it, cleanup will then leave the sysctls as they are", path, err)
	}
	return r, nil
}

// writeRecord replaces the file of the record atomically, or removes it if the record is empty.
func (s *Sysctls) writeRecord(r record) error {
	path := s.recordPath()
	if len(r) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the record of sysctls: %w", err)
		}
		return nil
	}
	content, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(s.options.StateDir, 0o755)
	}
	if err == nil {
		err = os.WriteFile(path+".tmp", append(content, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return fmt.Errorf("recording which values sysctls had before: %w", err)
	}
	return nil
}
