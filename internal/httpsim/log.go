package httpsim

import "slices"

// Log remembers the latest entries, Most of them; a negative Most: all.
type Log[E any] struct {
	Most    int
	entries []E
}

// Add appends an entry.
func (l *Log[E]) Add(entry E) {
	l.entries = append(l.entries, entry)
	// Dropping a quarter at a time keeps adding cheap.
	if l.Most >= 0 && len(l.entries) > l.Most+l.Most/4 {
		l.entries = l.Latest()
	}
}

// Latest returns the entries, oldest first.
func (l *Log[E]) Latest() []E {
	if l.Most < 0 || len(l.entries) <= l.Most {
		return slices.Clone(l.entries)
	}
	return slices.Clone(l.entries[len(l.entries)-l.Most:])
}

// Reset forgets all entries.
func (l *Log[E]) Reset() { l.entries = nil }
