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

	holdings map[string]*holding   // by UID
	names    map[string][]*holding // by name
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
		holdings: map[string]*holding{}, names: map[string][]*holding{},
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
	before := l.exclusions
	l.exclusions, l.counted = setOf(exclusions), nil
	var found []Warning
	for _, h := range l.holdings {
		for _, p := range h.prefixes {
			found = l.warnExcluded(found, h, p, before)
		}
	}
	slices.SortFunc(found, compareWarnings)
	return found
}

// warnExcluded appends a warning if a Node's prefix overlaps an exclusion, and none before.
func (l *Ledger) warnExcluded(
	found []Warning, h *holding, p netip.Prefix, before *bart.Table[struct{}],
) []Warning {
	w, wrong := l.misplaced(h, p)
	if _, known := firstOverlap(before, p); known || !wrong || w.Kind != Excluded || h.gone() {
		return found
	}
	w.Node = h.node
	return append(found, w)
}

// Exclude adds prefixes that must never be handed out. It returns warnings as SetExclusions does.
func (l *Ledger) Exclude(exclusions []netip.Prefix) []Warning {
	var found []Warning
	for _, e := range canonicalAll(exclusions) {
		before := l.exclusions
		l.exclusions, l.counted = before.InsertPersist(e, struct{}{}), nil
		for _, o := range l.overlaps(nil, e) {
			if slices.Contains(o.holder.prefixes, o.prefix) {
				found = l.warnExcluded(found, o.holder, o.prefix, before)
			}
		}
	}
	slices.SortFunc(found, compareWarnings)
	return found
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
	return l.describe(h), true
}

// Held returns a UID's prefixes and whether they are observed, without the rest of its holding.
func (l *Ledger) Held(uid string) (prefixes []netip.Prefix, observed, ok bool) {
	h, ok := l.holdings[uid]
	if !ok {
		return nil, false, false
	}
	return slices.Clone(h.prefixes), h.observed, true
}

// Holdings returns all holdings, those in quarantine included, by name and UID.
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
			if pool := h.origins[p]; pool != "" && l.ownPool(pool) == nil {
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

func (l *Ledger) pool(name string) *pool {
	i := slices.IndexFunc(l.pools, func(p *pool) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return l.pools[i]
}

func (l *Ledger) ownPool(name string) *pool {
	if p := l.pool(name); p != nil && p.Own {
		return p
	}
	return nil
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
func (l *Ledger) poolOf(h *holding, prefix netip.Prefix) *pool {
	if p := l.carver(prefix); p != nil {
		return p
	}
	return l.ownPool(h.origins[prefix])
}
