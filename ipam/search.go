package ipam

import (
	"slices"

	"github.com/cilium/ipam/cidrset"
)

const (
	// setBits is the size of each cidrset. Smaller than its limit of 16 bits, because it looks
	// at its bits one by one.
	setBits = 10
	// maxReleased is how many node prefixes wait outside of the circle. With more, the oldest
	// goes back into it. Each costs some bytes of the stored ledger.
	maxReleased = 64
)

// pick finds the node prefix to hand out: one of the circle, else the one released longest ago.
func (p *Pool) pick() (i uint64, circle, ok bool) {
	waiting := slices.DeleteFunc(slices.Clone(p.released), func(i uint64) bool { return p.state(i) != free })
	if p.Counts().Free > uint64(len(waiting)) {
		if i, ok = p.scan(span{p.next, p.grid.all().last}); ok {
			return i, true, true
		}
		if i, ok = p.scan(span{0, p.next}); ok {
			return i, true, true
		}
	}
	if len(waiting) > 0 {
		return waiting[0], false, true
	}
	return 0, false, false
}

// offered tells whether a slot is free and in the circle.
func (p *Pool) offered(i uint64) bool {
	return !slices.Contains(p.released, i) && p.state(i) == free
}

// scan finds the first slot of an interval that is on offer. It steps over what is withdrawn
// and over full sets as a whole.
func (p *Pool) scan(in span) (uint64, bool) {
	for i := in.first; i <= in.last; {
		if p.offered(i) {
			return i, true
		}
		end := p.setOf(i).last
		if last := p.withdrawnTo(i); last >= end {
			i = last + 1
			continue
		}
		if found, ok := p.search(p.set(i), p.setOf(i), span{i, in.last}); ok {
			if p.offered(found) {
				return found, true
			}
			// The index was wrong, and the slots decide.
			p.refresh(found)
			i = found + 1
			continue
		}
		i = end + 1
	}
	return 0, false
}

// withdrawnTo returns how far the largest exclusion or foreign prefix over a slot reaches.
func (p *Pool) withdrawnTo(i uint64) uint64 {
	last := i
	if s, is := p.excluded.find(i); is {
		last = s.last
	}
	if q, is := p.foreign.first(p.grid.at(i)); is {
		s, _ := p.grid.span(q)
		last = max(last, s.last)
	}
	return last
}

// setWidth is the number of bits that count the slots of one set.
func (p *Pool) setWidth() int { return min(setBits, p.grid.mask-p.grid.prefix.Bits()) }

// setOf returns the slots that share a set with this one.
func (p *Pool) setOf(i uint64) span {
	size := uint64(1) << p.setWidth()
	return span{i &^ (size - 1), i | (size - 1)}
}

// set returns the index over the slots around this one, in which everything not on offer is
// marked.
func (p *Pool) set(i uint64) *cidrset.CidrSet {
	over := p.setOf(i)
	if set, ok := p.sets[over.first]; ok {
		return set
	}
	block := toIPNet(p.grid.block(over.first, p.setWidth()))
	set, err := cidrset.NewCIDRSet(block, p.grid.mask)
	mustAgree(err)
	p.sets[over.first] = set
	var marked []uint64
	for i := over.first; i <= over.last; i++ {
		if !p.offered(i) {
			marked = append(marked, i)
		}
	}
	if len(marked) == 1<<p.setWidth() {
		mustAgree(set.Occupy(block)) // at once: in a pool that is almost full most sets are
		return set
	}
	for _, i := range marked {
		mustAgree(set.Occupy(toIPNet(p.grid.at(i))))
	}
	return set
}

// refresh marks a slot in its set as it is now. A set that does not exist yet learns it later.
func (p *Pool) refresh(i uint64) {
	set, ok := p.sets[p.setOf(i).first]
	if !ok {
		return
	}
	mark := set.Occupy
	if p.offered(i) {
		mark = set.Release
	}
	mustAgree(mark(toIPNet(p.grid.at(i))))
}

// forget drops the sets over an interval.
func (p *Pool) forget(over span) {
	for first := range p.sets {
		if s := p.setOf(first); s.first <= over.last && over.first <= s.last {
			delete(p.sets, first)
		}
	}
}

// search finds the first unmarked slot of a set, or of the part of it that over names, that
// lies in the interval. It halves: cidrset tells at once whether a whole block is marked.
func (p *Pool) search(set *cidrset.CidrSet, over, in span) (uint64, bool) {
	if over.last < in.first || over.first > in.last || set.IsFull() {
		return 0, false
	}
	width := over.width()
	marked, err := set.IsAllocated(toIPNet(p.grid.block(over.first, width)))
	mustAgree(err)
	if marked {
		return 0, false
	}
	if width == 0 {
		return over.first, true
	}
	half := over.first + 1<<(width-1)
	if i, ok := p.search(set, span{over.first, half - 1}, in); ok {
		return i, true
	}
	return p.search(set, span{half, over.last}, in)
}

// wait puts a slot that was released at the end of those outside of the circle.
func (p *Pool) wait(i uint64) {
	p.released = append(p.released, i)
	p.refresh(i)
	if len(p.released) > maxReleased {
		oldest := p.released[0]
		p.released = slices.Delete(p.released, 0, 1)
		p.refresh(oldest)
	}
}
