package ipam

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// file is one object, by itself: what it should have, and what is known to be stored.
type file struct {
	stored  map[string]string // nil: not known, or not there
	pending map[string]string // by name, what it should hold instead; nothing: it should be gone
	due     time.Time         // when that is to be written; zero: nothing is pending
	size    int               // of names and lines, as they should be, in bytes
	text    int               // of the lines alone
	names   int               // how many there should be
}

// is takes in what the object has.
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

// count adds a line to the size, or takes it off.
func (f *file) count(name, text string, times int) {
	if text != "" {
		f.size += times * (len(name) + len(text))
		f.text += times * len(text)
		f.names += times
	}
}

// has reports whether a name is stored, or is to be.
func (f *file) has(name string) bool {
	_, stored := f.stored[name]
	_, waits := f.pending[name]
	return stored || waits
}

// set says what the object should have under a name, and by when.
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

// differences are the names of which something else is stored than should be. What isn't different
// after all is pending no more.
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

// entries are the lines that an object should have.
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

// adds reports whether an object is to have something under a name that it doesn't have.
func (f *file) adds(name string) bool {
	text, waits := f.pending[name]
	if !waits {
		return false
	}
	stored := strings.Fields(f.stored[name])
	return slices.ContainsFunc(strings.Fields(text), func(word string) bool { return !slices.Contains(stored, word) })
}
