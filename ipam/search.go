package ipam

import (
	"iter"
	"net/netip"
	"slices"
)

// anyShard requests a node prefix of any shard.
const anyShard = -1

// pick returns a pool's next node prefix: of the circle, else the one released the longest ago. It
// prefers one that the shard records: a Node whose prefixes share a shard takes one write.
func (l *Ledger) pick(p *pool, shard int) (netip.Prefix, bool) {
	if l.counted != nil && l.countsOf(p).Free == 0 {
		return netip.Prefix{}, false
	}
	if shard != anyShard {
		if i, ok := l.scanShard(p, shard); ok {
			return p.grid.at(i), true
		}
	}
	for _, in := range []span{{p.next, p.grid.all().last}, {0, p.next}} {
		if i, ok := l.scan(p, in); ok {
			return p.grid.at(i), true
		}
	}
	for _, i := range p.released {
		if l.free(p.grid.at(i)) {
			return p.grid.at(i), true
		}
	}
	l.Counts() // cached, so that the next search returns at once
	return netip.Prefix{}, false
}

// scanShard scans those of the circle's next blocks that a shard records.
func (l *Ledger) scanShard(p *pool, shard int) (uint64, bool) {
	block := uint64(1) << max(0, p.NodeMask-blockBits(p.Prefix.Addr())) // in slots
	i := p.next
	for range 2 * Shards {
		last := min(i|(block-1), p.grid.all().last)
		if shardOf(p.grid.at(i)) == shard {
			if found, ok := l.scan(p, span{i, last}); ok {
				return found, true
			}
		}
		i = (last + 1) % p.grid.size()
	}
	return 0, false
}

// scan returns the first slot of an interval that is free and not kept out of the circle. It skips
// a prefix that covers several slots as a whole.
func (l *Ledger) scan(p *pool, in span) (uint64, bool) {
	for i := in.first; i <= in.last; i++ {
		if blocker, taken := l.blocker(p.grid.at(i)); taken {
			over, _ := p.grid.span(blocker)
			i = over.last
		} else if !slices.Contains(p.released, i) {
			return i, true
		}
	}
	return 0, false
}

// free reports whether a prefix overlaps no claim, exclusion or route.
func (l *Ledger) free(p netip.Prefix) bool {
	_, taken := l.blocker(p)
	return !taken
}

// blocker returns an exclusion, claim or route that overlaps a prefix.
func (l *Ledger) blocker(p netip.Prefix) (netip.Prefix, bool) {
	for q := range l.inTheWay(p) {
		return q, true
	}
	return firstOverlap(l.routes, p)
}

// inTheWay yields the exclusions and claims that overlap a prefix.
func (l *Ledger) inTheWay(p netip.Prefix) iter.Seq[netip.Prefix] {
	return func(yield func(netip.Prefix) bool) {
		for q := range overlapping(l.exclusions, p) {
			if !yield(q) {
				return
			}
		}
		for q := range overlapping(&l.claims, p) {
			if !yield(q) {
				return
			}
		}
	}
}
