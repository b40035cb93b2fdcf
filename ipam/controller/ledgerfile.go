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

// ledgerFile is the stored ledger as it is known to be, beside what it should be.
type ledgerFile struct {
	stored  stored
	desired map[string]string
	dirty   map[string]bool // the keys that may differ
	due     time.Time       // when those are to be written; zero: none may differ
	size    int             // of desired, in bytes
}

func newLedgerFile(s stored) *ledgerFile {
	f := &ledgerFile{stored: s, desired: maps.Clone(s.entries), dirty: map[string]bool{}}
	if f.desired == nil {
		f.desired = map[string]string{}
	}
	for key, value := range f.desired {
		f.size += len(key) + len(value)
	}
	return f
}

// set says what a key should hold, and by when that is to be written; nothing means that the key
// should not be there.
func (f *ledgerFile) set(key, value string, by time.Time) {
	before, there := f.desired[key]
	if before != value || there != (value != "") {
		if there {
			f.size -= len(key) + len(before)
			delete(f.desired, key)
		}
		if value != "" {
			f.size += len(key) + len(value)
			f.desired[key] = value
		}
		f.dirty[key] = true
	}
	if f.dirty[key] && (f.due.IsZero() || by.Before(f.due)) {
		f.due = by
	}
}

// holders is the number of names under which something is held.
func (f *ledgerFile) holders() (n int) {
	for key := range f.desired {
		if !strings.HasPrefix(key, ipam.CursorPrefix) {
			n++
		}
	}
	return n
}

// fits reports whether the API server would store what should be stored.
func (f *ledgerFile) fits() bool {
	bytes := 0
	for _, value := range f.desired {
		bytes += len(value)
	}
	return bytes <= storeLimit
}

// full reports whether one more Node might not fit.
func (f *ledgerFile) full() bool { return f.size+farewell*len(f.desired)+fileMargin > fileLimit }

// differences are the keys of which something else is stored than should be.
func (f *ledgerFile) differences() []string {
	var keys []string
	for key := range f.dirty {
		want, wanted := f.desired[key]
		have, stored := f.stored.entries[key]
		if wanted != stored || want != have {
			keys = append(keys, key)
		}
	}
	f.clean()
	return keys
}

// order describes the write that makes what is stored what it should be, and says for whom.
func (f *ledgerFile) order(keys []string) order {
	object := f.stored.object.DeepCopy()
	if len(object.ManagedFields) > 0 {
		object.ManagedFields = untracked()
	}
	object.Data = maps.Clone(f.desired)
	f.clean()
	return order{object, keys}
}

func (f *ledgerFile) clean() {
	clear(f.dirty)
	f.due = time.Time{}
}

// wrote records that an order was carried out.
func (f *ledgerFile) wrote(r receipt) {
	f.stored = stored{object: r.order.object, entries: r.order.object.Data}
	f.stored.object.ResourceVersion, f.stored.object.Data = r.version, nil
	// The server keeps what it has; only a person's server-side apply brings more.
	f.stored.object.ManagedFields = nil
}

// recorded reports whether the ledger as last seen stored has this line for a Node's name.
func (f *ledgerFile) recorded(name, line string) bool {
	return slices.Contains(strings.Split(f.stored.entries[name], "\n"), line)
}

// damage is what keeps a stored ledger from being read.
type damage struct {
	key string
	err error
}

func (d *damage) Error() string {
	return fmt.Sprintf("the stored ledger is damaged at key %q: %v. Correct that key with kubectl edit, or delete it: what its Node has on the API server is then taken as the truth", d.key, d.err)
}

func (d *damage) Unwrap() error { return d.err }

// parse reads all entries, or names the first that is damaged.
func (s stored) parse() (ipam.Stored, error) {
	found, damaged := ipam.ParseStored(s.entries)
	if len(damaged) > 0 {
		return ipam.Stored{}, &damage{damaged[0].Key, damaged[0].Err}
	}
	return found, nil
}
