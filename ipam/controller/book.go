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
	// bookLimit is how many bytes of keys and values the stored ledger may have.
	// The API server refuses a ConfigMap with more than 1 MiB.
	bookLimit = 1_000_000
	// storeLimit is how many bytes of values the API server lets a ConfigMap have.
	storeLimit = 1 << 20
	// bookMargin is more than any one Node adds to it.
	bookMargin = 1_000
	// farewell is what the end of a Node adds to its entry: all may end at once.
	farewell = 40
	// cursorPrefix begins the keys that hold a pool's cursor. No Node's name can.
	cursorPrefix = "_pool."
)

// book is the stored ledger as it is known to be, beside what it should be.
type book struct {
	stored  stored
	desired map[string]string
	dirty   map[string]bool // the keys that may differ
	due     time.Time       // when those are to be written; zero: none may differ
	size    int             // of desired, in bytes
}

func newBook(s stored) *book {
	b := &book{stored: s, desired: maps.Clone(s.entries), dirty: map[string]bool{}}
	if b.desired == nil {
		b.desired = map[string]string{}
	}
	for key, value := range b.desired {
		b.size += len(key) + len(value)
	}
	return b
}

// set says what a key should hold, and by when that is to be written; nothing means that the key
// should not be there.
func (b *book) set(key, value string, by time.Time) {
	before, there := b.desired[key]
	if before != value || there != (value != "") {
		if there {
			b.size -= len(key) + len(before)
			delete(b.desired, key)
		}
		if value != "" {
			b.size += len(key) + len(value)
			b.desired[key] = value
		}
		b.dirty[key] = true
	}
	if b.dirty[key] && (b.due.IsZero() || by.Before(b.due)) {
		b.due = by
	}
}

// holders is the number of names under which something is held.
func (b *book) holders() (n int) {
	for key := range b.desired {
		if !strings.HasPrefix(key, cursorPrefix) {
			n++
		}
	}
	return n
}

// fits reports whether the API server would store what should be stored.
func (b *book) fits() bool {
	bytes := 0
	for _, value := range b.desired {
		bytes += len(value)
	}
	return bytes <= storeLimit
}

// full reports whether one more Node might not fit.
func (b *book) full() bool { return b.size+farewell*len(b.desired)+bookMargin > bookLimit }

// differences are the keys of which something else is stored than should be.
func (b *book) differences() []string {
	var keys []string
	for key := range b.dirty {
		want, wanted := b.desired[key]
		have, stored := b.stored.entries[key]
		if wanted != stored || want != have {
			keys = append(keys, key)
		}
	}
	b.clean()
	return keys
}

// order describes the write that makes what is stored what it should be, and says for whom.
func (b *book) order(keys []string) order {
	object := b.stored.object.DeepCopy()
	if len(object.ManagedFields) > 0 {
		object.ManagedFields = untracked()
	}
	object.Data = maps.Clone(b.desired)
	b.clean()
	return order{object, keys}
}

func (b *book) clean() {
	clear(b.dirty)
	b.due = time.Time{}
}

// wrote records that an order was carried out.
func (b *book) wrote(r receipt) {
	b.stored = stored{object: r.order.object, entries: r.order.object.Data}
	b.stored.object.ResourceVersion, b.stored.object.Data = r.version, nil
	// The server keeps what it has; only a person's server-side apply brings more.
	b.stored.object.ManagedFields = nil
}

// recorded is what the ledger as last seen stored has for the Node's UID.
func (b *book) recorded(owner ipam.Node) (ipam.Holding, bool) {
	// What can't be read would have been noticed when it was loaded.
	holdings, _ := ipam.ParseRecords(owner.Name, b.stored.entries[owner.Name])
	i := slices.IndexFunc(holdings, func(h ipam.Holding) bool { return h.Node.UID == owner.UID })
	if i < 0 {
		return ipam.Holding{}, false
	}
	return holdings[i], true
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

// contents are what the entries of a stored ledger say.
type contents struct {
	holdings []ipam.Holding
	cursors  map[string]ipam.Cursor // by pool
}

// parse reads all entries, or names the first that is damaged.
func (s stored) parse() (contents, error) {
	c := contents{cursors: map[string]ipam.Cursor{}}
	for _, key := range slices.Sorted(maps.Keys(s.entries)) {
		var err error
		if pool, ok := strings.CutPrefix(key, cursorPrefix); ok {
			c.cursors[pool], err = ipam.ParseCursor(s.entries[key])
		} else {
			var holdings []ipam.Holding
			holdings, err = ipam.ParseRecords(key, s.entries[key])
			c.holdings = append(c.holdings, holdings...)
		}
		if err != nil {
			return contents{}, &damage{key, err}
		}
	}
	return c, nil
}

// restore fills a Ledger that is new. Where two holdings overlap, the first keeps.
func (c contents) restore(l *ipam.Ledger) {
	for _, h := range c.holdings {
		l.Restore(h)
	}
	for pool, cursor := range c.cursors {
		// It fails for pools that are not configured any more: nothing to go on with.
		_ = l.SetCursor(pool, cursor)
	}
}
