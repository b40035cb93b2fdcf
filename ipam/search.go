package ipam

import (
	"net"
	"net/netip"
	"slices"

	"github.com/cilium/ipam/cidrset"
)

// windowBits is the size of the bitmaps that the search uses. It is small because cidrset
// checks bits one by one and supports at most 16 bits in IPv6.
const windowBits = 8

// pick returns a pool's next node prefix: of the circle, else the one released the longest ago.
func (l *Ledger) pick(p *pool) (netip.Prefix, bool) {
	if l.counted != nil && l.countsOf(p).Free == 0 {
		return netip.Prefix{}, false
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

// pickGuarded returns a node prefix within the blocks of a shard. For RootObject, once no
// shard can be added, it searches the blocks of all shards.
func (l *Ledger) pickGuarded(p *pool, shard int) (netip.Prefix, bool) {
	if shard != RootObject || !l.spread || l.layout.last() < MaxShards {
		return l.pickNear(p, shard)
	}
	for _, number := range l.layout.numbers() {
		if found, ok := l.pickNear(p, number); ok {
			return found, true
		}
	}
	return netip.Prefix{}, false
}

func (l *Ledger) pickNear(p *pool, shard int) (netip.Prefix, bool) {
	for _, b := range l.layout.shards[shard] {
		in, ok := p.grid.span(b)
		if !ok || b.Bits() < p.Prefix.Bits() {
			continue
		}
		if in.holds(p.next) {
			if i, ok := l.scan(p, span{p.next, in.last}); ok {
				return p.grid.at(i), true
			}
		}
		if i, ok := l.scan(p, in); ok {
			return p.grid.at(i), true
		}
	}
	return netip.Prefix{}, false
}

// free reports whether a prefix overlaps no claim, exclusion or route.
func (l *Ledger) free(p netip.Prefix) bool {
	for range l.inTheWay(p) {
		return false
	}
	_, routed := l.routes.first(p)
	return !routed
}

// inTheWay yields the exclusions and claims that overlap a prefix.
func (l *Ledger) inTheWay(p netip.Prefix) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for q := range l.exclusions.overlapping(p) {
			if !yield(q) {
				return
			}
		}
		for q := range l.claims.overlapping(p) {
			if !yield(q) {
				return
			}
		}
	}
}

// scan returns the first slot of an interval that is free and not kept out of the circle. That
// is mostly the first slot of all, since the circle continues where it stopped. Otherwise it
// scans window by window, and skips a prefix that covers the rest of a window as a whole.
func (l *Ledger) scan(p *pool, in span) (uint64, bool) {
	if first := p.grid.at(in.first); !slices.Contains(p.released, in.first) && l.free(first) {
		return in.first, true
	}
	for i := in.first; i <= in.last; {
		w := newWindow(p.grid, i)
		for q := range l.inTheWay(w.block) {
			w.occupy(q)
		}
		for q := range l.routes.overlapping(w.block) {
			w.occupy(q)
		}
		for _, waiting := range p.released {
			if w.slots.holds(waiting) {
				w.occupy(p.grid.at(waiting))
			}
		}
		if found, ok := w.firstFrom(i); ok {
			return found, found <= in.last
		}
		i = w.end + 1
	}
	return 0, false
}

// window is a bitmap over an aligned block of a grid, made for one search. It avoids pitfalls
// of cidrset: every prefix is canonical and overlaps the block, and nothing is ever released.
type window struct {
	grid  grid
	slots span
	block netip.Prefix
	set   *cidrset.CidrSet // nil: all slots are occupied
	end   uint64           // the last slot of the occupied run at the window's end
}

func newWindow(g grid, i uint64) *window {
	width := min(windowBits, g.mask-g.prefix.Bits())
	size := uint64(1) << width
	w := &window{grid: g, slots: span{i &^ (size - 1), i | (size - 1)}}
	w.block, w.end = g.block(w.slots.first, width), w.slots.last
	set, err := cidrset.NewCIDRSet(toIPNet(w.block), g.mask)
	mustFit(err)
	w.set = set
	return w
}

func (w *window) occupy(p netip.Prefix) {
	over, _ := w.grid.span(p)
	if over.first <= w.slots.first && over.last >= w.slots.last {
		w.set, w.end = nil, max(w.end, over.last)
	}
	if w.set != nil {
		mustFit(w.set.Occupy(toIPNet(p)))
	}
}

func (w *window) firstFrom(i uint64) (uint64, bool) {
	for w.set != nil {
		var next *net.IPNet
		next, err := w.set.AllocateNext()
		if err != nil {
			break
		}
		a, _ := netip.AddrFromSlice(next.IP)
		if found := w.grid.index(a); found >= i {
			return found, true
		}
	}
	return 0, false
}

// mustFit panics if a prefix lies outside of the window that it was found for: the arithmetic
// is wrong then, and no prefix may be handed out.
func mustFit(err error) {
	if err != nil {
		panic("ipam: " + err.Error())
	}
}
