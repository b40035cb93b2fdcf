package ipam

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// file is the desired and the stored state of one object.
type file struct {
	stored  map[string]string // nil: not read, or the object doesn't exist
	pending map[string]string // by name, the desired text; empty: to be removed
	due     time.Time         // when pending is to be written; zero: nothing pending
	size    int               // desired bytes of names and lines
	text    int               // desired bytes of lines alone
	names   int               // desired number of names
}

func (f *file) is(entries map[string]string) {
	f.stored = entries
	f.size, f.text, f.names = 0, 0, 0
	for name, text := range entries {
		if isName(name) {
			f.count(name, text, 1)
		}
	}
	for name, text := range f.pending {
		f.count(name, entries[name], -1)
		f.count(name, text, 1)
	}
	f.differences()
}

// count adds a line to the sizes, or subtracts it if times is -1.
func (f *file) count(name, text string, times int) {
	if text != "" {
		f.size += times * (len(name) + len(text))
		f.text += times * len(text)
		f.names += times
	}
}

func (f *file) has(name string) bool {
	_, stored := f.stored[name]
	_, waits := f.pending[name]
	return stored || waits
}

// set records what the object should have under a name, and by when.
func (f *file) set(name, text string, by time.Time) {
	before, waits := f.pending[name]
	if !waits {
		before = f.stored[name]
	}
	if before != text {
		f.count(name, before, -1)
		f.count(name, text, 1)
		f.pending[name] = text
	}
	if _, waits := f.pending[name]; waits && (f.due.IsZero() || by.Before(f.due)) {
		f.due = cmp.Or(by, f.due, time.Unix(0, 0))
	}
}

// differences returns the names to be changed. It drops pending entries that already match.
func (f *file) differences() []string {
	var names []string
	for name, text := range f.pending {
		if text == f.stored[name] {
			delete(f.pending, name)
		} else {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		f.due = time.Time{}
	}
	return names
}

func (f *file) entries() map[string]string {
	entries := map[string]string{}
	for name, text := range f.stored {
		if isName(name) {
			entries[name] = text
		}
	}
	for name, text := range f.pending {
		if text == "" {
			delete(entries, name)
		} else {
			entries[name] = text
		}
	}
	return entries
}

// adds reports whether the pending text of a name has words that are not stored.
func (f *file) adds(name string) bool {
	text, waits := f.pending[name]
	if !waits {
		return false
	}
	stored := strings.Fields(f.stored[name])
	return slices.ContainsFunc(strings.Fields(text), func(word string) bool { return !slices.Contains(stored, word) })
}
