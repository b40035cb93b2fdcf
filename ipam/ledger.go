package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
)

// A Ledger knows which Node holds which prefixes, over all pools.
type Ledger struct {
	sources    []*source
	families   [][]*source // by address family, in the order in which families first appear
	exclusions tree[struct{}]
	routes     []netip.Prefix

	holdings map[string]*holding   // by UID
	names    map[string][]*holding // by name
	seats    tree[*seat]           // every prefix that somebody claims
	arrivals uint64
}

// source is a pool of the configuration: one that carves a range, or one that cuts from the
// servers' own prefixes.
type source struct {
	PoolConfig
	pool *Pool
	own  *ownPool
}

func (s *source) ipv6() bool { return s.Own || s.Prefix.Addr().Is6() }

func (s *source) counts() Counts {
	if s.own != nil {
		return s.own.Counts()
	}
	return s.pool.Counts()
}

// NewLedger returns a Ledger in which everything but the exclusions is free. Pools are used in
// their order, and so are the families: the first pool's family comes first in every answer. It
// rejects impossible and overlapping pools, and active pools that the exclusions cover, all at
// once.
func NewLedger(pools []PoolConfig, exclusions []netip.Prefix) (*Ledger, error) {
	l := &Ledger{holdings: map[string]*holding{}, names: map[string][]*holding{}}
	if len(pools) == 0 {
		return nil, errors.New("no pools: at least one prefix is needed to carve node prefixes from")
	}
	var errs []error
	for _, e := range exclusions {
		if !e.IsValid() {
			errs = append(errs, fmt.Errorf("exclusion %q: not a prefix: write an address and a length, such as 10.96.0.0/12", e))
		}
	}
	for _, config := range pools {
		if err := l.add(config); err != nil {
			errs = append(errs, err)
		}
	}
	l.SetExclusions(exclusions)
	for _, s := range l.sources {
		if s.pool != nil && s.State == Active && s.counts().Free == 0 {
			errs = append(errs, fmt.Errorf("%s: the exclusions leave nothing of it: move the pool or correct the exclusions (%s)",
				s, join(sorted(canonicalAll(exclusions)), ", ")))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Ledger) add(config PoolConfig) error {
	s := &source{PoolConfig: config}
	err := config.check()
	switch {
	case err != nil:
		return err
	case config.Own:
		s.own = newOwnPool(config)
	default:
		s.pool, err = NewPool(config)
		if err != nil {
			return err
		}
	}
	for _, other := range l.sources {
		if other.Name == config.Name {
			return fmt.Errorf("%s: another pool has that name too (%s): give each its own", config, other)
		}
		if other.Prefix.Overlaps(config.Prefix) {
			return fmt.Errorf("%s overlaps %s: give each its own range", config, other)
		}
	}
	l.sources = append(l.sources, s)
	i := slices.IndexFunc(l.families, func(f []*source) bool { return f[0].ipv6() == s.ipv6() })
	if i < 0 {
		l.families = append(l.families, []*source{s})
	} else {
		l.families[i] = append(l.families[i], s)
	}
	return nil
}

// SetExclusions replaces what must never be handed out. What Nodes have already stays theirs;
// where such a prefix overlaps an exclusion and overlapped none before, there is a warning.
// Exclusions that are no prefixes are left out.
func (l *Ledger) SetExclusions(exclusions []netip.Prefix) []Warning {
	exclusions = canonicalAll(exclusions)
	before := l.exclusions
	l.exclusions = tree[struct{}]{}
	for _, e := range exclusions {
		l.exclusions.put(e, struct{}{})
	}
	for _, s := range l.sources {
		if s.pool != nil {
			s.pool.SetExclusions(exclusions)
		}
	}
	var found []Warning
	for _, h := range l.holdings {
		for _, p := range h.prefixes {
			w, wrong := l.misplaced(h, p)
			if _, known := before.first(p); wrong && w.Kind == Excluded && !known && !h.gone() {
				w.Node = h.node
				found = append(found, w)
			}
		}
	}
	slices.SortFunc(found, compareWarnings)
	return found
}

// SetRoutes replaces the destinations of the routes that stand. What overlaps one is not handed
// out; what Nodes hold stays theirs, since the route is most likely their own. It returns, sorted,
// the destinations that lie in the pools' ranges, or cover them, and that nobody holds.
func (l *Ledger) SetRoutes(destinations []netip.Prefix) (strange []netip.Prefix) {
	before := l.routes
	l.routes = sorted(canonicalAll(destinations))
	for _, s := range l.sources {
		if s.pool == nil {
			continue
		}
		for _, p := range l.routes {
			s.pool.Block(p)
		}
		for _, p := range before {
			s.pool.Unblock(p)
		}
	}
	for _, p := range l.routes {
		inRange := slices.ContainsFunc(l.sources, func(s *source) bool { return s.pool != nil && s.Prefix.Overlaps(p) })
		if _, held := l.seats.get(p); inRange && !held {
			strange = append(strange, p)
		}
	}
	return strange
}

// Lookup returns what the Node with this UID holds.
func (l *Ledger) Lookup(uid string) (Holding, bool) {
	h, ok := l.holdings[uid]
	if !ok {
		return Holding{}, false
	}
	return l.describe(h), true
}

// Holdings returns everything that is held, also in quarantine, by name and UID.
func (l *Ledger) Holdings() []Holding {
	return l.list(func(*holding) bool { return true }, compareNodes)
}

func (l *Ledger) list(which func(*holding) bool, order func(a, b *holding) int) []Holding {
	var found []*holding
	for _, h := range l.holdings {
		if which(h) {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, order)
	var list []Holding
	for _, h := range found {
		list = append(list, l.describe(h))
	}
	return list
}

func compareNodes(a, b *holding) int {
	return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.node.UID, b.node.UID))
}

// Counts returns the state of every pool, in the order of the pools.
func (l *Ledger) Counts() []Counts {
	counts := make([]Counts, len(l.sources))
	for i, s := range l.sources {
		counts[i] = s.counts()
	}
	return counts
}

// Room returns how many more Nodes can be given prefixes of all families by the active pools,
// if every pool matches them. A family with a pool of the servers' own prefixes has no limit.
func (l *Ledger) Room() int {
	room := uint64(math.MaxInt)
	for _, family := range l.families {
		room = min(room, roomIn(family))
	}
	return int(room)
}

func roomIn(family []*source) uint64 {
	var n uint64
	for _, s := range family {
		switch {
		case s.State != Active:
		case s.Own:
			return math.MaxInt
		default:
			n += s.counts().Free
		}
	}
	return n
}

// Cursor returns the order in which a pool goes on. A pool of the servers' own prefixes, like
// one that is not configured, has the zero Cursor.
func (l *Ledger) Cursor(pool string) Cursor {
	if s := l.source(pool); s != nil && s.pool != nil {
		return s.pool.Cursor()
	}
	return Cursor{}
}

// SetCursor makes a pool go on as it did when the Cursor was taken. It fails only for what is
// not the name of a pool with a range.
func (l *Ledger) SetCursor(pool string, c Cursor) error {
	s := l.source(pool)
	if s == nil || s.pool == nil {
		return fmt.Errorf("cursor of pool %q: no pool with a range has that name: configure it, or remove the cursor", pool)
	}
	s.pool.SetCursor(c)
	return nil
}

// An Orphan is a prefix that is held, and that came from a pool which carves it no more: the
// pool was removed from the configuration, or changed.
type Orphan struct {
	Pool   string
	Node   Node
	Prefix netip.Prefix
}

// Removed names what is held, also in quarantine, of pools that carve it no more, by pool and
// prefix. A pool may go only when nothing is left of it.
func (l *Ledger) Removed() []Orphan {
	var orphans []Orphan
	for _, h := range l.holdings {
		for _, p := range h.all() {
			if pool := h.origins[p]; pool != "" && l.ownSource(pool) == nil {
				orphans = append(orphans, Orphan{pool, h.node, p})
			}
		}
	}
	slices.SortFunc(orphans, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), a.Prefix.Compare(b.Prefix),
			cmp.Compare(a.Node.Name, b.Node.Name), cmp.Compare(a.Node.UID, b.Node.UID))
	})
	return orphans
}

// source returns the pool with this name, or nil.
func (l *Ledger) source(name string) *source {
	i := slices.IndexFunc(l.sources, func(s *source) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return l.sources[i]
}

// ownSource returns the pool with this name if it cuts from the servers' own prefixes.
func (l *Ledger) ownSource(name string) *source {
	if s := l.source(name); s != nil && s.Own {
		return s
	}
	return nil
}

// carver returns the pool that has the prefix among its node prefixes, or nil.
func (l *Ledger) carver(p netip.Prefix) *source {
	for _, s := range l.sources {
		if s.pool != nil && s.pool.Carves(p) {
			return s
		}
	}
	return nil
}
