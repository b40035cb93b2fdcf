package sysctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

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

func (r record) has(key string) bool {
	return slices.ContainsFunc(r, func(e entry) bool { return e.Key == key })
}

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
	if err != nil {
		return fmt.Errorf("recording which values sysctls had before: %w", err)
	}
	if err := os.MkdirAll(s.options.StateDir, 0o755); err != nil {
		return fmt.Errorf("recording which values sysctls had before: %w", err)
	}
	temporary := path + ".tmp"
	if err := os.WriteFile(temporary, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("recording which values sysctls had before: %w", err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("recording which values sysctls had before: %w", err)
	}
	return nil
}
