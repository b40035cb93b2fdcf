package ipam

import (
	"cmp"
	"net/netip"
	"slices"
)

// grid is a prefix cut into equal parts, numbered from zero. There are at most 2^63 of them,
// so every operation is arithmetic and never iterates over the parts.
type grid struct {
	prefix netip.Prefix
	mask   int // length of each part in bits
}

func (g grid) size() uint64 { return 1 << (g.mask - g.prefix.Bits()) }

func (g grid) all() span { return span{0, g.size() - 1} }

func (g grid) carves(p netip.Prefix) bool {
	return p.Bits() == g.mask && g.prefix.Overlaps(p) && p == canonical(p)
}

func (g grid) index(a netip.Addr) uint64 {
	return numberOf(a).upTo(g.mask) & (g.size() - 1)
}

func (g grid) at(i uint64) netip.Prefix {
	base := g.prefix.Addr()
	return netip.PrefixFrom(numberOf(base).plus(i, g.mask).addr(base.BitLen()), g.mask)
}

// span returns the parts that overlap a prefix. It reports false if there are none.
func (g grid) span(p netip.Prefix) (span, bool) {
	if p = canonical(p); !p.Overlaps(g.prefix) {
		return span{}, false
	}
	if p.Bits() <= g.prefix.Bits() {
		return g.all(), true
	}
	first := g.index(p.Addr())
	return span{first, first + 1<<max(0, g.mask-p.Bits()) - 1}, true
}

// span is an interval of a grid, both ends included.
type span struct{ first, last uint64 }

// spans are intervals in ascending order that don't overlap.
type spans []span

func union(all spans) spans {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	var merged spans
	for _, s := range all {
		if n := len(merged); n > 0 && s.first <= merged[n-1].last {
			merged[n-1].last = max(merged[n-1].last, s.last)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

func (s spans) total() uint64 {
	var n uint64
	for _, one := range s {
		n += one.last - one.first + 1
	}
	return n
}
