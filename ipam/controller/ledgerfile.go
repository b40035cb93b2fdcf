package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/ipam"
)

const (
	// fileLimit is how many bytes of keys and values the stored ledger may have.
	// The API server refuses a ConfigMap with more than 1 MiB.
	fileLimit = 1_000_000
	// storeLimit is how many bytes of values the API server lets a ConfigMap have.
	storeLimit = 1 << 20
	// fileMargin is more than any one Node adds to it.
	fileMargin = 1_000
	// farewell is what the end of a Node adds to its entry: all may end at once.
	farewell = 40
)

// ledgerFile is the stored ledger as it is known to be, and what is to be changed in it.
type ledgerFile struct {
	stored  stored
	pending map[string]string // by key, what it should hold instead; nothing: it should be gone
	due     time.Time         // when that is to be written; zero: nothing is pending
	size    int               // of keys and values, as it should be, in bytes
	keys    int               // how many there should be
}

func newLedgerFile(s stored) *ledgerFile {
	f := &ledgerFile{stored: s, pending: map[string]string{}, keys: len(s.entries)}
	for key, value := range s.entries {
		f.size += len(key) + len(value)
	}
	return f
}

// desired is what a key should hold; nothing: it should not be there.
func (f *ledgerFile) desired(key string) string {
	if value, ok := f.pending[key]; ok {
		return value
	}
	return f.stored.entries[key]
}

// set says what a key should hold, and by when that is to be written; nothing means that the key
// should not be there.
func (f *ledgerFile) set(key, value string, by time.Time) {
	before := f.desired(key)
	if before != value {
		f.count(key, before, -1)
		f.count(key, value, +1)
		f.pending[key] = value
	}
	if _, waits := f.pending[key]; waits && (f.due.IsZero() || by.Before(f.due)) {
		f.due = by
	}
}

func (f *ledgerFile) count(key, value string, times int) {
	if value != "" {
		f.size += times * (len(key) + len(value))
		f.keys += times
	}
}

// entries are all that should be stored.
func (f *ledgerFile) entries() map[string]string {
	entries := maps.Clone(f.stored.entries)
	if entries == nil {
		entries = map[string]string{}
	}
	for key, value := range f.pending {
		if value == "" {
			delete(entries, key)
		} else {
			entries[key] = value
		}
	}
	return entries
}

// holders is the number of names under which something should be held.
func (f *ledgerFile) holders() (n int) {
	for key := range f.entries() {
		if !strings.HasPrefix(key, ipam.CursorPrefix) {
			n++
		}
	}
	return n
}

// fits reports whether the API server would store what should be stored.
func (f *ledgerFile) fits() bool {
	if f.size <= storeLimit {
		return true
	}
	bytes := 0
	for _, value := range f.entries() {
		bytes += len(value)
	}
	return bytes <= storeLimit
}

// full reports whether one more Node might not fit.
func (f *ledgerFile) full() bool { return f.size+farewell*f.keys+fileMargin > fileLimit }

// differences are the keys of which something else is stored than should be. What isn't different
// after all is pending no more.
func (f *ledgerFile) differences() []string {
	var keys []string
	for key, value := range f.pending {
		if value == f.stored.entries[key] {
			delete(f.pending, key)
		} else {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		f.due = time.Time{}
	}
	return keys
}

// order describes the write that makes what is stored what it should be, and says for whom.
func (f *ledgerFile) order(keys []string) order {
	object := f.stored.object.DeepCopy()
	if len(object.ManagedFields) > 0 {
		object.ManagedFields = untracked()
	}
	object.Data = f.entries()
	f.due = time.Time{}
	return order{object, keys}
}

// wrote records that an order was carried out.
func (f *ledgerFile) wrote(r receipt) {
	s := stored{object: r.order.object, entries: r.order.object.Data}
	s.object.ResourceVersion, s.object.Data = r.version, nil
	// The server keeps what it has; only a person's server-side apply brings more.
	s.object.ManagedFields = nil
	f.is(s)
}

// is records what is stored. What else was asked for meanwhile stays pending.
func (f *ledgerFile) is(s stored) {
	f.stored = s
	f.differences()
}

// recorded reports whether the ledger as last seen stored has this line for a Node's name.
func (f *ledgerFile) recorded(name, line string) bool {
	return slices.Contains(strings.Split(f.stored.entries[name], "\n"), line)
}

// parse reads all entries, or names the first that is damaged.
func (s stored) parse() (ipam.Stored, error) {
	found, damaged := ipam.ParseStored(s.entries)
	if len(damaged) > 0 {
		return ipam.Stored{}, fmt.Errorf("the stored ledger is damaged at %w. Correct that key with kubectl edit, or delete it: what its Node has on the API server is then taken as the truth", damaged[0])
	}
	return found, nil
}
