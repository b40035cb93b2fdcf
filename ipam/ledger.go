package ipam

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"
)

// A Ledger records which Node holds which prefixes, over all pools. The holdings are the source of
// truth; the claims index them by prefix, and every decision about a pool is made from that index.
type Ledger struct {
	pools      []*pool
	families   [][]*pool // by address family, in the order in which families first appear
	exclusions *bart.Table[struct{}]
	routes     *bart.Table[struct{}] // destinations of the existing routes

	holdings map[string]*Holding   // by UID
	names    map[string][]*Holding // by name
	claims   bart.Table[[]claim]   // by prefix, each in order of arrival
	arrivals uint64
	counted  []Counts // nil after any change
}

// NewLedger returns a Ledger in which everything but the exclusions is free. Pools are used in
// their order, and so are the families, as in all results. It rejects invalid and overlapping
// pools, and active pools that the exclusions cover, all in one error.
func NewLedger(pools []PoolConfig, exclusions []netip.Prefix) (*Ledger, error) {
	l := &Ledger{
		exclusions: setOf(nil), routes: setOf(nil),
		holdings: map[string]*Holding{}, names: map[string][]*Holding{},
	}
	if len(pools) == 0 {
		return nil, errors.New("no pools: at least one prefix is needed to carve node prefixes from")
	}
	var errs []error
	for _, e := range exclusions {
		if !e.IsValid() {
			errs = append(errs,
				fmt.Errorf("exclusion %q: not a prefix: write an address and a length, such as 10.96.0.0/12",
					e))
		}
	}
	for _, config := range pools {
		if err := l.add(config); err != nil {
			errs = append(errs, err)
		}
	}
	l.SetExclusions(exclusions)
	for _, p := range l.pools {
		if !p.Own && p.State == Active && l.countsOf(p).Free == 0 {
			errs = append(errs, fmt.Errorf("%s: the exclusions leave nothing of it: move the pool or correct the exclusions (%s)",
				p, join(sorted(canonicalAll(exclusions)), ", ")))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *Ledger) add(config PoolConfig) error {
	p, err := newPool(config)
	if err != nil {
		return err
	}
	for _, other := range l.pools {
		if other.Name == config.Name {
			return fmt.Errorf("%s: another pool has that name too (%s): give each its own", config, other)
		}
		if other.Prefix.Overlaps(config.Prefix) {
			return fmt.Errorf("%s overlaps %s: give each its own range", config, other)
		}
	}
	l.pools = append(l.pools, p)
	i := slices.IndexFunc(l.families, func(f []*pool) bool { return f[0].ipv6() == p.ipv6() })
	if i < 0 {
		l.families = append(l.families, []*pool{p})
	} else {
		l.families[i] = append(l.families[i], p)
	}
	return nil
}

// SetExclusions replaces the prefixes that must never be handed out. Nodes keep what they hold;
// each held prefix that newly overlaps an exclusion is a warning. Invalid prefixes are ignored.
func (l *Ledger) SetExclusions(exclusions []netip.Prefix) []Warning {
	return l.exclude(setOf(exclusions), exclusions)
}

// Exclude adds prefixes that must never be handed out. It returns warnings as SetExclusions does.
func (l *Ledger) Exclude(more []netip.Prefix) []Warning {
	all := l.exclusions
	for _, e := range more {
		all = all.InsertPersist(canonical(e), struct{}{})
	}
	return l.exclude(all, more)
}

// exclude replaces the exclusions by all. The added ones among them can cause warnings.
func (l *Ledger) exclude(all *bart.Table[struct{}], added []netip.Prefix) (found []Warning) {
	before := l.exclusions
	l.exclusions, l.counted = all, nil
	for _, e := range added {
		for _, o := range l.overlaps(nil, canonical(e)) {
			w, wrong := l.misplaced(o.holder, o.prefix)
			if _, known := firstOverlap(before, o.prefix); known || !wrong || w.Kind != Excluded ||
				o.holder.gone() || !slices.Contains(o.holder.Prefixes, o.prefix) {
				continue
			}
			w.Node = o.holder.Node
			found = append(found, w)
		}
	}
	slices.SortFunc(found, compareWarnings)
	return slices.Compact(found)
}

// SetRoutes replaces the destinations of the existing routes. Prefixes that overlap one are
// not handed out; Nodes keep what they hold, since the route is most likely their own. It
// returns, sorted, the destinations that overlap the range of a pool and that no Node holds.
func (l *Ledger) SetRoutes(destinations []netip.Prefix) (strange []netip.Prefix) {
	l.routes, l.counted = setOf(destinations), nil
	for _, p := range sorted(canonicalAll(destinations)) {
		inRange := slices.ContainsFunc(l.pools, func(s *pool) bool {
			return !s.Own && s.Prefix.Overlaps(p)
		})
		if _, held := l.claims.Get(p); inRange && !held {
			strange = append(strange, p)
		}
	}
	return strange
}

// Lookup returns the Holding of the Node with this UID.
func (l *Ledger) Lookup(uid string) (Holding, bool) {
	h, ok := l.holdings[uid]
	if !ok {
		return Holding{}, false
	}
	return h.clone(), true
}

// Held returns a UID's prefixes and whether they are observed, without the rest of its holding.
func (l *Ledger) Held(uid string) (prefixes []netip.Prefix, observed, ok bool) {
	h, ok := l.holdings[uid]
	if !ok {
		return nil, false, false
	}
	return slices.Clone(h.Prefixes), h.Observed, true
}

// Holdings returns all holdings, those in quarantine included, by name and UID.
func (l *Ledger) Holdings() []Holding {
	return l.list(func(*Holding) bool { return true }, compareNodes)
}

func (l *Ledger) list(which func(*Holding) bool, order func(a, b *Holding) int) []Holding {
	var found []*Holding
	for _, h := range l.holdings {
		if which(h) {
			found = append(found, h)
		}
	}
	slices.SortFunc(found, order)
	var list []Holding
	for _, h := range found {
		list = append(list, h.clone())
	}
	return list
}

func compareNodes(a, b *Holding) int {
	return cmp.Or(cmp.Compare(a.Node.Name, b.Node.Name), cmp.Compare(a.Node.UID, b.Node.UID))
}

// An Orphan is a held prefix of a pool that was removed from the configuration, or changed.
type Orphan struct {
	Pool   string
	Node   Node
	Prefix netip.Prefix
}

// Removed returns the prefixes, those in quarantine included, of pools that no longer carve
// them, by pool and prefix. A pool must not be removed while any of its prefixes is held.
func (l *Ledger) Removed() []Orphan {
	var orphans []Orphan
	for _, h := range l.holdings {
		for _, p := range h.all() {
			if pool := h.Pools[p]; pool != "" && l.poolOf(h, p) == nil {
				orphans = append(orphans, Orphan{pool, h.Node, p})
			}
		}
	}
	slices.SortFunc(orphans, func(a, b Orphan) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), a.Prefix.Compare(b.Prefix),
			cmp.Compare(a.Node.Name, b.Node.Name), cmp.Compare(a.Node.UID, b.Node.UID))
	})
	return orphans
}

// carver returns the pool that has the prefix among its node prefixes, or nil.
func (l *Ledger) carver(prefix netip.Prefix) *pool {
	i := slices.IndexFunc(l.pools, func(p *pool) bool { return p.carves(prefix) })
	if i < 0 {
		return nil
	}
	return l.pools[i]
}

// poolOf returns the pool that a holder's prefix is counted in, or nil.
func (l *Ledger) poolOf(h *Holding, prefix netip.Prefix) *pool {
	i := slices.IndexFunc(l.pools, func(p *pool) bool {
		return p.carves(prefix) || p.Own && p.Name == h.Pools[prefix]
	})
	if i < 0 {
		return nil
	}
	return l.pools[i]
}
