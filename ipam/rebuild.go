package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// CursorPrefix begins the keys of the stored ledger that hold a pool's cursor. No Node's name can.
const CursorPrefix = "_pool."

// Stored is what the entries of the stored ledger say.
type Stored struct {
	Holdings []Holding         // by name, each name's in the order of its lines
	Cursors  map[string]Cursor // by pool
}

// A DamagedEntry is an entry of the stored ledger that can't be read.
type DamagedEntry struct {
	Key string
	Err error
}

func (d *DamagedEntry) Error() string { return fmt.Sprintf("key %q: %v", d.Key, d.Err) }

func (d *DamagedEntry) Unwrap() error { return d.Err }

// ParseStored reads the entries of the stored ledger. Those that are damaged are returned in the
// order of the keys, and left out of the rest.
func ParseStored(entries map[string]string) (Stored, []*DamagedEntry) {
	s := Stored{Cursors: map[string]Cursor{}}
	var damaged []*DamagedEntry
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		var err error
		if pool, ok := strings.CutPrefix(key, CursorPrefix); ok {
			var c Cursor
			if c, err = ParseCursor(entries[key]); err == nil {
				s.Cursors[pool] = c
			}
		} else {
			var holdings []Holding
			holdings, err = ParseRecords(key, entries[key])
			s.Holdings = append(s.Holdings, holdings...)
		}
		if err != nil {
			damaged = append(damaged, &DamagedEntry{key, err})
		}
	}
	return s, damaged
}

// A LiveNode is a Node as the API server has it.
type LiveNode struct {
	Node
	PodCIDRs []netip.Prefix // none: it has none yet, or none that can be read
	Created  time.Time
}

// Facts are what a Ledger is rebuilt from.
type Facts struct {
	Pools []PoolConfig
	// Exclusions are those of the configuration, together with which the pools must be possible.
	Exclusions []netip.Prefix
	// Occupied is all that must not be handed out now: the Exclusions, and what comes and goes.
	Occupied []netip.Prefix
	Stored   Stored
	// Unstored are holdings that were lost of the stored ledger, or never got there.
	Unstored []Holding
	Nodes    []LiveNode
	Now      time.Time
}

// Rebuilt is a Ledger as it follows from Facts.
type Rebuilt struct {
	*Ledger
	Restored []Warning     // about what is stored
	Observed []Observation // of every Node, the oldest first
}

// An Observation is what became of a Node's podCIDRs.
type Observation struct {
	Node LiveNode
	// Before is what the Ledger had of the Node; without prefixes it had nothing.
	Before   Holding
	Warnings []Warning
}

// Rebuild makes a Ledger of what is stored and of the podCIDRs that Nodes have. It fails if the
// pools are impossible together; whether what is stored lacks pools, Removed tells.
//
// Of two that overlap, the one of the older Node keeps: somebody else set the other's. A Node
// that is recorded as gone is not observed: who recorded it asked the API server, and the list of
// Nodes may be older.
func Rebuild(f Facts) (Rebuilt, error) {
	l, err := NewLedger(f.Pools, f.Exclusions)
	if err != nil {
		return Rebuilt{}, err
	}
	l.SetExclusions(f.Occupied)
	r := Rebuilt{Ledger: l}
	created := map[string]time.Time{}
	for _, n := range f.Nodes {
		created[n.UID] = n.Created
	}
	born := func(h Holding) time.Time {
		if at, ok := created[h.Node.UID]; ok {
			return at
		}
		return f.Now
	}
	stored := slices.SortedStableFunc(slices.Values(f.Stored.Holdings), func(a, b Holding) int { return born(a).Compare(born(b)) })
	for _, h := range slices.Concat(stored, f.Unstored) {
		if h.Released.After(f.Now) { // a clock was wrong
			h.Released = f.Now
		}
		r.Restored = append(r.Restored, l.Restore(h)...)
	}
	for pool, cursor := range f.Stored.Cursors {
		// It fails for pools that are not configured any more: nothing to go on with.
		_ = l.SetCursor(pool, cursor)
	}
	oldestFirst := slices.SortedFunc(slices.Values(f.Nodes), func(a, b LiveNode) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, n := range oldestFirst {
		o := Observation{Node: n}
		if o.Before, _ = l.Lookup(n.UID); o.Before.Released.IsZero() {
			o.Warnings = l.Observe(n.Node, n.PodCIDRs, f.Now)
		}
		r.Observed = append(r.Observed, o)
	}
	return r, nil
}
