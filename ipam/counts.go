package ipam

import (
	"math"
	"net/netip"
	"slices"
)

// Counts holds the number of node prefixes of a pool in each state. Their sum is constant,
// except for a pool of the servers' own prefixes, which counts only held prefixes. A prefix
// both excluded and held counts as excluded, a prefix both held and foreign as held.
type Counts struct {
	Name     string
	Pool     netip.Prefix
	NodeMask int
	State    State

	Free        uint64 // can be handed out, unless the pool is draining
	Allocated   uint64 // held by a Node, or reserved for it
	Quarantined uint64 // held by a deleted Node
	Excluded    uint64 // overlaps an exclusion: never handed out
	Foreign     uint64 // overlaps a route, or a held prefix of another size or alignment
}

// Counts returns the state of every pool, in the order of the pools.
func (l *Ledger) Counts() []Counts {
	if l.counted == nil {
		for _, p := range l.pools {
			l.counted = append(l.counted, l.count(p))
		}
	}
	return slices.Clone(l.counted)
}

// Counted reports whether Counts can return a cached result.
func (l *Ledger) Counted() bool { return l.counted != nil }

func (l *Ledger) countsOf(p *pool) Counts { return l.Counts()[slices.Index(l.pools, p)] }

func (l *Ledger) count(p *pool) Counts {
	c := Counts{Name: p.Name, Pool: p.Prefix, NodeMask: p.NodeMask, State: p.State}
	if p.Own {
		for q, claims := range l.claims.All6() {
			if h := standsFor(claims); l.poolOf(h, q) == p {
				c.held(h)
			}
		}
		return c
	}
	var taken spans
	add := func(q netip.Prefix) {
		s, _ := p.grid.span(q)
		taken = append(taken, s)
	}
	for q := range overlapping(l.exclusions, p.Prefix) {
		add(q)
	}
	excluded := union(taken)
	taken = slices.Clone(excluded)
	for q, claims := range overlapping(&l.claims, p.Prefix) {
		add(q)
		if _, is := firstOverlap(l.exclusions, q); p.carves(q) && !is {
			c.held(standsFor(claims))
		}
	}
	for q := range overlapping(l.routes, p.Prefix) {
		add(q)
	}
	all := union(taken).total()
	c.Excluded, c.Free = excluded.total(), p.grid.size()-all
	c.Foreign = all - c.Excluded - c.Allocated - c.Quarantined
	return c
}

func (c *Counts) held(h *Holding) {
	if h.gone() {
		c.Quarantined++
	} else {
		c.Allocated++
	}
}

// Room returns how many more Nodes the active pools can serve in all families, if every pool
// matches them. A family with a pool of the servers' own prefixes has no limit.
func (l *Ledger) Room() int {
	room := uint64(math.MaxInt)
	for _, family := range l.families {
		room = min(room, l.roomIn(family))
	}
	return int(room)
}

func (l *Ledger) roomIn(family []*pool) uint64 {
	var n uint64
	for _, p := range family {
		switch {
		case p.State != Active:
		case p.Own:
			return math.MaxInt
		default:
			n += l.countsOf(p).Free
		}
	}
	return n
}
