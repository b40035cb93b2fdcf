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

// CursorPrefix begins the keys of pools' cursors. No Node's name can begin with it.
const CursorPrefix = "_pool."

// Stored is the parsed content of the stored ledger.
type Stored struct {
	Holdings []Holding         // by name, then in the order of lines
	Cursors  map[string]Cursor // by pool
	Shards   []Shard           // as the root lists them, by number
	// Parted has the UIDs with prefixes in several objects, for which their order is lost.
	Parted map[string]bool
}

// A DamagedEntry is an entry of the stored ledger that can't be parsed.
type DamagedEntry struct {
	Object int // RootObject or the number of a shard
	Key    string
	Err    error
}

func (d *DamagedEntry) Error() string {
	if d.Object == RootObject {
		return fmt.Sprintf("key %q: %v", d.Key, d.Err)
	}
	return fmt.Sprintf("key %q of shard %d: %v", d.Key, d.Object, d.Err)
}

func (d *DamagedEntry) Unwrap() error { return d.Err }

// Listed returns the numbers of the shards that a root's entries list, in ascending order.
func Listed(root map[string]string) []int {
	var all []int
	for key := range root {
		if number, ok := parseNumber(key); ok {
			all = append(all, number)
		}
	}
	slices.Sort(all)
	return all
}

// Lost returns, in ascending order, the objects without entries that should have some: the
// root, or shards that it lists. A shard has entries before it is listed.
func Lost(objects map[int]map[string]string) []int {
	root := objects[RootObject]
	if len(root) == 0 {
		return []int{RootObject}
	}
	return slices.DeleteFunc(Listed(root), func(number int) bool { return len(objects[number]) > 0 })
}

// ParseStored parses the entries of the root and of the shards that it lists; if the root has
// no entries, those of all objects. Damaged entries are returned in the order of objects and
// keys and skipped otherwise. The entries of a UID in several objects are one holding. If that
// has two prefixes of a family, the second is abandoned: its process didn't have the first.
func ParseStored(objects map[int]map[string]string) (Stored, []*DamagedEntry) {
	p := parser{Stored: Stored{Cursors: map[string]Cursor{}, Parted: map[string]bool{}}, byUID: map[string]int{}}
	root := objects[RootObject]
	listed := Listed(root)
	p.object(RootObject, root)
	if len(root) == 0 {
		listed = slices.DeleteFunc(slices.Sorted(maps.Keys(objects)), func(object int) bool { return object == RootObject })
	}
	for _, number := range listed {
		entries := objects[number]
		if len(entries) > 0 && entries[MarkKey] == "" {
			p.broken(number, MarkKey, fmt.Errorf("a shard's object has its generation there: write %s and a number higher than the one that the root gives for %s", generationWord, shardKey(number)))
		}
		p.object(number, entries)
	}
	slices.SortStableFunc(p.Holdings, func(a, b Holding) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	return p.Stored, p.damaged
}

type parser struct {
	Stored
	layout  layout
	byUID   map[string]int // index in Holdings
	damaged []*DamagedEntry
}

func (p *parser) broken(object int, key string, err error) {
	p.damaged = append(p.damaged, &DamagedEntry{object, key, err})
}

func (p *parser) object(object int, entries map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		if err := p.entry(object, key, entries[key]); err != nil {
			p.broken(object, key, err)
		}
	}
}

func (p *parser) entry(object int, key, text string) error {
	if pool, ok := strings.CutPrefix(key, CursorPrefix); ok {
		c, err := ParseCursor(text)
		if before, there := p.Cursors[pool]; err == nil && (!there || c.Turn > before.Turn) {
			p.Cursors[pool] = c
		}
		return err
	}
	if object != RootObject && key == MarkKey {
		return implausible(parseMark(text))
	}
	if number, ok := parseNumber(key); ok && object == RootObject {
		return p.shard(number, text)
	}
	holdings, err := ParseRecords(key, text)
	for _, h := range holdings {
		p.hold(h)
	}
	return err
}

