package ipam

import (
	"net/netip"
)

// state says what becomes of a node prefix. Each has exactly one; the order of the tests in
// slot.state is their precedence.
type state int

const (
	free      state = iota // can be handed out
	allocated              // a Node holds it
	excluded               // overlaps an exclusion, held or not
	foreign                // overlaps what a Node holds outside the pool's cut
	states                 // how many there are
)

// Counts tells how many node prefixes of a pool are in which state. Their sum never changes.
type Counts struct {
	Pool     netip.Prefix
	NodeMask int

	Free      int // can be handed out
	Allocated int // held by a Node
	Excluded  int // overlaps an exclusion: never handed out
	Foreign   int // overlaps a prefix of another size or place that a Node holds
}

// slot is what is known of one node prefix. The zero slot is free.
type slot struct {
	held     bool
	holder   string
	excluded bool
	foreign  int // how many foreign prefixes overlap it
}

func (s slot) state() state {
	switch {
	case s.excluded:
		return excluded
	case s.held:
		return allocated
	case s.foreign > 0:
		return foreign
	default:
		return free
	}
}

// change is the only place where a slot changes: counts, bitmap and queue follow from here.
func (p *Pool) change(i int, edit func(*slot)) {
	s := p.slots[i]
	before := s.state()
	edit(&s)
	after := s.state()
	if s == (slot{}) {
		delete(p.slots, i)
	} else {
		p.slots[i] = s
	}
	if before == after {
		return
	}
	p.counts[before]--
	p.counts[after]++
	switch {
	case before == free:
		p.leaveFree(i)
	case after == free:
		p.position[i] = p.released.PushBack(i)
	}
}

// leaveFree takes a slot out of whichever of the two indexes offers it.
func (p *Pool) leaveFree(i int) {
	if e, ok := p.position[i]; ok {
		p.released.Remove(e)
		delete(p.position, i)
		return
	}
	// It cannot fail for a whole node prefix of this pool; if it did, next would
	// still skip the slot, because the map decides.
	_ = p.unused.Occupy(toIPNet(p.prefix(i)))
}

// next finds the node prefix to hand out: one never used, else the one released longest ago.
func (p *Pool) next() (int, bool) {
	for !p.unused.IsFull() {
		block, err := p.unused.AllocateNext()
		if err != nil {
			break
		}
		if addr, ok := netip.AddrFromSlice(block.IP); ok {
			if i := p.index(addr); p.slots[i].state() == free {
				return i, true
			}
		}
	}
	if oldest := p.released.Front(); oldest != nil {
		return oldest.Value.(int), true
	}
	return 0, false
}

// each edits every slot that overlaps the prefix, in ascending order.
func (p *Pool) each(prefix netip.Prefix, edit func(*slot)) {
	prefix = canonical(prefix)
	if !prefix.Overlaps(p.config.Prefix) {
		return
	}
	first, n := 0, 1<<(p.config.NodeMask-p.config.Prefix.Bits())
	if prefix.Bits() > p.config.Prefix.Bits() {
		first = p.index(prefix.Addr())
		n = 1 << max(0, p.config.NodeMask-prefix.Bits())
	}
	for i := first; i < first+n; i++ {
		p.change(i, edit)
	}
}

// index returns which node prefix of the pool the address lies in.
func (p *Pool) index(a netip.Addr) int {
	return bitsOf(a, p.config.Prefix.Bits(), p.config.NodeMask)
}

// prefix returns the node prefix at an index.
func (p *Pool) prefix(i int) netip.Prefix {
	a := withBits(p.config.Prefix.Addr(), p.config.Prefix.Bits(), p.config.NodeMask, i)
	return netip.PrefixFrom(a, p.config.NodeMask)
}
