package ipam

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Files plans the writes of a Ledger's stored form: it has the last observed entries of each
// object and the changes pending for them. Every write replaces one object at the version observed
// here. A writer that finds an object changed must read it again and rebuild.
type Files struct {
	ledger *Ledger
	files  [Shards]file
}

// file is the desired and the stored state of one object.
type file struct {
	stored  map[string]string
	pending map[string]string // by name, the desired text; empty: to be removed
	due     time.Time         // when pending is to be written; zero: nothing pending, or sent
	sent    bool              // a write is in flight
	bytes   int               // desired size of names and lines
}

// A Write is the desired content of one object.
type Write struct {
	Object  int
	Entries map[string]string
	// Names lists the entries that the write changes.
	Names []string
	Bytes int // of names and lines
}

// NewFiles returns the Files for these stored entries.
func NewFiles(l *Ledger, stored Objects) *Files {
	f := &Files{ledger: l}
	for object, entries := range stored {
		file := &f.files[object]
		file.stored, file.pending = entries, map[string]string{}
		for name, text := range entries {
			if isName(name) {
				file.count(name, text, 1)
			}
		}
	}
	return f
}

// Update marks a name as pending in every object with a changed line, to be written by then.
func (f *Files) Update(name string, by time.Time) {
	lines := f.ledger.Records(name)
	for object := range f.files {
		f.files[object].set(name, lines[object], by)
	}
}

// Recorded reports whether every object that records a prefix of this UID has exactly its line.
func (f *Files) Recorded(uid string) bool {
	h, ok := f.ledger.holdings[uid]
	if !ok {
		return false
	}
	return !slices.ContainsFunc(h.shards(), func(object int) bool {
		lines := strings.Split(f.files[object].stored[h.Node.Name], "\n")
		return !slices.Contains(lines, h.part(object).Record())
	})
}

// Due returns the object to write next, and when. An object with a write in flight is left out.
func (f *Files) Due() (object int, due time.Time, ok bool) {
	for i := range f.files {
		file := &f.files[i]
		if !file.sent && len(file.pending) > 0 && (!ok || file.due.Before(due)) {
			object, due, ok = i, file.due, true
		}
	}
	return object, due, ok
}

// Write returns the desired content of an object, and takes it as sent.
func (f *Files) Write(object int) Write {
	file := &f.files[object]
	file.sent, file.due = true, time.Time{}
	w := Write{
		Object: object, Entries: maps.Clone(file.stored), Names: sortedKeys(file.pending),
		Bytes: file.bytes,
	}
	if w.Entries == nil {
		w.Entries = map[string]string{}
	}
	w.Entries[MarkKey] = Mark(object)
	for name, text := range file.pending {
		if text == "" {
			delete(w.Entries, name)
		} else {
			w.Entries[name] = text
		}
	}
	return w
}

// Wrote records that a write succeeded. Changes made after it was sent stay pending.
func (f *Files) Wrote(w Write) {
	file := &f.files[w.Object]
	file.sent, file.stored = false, w.Entries
	for name := range file.pending {
		file.drop(name)
	}
}

// Pending returns the number of changes that wait to be written.
func (f *Files) Pending() (n int) {
	for i := range f.files {
		n += len(f.files[i].pending)
	}
	return n
}

// Largest returns the desired size of the largest object in bytes of names and lines.
func (f *Files) Largest() (bytes int) {
	for i := range f.files {
		bytes = max(bytes, f.files[i].bytes)
	}
	return bytes
}

// drop removes a pending entry that is stored already, if no write in flight changes that.
func (f *file) drop(name string) {
	if !f.sent && f.pending[name] == f.stored[name] {
		delete(f.pending, name)
	}
	if len(f.pending) == 0 {
		f.due = time.Time{}
	}
}

// count adds a line to the size, or subtracts it if times is -1.
func (f *file) count(name, text string, times int) {
	if text != "" {
		f.bytes += times * (len(name) + len(text))
	}
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
	} else if !waits {
		return
	}
	if f.due.IsZero() || by.Before(f.due) {
		f.due = by
	}
	f.drop(name)
}