func (p *parser) shard(number int, text string) error {
	generation, blocks, err := parseListing(text)
	if err = implausible(generation, err); err != nil {
		return err
	}
	for _, b := range blocks {
		if other, taken := p.layout.blocks.first(b); taken {
			return fmt.Errorf("the block %s overlaps %s, which another has: remove one of them", b, other)
		}
		p.layout.add(number, b)
	}
	p.Shards = append(p.Shards, Shard{number, blocks})
	slices.SortFunc(p.Shards, func(a, b Shard) int { return a.Number - b.Number })
	return nil
}

// hold merges a holding into what other objects have of its UID.
func (p *parser) hold(h Holding) {
	at, known := p.byUID[h.Node.UID]
	if !known {
		p.byUID[h.Node.UID] = len(p.Holdings)
		p.Holdings = append(p.Holdings, h)
		return
	}
	all := &p.Holdings[at]
	p.Parted[h.Node.UID] = true
	if all.Node.ProviderID == "" {
		all.Node.ProviderID = h.Node.ProviderID
	}
	if h.Released.After(all.Released) {
		all.Released = h.Released
	}
	maps.Copy(all.Pools, h.Pools)
	for _, q := range h.Prefixes {
		switch {
		case slices.Contains(all.Prefixes, q) || slices.Contains(all.Abandoned, q):
		case slices.ContainsFunc(all.Prefixes, func(o netip.Prefix) bool { return o.Addr().Is4() == q.Addr().Is4() }):
			all.Abandoned = append(all.Abandoned, q)
		default:
			all.Prefixes = append(all.Prefixes, q)
		}
	}
	for _, q := range h.Abandoned {
		if !slices.Contains(all.Prefixes, q) && !slices.Contains(all.Abandoned, q) {
			all.Abandoned = append(all.Abandoned, q)
		}
	}
	all.Foreign = slices.ContainsFunc(all.Prefixes, func(q netip.Prefix) bool { return all.Pools[q] == "" })
}

// A LiveNode is a Node as returned by the API server.
type LiveNode struct {
	Node
	PodCIDRs []netip.Prefix // empty if it has none, or none that can be parsed
	Created  time.Time
}

// Facts is the input of Rebuild.
type Facts struct {
	Pools []PoolConfig
	// Exclusions are those of the configuration, which the pools are validated against.
	Exclusions []netip.Prefix
	// Occupied holds all prefixes not to be handed out: Exclusions and those found at run time.
	Occupied []netip.Prefix
	Stored   Stored
	// Unstored holds holdings that are missing from the stored ledger.
	Unstored []Holding
	Nodes    []LiveNode
	Now      time.Time
	// BlockBits is the size of blocks in bits; 0 means the default.
	BlockBits int
}

// Rebuilt is a Ledger and the results of rebuilding it.
type Rebuilt struct {
	*Ledger
	Restored []Warning     // about stored records
	Observed []Observation // of every Node, the oldest first
}

// An Observation is the result of observing a Node's podCIDRs.
type Observation struct {
	Node LiveNode
	// Before is the Node's Holding before the observation, without prefixes if it held none.
	Before   Holding
	Warnings []Warning
}

// Rebuild returns a Ledger of the stored holdings and of the Nodes' podCIDRs. It fails if the
// pools are invalid together; Removed returns the stored prefixes without a pool.
//
// If podCIDRs overlap, the older Node owns them: the other Node's were set by another
// component. A Node that is recorded as deleted is not observed: that record followed a read
// from the API server, and the list of Nodes may be older.
func Rebuild(f Facts) (Rebuilt, error) {
	l, err := NewLedger(f.Pools, f.Exclusions)
	if err != nil {
		return Rebuilt{}, err
	}
	l.SetExclusions(f.Occupied)
	l.blockBits = cmp.Or(f.BlockBits, l.blockBits)
	for _, shard := range f.Stored.Shards {
		for _, b := range shard.Blocks {
			l.layout.add(shard.Number, b)
		}
	}
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
		if f.Stored.Parted[h.Node.UID] {
			h.Prefixes = l.inOrder(h.Prefixes)
		}
		r.Restored = append(r.Restored, l.Restore(h)...)
	}
	for pool, cursor := range f.Stored.Cursors {
		// Fails for pools that are no longer configured; they need no cursor.
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
