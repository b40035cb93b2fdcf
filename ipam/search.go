package ipam

import (
	"net/netip"
	"slices"
)

// anyShard requests a node prefix of any shard.
const anyShard = -1

// pick returns a pool's next free node prefix. It prefers one that the shard records: a Node whose
// prefixes share a shard takes one write.
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
		if i, ok := l.scan(p.grid, in); ok {
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
			if found, ok := l.scan(p.grid, span{i, last}); ok {
				return found, true
			}
		}
		i = (last + 1) % p.grid.size()
	}
	return 0, false
}

// scan returns the first free part of a grid's interval that overlaps none of avoid. It skips a
// prefix that covers several parts as a whole.
func (l *Ledger) scan(g grid, in span, avoid ...netip.Prefix) (uint64, bool) {
	for i := in.first; i <= in.last; i++ {
		blocker, taken := l.blocker(g.at(i), avoid)
		if !taken {
			return i, true
		}
		over, _ := g.span(blocker)
		i = over.last
	}
	return 0, false
}

// blocker returns an exclusion, claim, route or one of avoid that overlaps a prefix.
func (l *Ledger) blocker(p netip.Prefix, avoid []netip.Prefix) (q netip.Prefix, taken bool) {
	if i := slices.IndexFunc(avoid, p.Overlaps); i >= 0 {
		return avoid[i], true
	}
	if q, taken = firstOverlap(l.exclusions, p); taken {
		return q, true
	}
	if q, taken = firstOverlap(&l.claims, p); taken {
		return q, true
	}
	return firstOverlap(l.routes, p)
}
