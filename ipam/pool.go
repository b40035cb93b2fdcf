package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ipam/cidrset"
)

// A Pool carves one prefix into equal node prefixes and knows the state of each.
//
// The map of slots is the truth about who holds what; exclusions and foreign prefixes are
// intervals beside it, so that a pool of 2^48 node prefixes costs no more than one of 256. The
// bitmaps (cidrsets) are only an index for finding a free one, cut and filled where the search
// comes along, and thrown away when intervals change.
//
// Node prefixes are handed out in a circle. Those that became free lately wait outside of it
// and go last, the one just released after all others, which gives routes and connection
// tracking the longest time to forget it. [Cursor] is the whole of that order.
//
// Callers name whole node prefixes only: cidrset would release what others hold together with
// a half or a superset.
type Pool struct {
	config PoolConfig
	grid   grid

	slots    map[uint64]slot // those that are held
	excluded spans
	foreign  tree[int] // what blocks node prefixes, and how often

	counts  Counts
	counted bool // else the exclusions changed since

	sets     map[uint64]*cidrset.CidrSet // what is not on offer in the circle, setSize slots each
	next     uint64                      // where the search in the circle goes on
	released []uint64                    // those that wait outside of it, oldest first
}

// NewPool returns a pool whose node prefixes are all free. It rejects impossible sizes with an
// error that names value and remedy.
func NewPool(config PoolConfig) (*Pool, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	if config.Own {
		return nil, fmt.Errorf("%s: there is no range to carve: only a Ledger can have it", config)
	}
	return &Pool{
		config: config,
		grid:   grid{config.Prefix, config.NodeMask},
		slots:  map[uint64]slot{},
		sets:   map[uint64]*cidrset.CidrSet{},
	}, nil
}

// Prefix returns the range that the pool carves.
func (p *Pool) Prefix() netip.Prefix { return p.config.Prefix }

// NodeMask returns the length in bits of each node prefix.
func (p *Pool) NodeMask() int { return p.config.NodeMask }

// Carves tells whether the prefix is one of the pool's node prefixes.
func (p *Pool) Carves(prefix netip.Prefix) bool { return p.grid.carves(prefix) }

// Take hands the next free node prefix to the holder. It reports false if none is left.
func (p *Pool) Take(holder string) (netip.Prefix, bool) {
	i, circle, ok := p.pick()
	if !ok {
		return netip.Prefix{}, false
	}
	if circle {
		p.next = (i + 1) % p.grid.size()
	}
	p.hold(i, slot{holder: holder})
	return p.grid.at(i), true
}

// Claim records that the holder has this node prefix, free or not: exclusions and foreign
// prefixes don't undo what a Node already has. Claiming it again for the same holder changes
// nothing; a node prefix of another holder is refused.
func (p *Pool) Claim(prefix netip.Prefix, holder string) error {
	if !p.Carves(prefix) {
		return p.notCarved(prefix)
	}
	i := p.grid.index(prefix.Addr())
	s, held := p.slots[i]
	if held && s.holder != holder {
		return fmt.Errorf("%s: %s is held by %q: release it there first", p.config, prefix, s.holder)
	}
	if !held {
		p.hold(i, slot{holder: holder})
	}
	return nil
}

// Release ends the holder's claim on this node prefix. Only its holder can: anything else,
// also a part or a superset of a node prefix, is refused and changes nothing.
func (p *Pool) Release(prefix netip.Prefix, holder string) error {
	i, err := p.heldBy(prefix, holder)
	if err != nil {
		return err
	}
	p.change(i, func() { delete(p.slots, i) })
	p.wait(i)
	return nil
}

// Pass gives a node prefix from its holder to another.
func (p *Pool) Pass(prefix netip.Prefix, holder, to string) error {
	i, err := p.heldBy(prefix, holder)
	if err != nil {
		return err
	}
	p.hold(i, slot{to, p.slots[i].quarantined})
	return nil
}

// Quarantine says whether the holder of a node prefix is gone and only its quarantine is left.
func (p *Pool) Quarantine(prefix netip.Prefix, holder string, gone bool) error {
	i, err := p.heldBy(prefix, holder)
	if err != nil {
		return err
	}
	p.hold(i, slot{holder, gone})
	return nil
}

// SetExclusions keeps every node prefix that overlaps one of these, and of those only, from
// being handed out.
func (p *Pool) SetExclusions(exclusions []netip.Prefix) {
	p.excluded = p.grid.spans(exclusions)
	clear(p.sets)
	p.counted = false
}

// Block keeps every node prefix that overlaps a foreign one from being handed out, until
// Unblock is called as often as Block was.
func (p *Pool) Block(foreign netip.Prefix) { p.block(foreign, 1) }

// Unblock takes one Block back.
func (p *Pool) Unblock(foreign netip.Prefix) { p.block(foreign, -1) }

func (p *Pool) block(foreign netip.Prefix, change int) {
	foreign = canonical(foreign)
	over, ok := p.grid.span(foreign)
	if !ok {
		return
	}
	before, _ := p.foreign.get(foreign)
	after := max(0, before+change)
	p.recount(over, func() {
		if after > 0 {
			p.foreign.put(foreign, after)
		} else {
			p.foreign.remove(foreign)
		}
	})
	p.forget(over)
}

func (p *Pool) heldBy(prefix netip.Prefix, holder string) (uint64, error) {
	if !p.Carves(prefix) {
		return 0, p.notCarved(prefix)
	}
	i := p.grid.index(prefix.Addr())
	if s, held := p.slots[i]; !held || s.holder != holder {
		return 0, fmt.Errorf("%s: %s is not held by %q: nothing to release", p.config, prefix, holder)
	}
	return i, nil
}

func (p *Pool) notCarved(prefix netip.Prefix) error {
	return fmt.Errorf("%s: %s is none of its node prefixes: they are /%d, written with host bits zero",
		p.config, prefix, p.config.NodeMask)
}

// hold is the only place where a slot gets a holder.
func (p *Pool) hold(i uint64, s slot) {
	p.released = slices.DeleteFunc(p.released, func(waiting uint64) bool { return waiting == i })
	p.change(i, func() { p.slots[i] = s })
}
