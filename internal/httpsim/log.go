package httpsim

import "slices"

// Log keeps the latest Most entries; a negative Most keeps all.
type Log[E any] struct {
	Most    int
	entries []E
}

// Add appends an entry.
func (l *Log[E]) Add(entry E) {
	l.entries = append(l.entries, entry)
	// Trimming a quarter at a time keeps appends cheap.
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

// Reset removes all entries.
func (l *Log[E]) Reset() { l.entries = nil }
