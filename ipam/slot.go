package ipam

import "net/netip"

// state says what becomes of a node prefix. Each has exactly one; the order of the tests in
// Pool.state is their precedence.
type state int

const (
	free        state = iota // can be handed out
	allocated                // a Node holds it
	quarantined              // a Node that is gone held it
	excluded                 // overlaps an exclusion, held or not
	foreign                  // overlaps what a Node holds outside the pool's cut
	states                   // how many there are
)

// Counts tells how many node prefixes of a pool are in which state. Their sum never changes,
// except for a pool of the servers' own prefixes, which counts only what is held.
type Counts struct {
	Name     string
	Pool     netip.Prefix
	NodeMask int
	State    State

	Free        uint64 // can be handed out, unless the pool is draining
	Allocated   uint64 // held by a Node, or reserved for it
	Quarantined uint64 // held by a Node that is gone
	Excluded    uint64 // overlaps an exclusion: never handed out
	Foreign     uint64 // overlaps a prefix of another size or place that a Node holds
}

// of returns the count of one state.
func (c *Counts) of(s state) *uint64 {
	return [...]*uint64{free: &c.Free, allocated: &c.Allocated, quarantined: &c.Quarantined, excluded: &c.Excluded, foreign: &c.Foreign}[s]
}

// slot is what is known of a node prefix that is held.
type slot struct {
	holder      string
	quarantined bool
}

func (p *Pool) state(i uint64) state {
	if _, is := p.excluded.find(i); is {
		return excluded
	}
	if s, held := p.slots[i]; held {
		return s.state()
	}
	if _, is := p.foreign.first(p.grid.at(i)); is {
		return foreign
	}
	return free
}

func (s slot) state() state {
	if s.quarantined {
		return quarantined
	}
	return allocated
}

// change is the only way in which a slot changes: counts and index follow from here.
func (p *Pool) change(i uint64, edit func()) {
	before := p.state(i)
	edit()
	after := p.state(i)
	if p.counted {
		*p.counts.of(before)--
		*p.counts.of(after)++
	}
	p.refresh(i)
}

// Counts returns how many node prefixes are in which state.
func (p *Pool) Counts() Counts {
	if !p.counted {
		p.counts, p.counted = p.count(p.grid.all()), true
	}
	return p.counts
}

// recount edits intervals that change nothing outside of one, and the counts with them.
func (p *Pool) recount(in span, edit func()) {
	if !p.counted {
		edit()
		return
	}
	before := p.count(in)
	edit()
	after := p.count(in)
	for s := free; s < states; s++ {
		*p.counts.of(s) += *after.of(s) - *before.of(s)
	}
}

// count works the numbers of an interval out anew, from the intervals and held slots in it. The
// interval is a block of the grid.
func (p *Pool) count(in span) Counts {
	c := Counts{Name: p.config.Name, Pool: p.config.Prefix, NodeMask: p.config.NodeMask, State: p.config.State}
	withdrawn := p.excluded.within(in)
	c.Excluded = withdrawn.total()
	for q := range p.foreign.overlapping(p.grid.block(in.first, in.width())) {
		s, _ := p.grid.span(q)
		withdrawn = append(withdrawn, span{max(s.first, in.first), min(s.last, in.last)})
	}
	withdrawn = union(withdrawn)
	c.Foreign = withdrawn.total() - c.Excluded
	c.Free = in.last - in.first + 1 - withdrawn.total()
	p.eachHeld(in, func(i uint64, s slot) {
		if _, is := p.excluded.find(i); is {
			return
		}
		*c.of(s.state())++
		if _, is := withdrawn.find(i); is {
			c.Foreign--
		} else {
			c.Free--
		}
	})
	return c
}

// eachHeld visits the held slots of an interval, in any order, by the shorter way.
func (p *Pool) eachHeld(in span, visit func(uint64, slot)) {
	if in.last-in.first >= uint64(len(p.slots)) {
		for i, s := range p.slots {
			if i >= in.first && i <= in.last {
				visit(i, s)
			}
		}
		return
	}
	for i := in.first; i <= in.last; i++ {
		if s, held := p.slots[i]; held {
			visit(i, s)
		}
	}
}
