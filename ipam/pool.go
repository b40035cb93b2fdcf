package ipam

import (
	"container/list"
	"fmt"
	"net/netip"

	"github.com/cilium/ipam/cidrset"
)

// maxPoolBits is how many bits a node mask may lie below its pool: 65,536 node prefixes.
// cidrset refuses more for IPv6, and its bitmap is slow beyond that for IPv4.
const maxPoolBits = 16

// A PoolConfig describes a pool before it is checked.
type PoolConfig struct {
	// Prefix is the range to carve, written with its host bits zero.
	Prefix netip.Prefix
	// NodeMask is the length in bits of each node prefix.
	NodeMask int
}

// check rejects every pool that could not work. Each error names the value and a remedy.
func (c PoolConfig) check() error {
	p := c.Prefix
	if !p.IsValid() {
		return fmt.Errorf("pool %q: not a prefix: write an address and a length, such as 10.244.0.0/16", p)
	}
	if p != canonical(p) {
		return fmt.Errorf("pool %s: not the first address of its range: write %s", p, canonical(p))
	}
	// host-local needs a network, a gateway, a pod and a broadcast address.
	longest := p.Addr().BitLen() - 2
	switch {
	case p.Bits() > longest:
		return fmt.Errorf("pool %s: too small for even one node prefix: a node prefix is at most a /%d", p, longest)
	case c.NodeMask < p.Bits():
		return fmt.Errorf("pool %s: node mask /%d is larger than the pool: use one between /%d and /%d",
			p, c.NodeMask, p.Bits(), min(longest, p.Bits()+maxPoolBits))
	case c.NodeMask > longest:
		return fmt.Errorf("pool %s: node mask /%d leaves no addresses for pods: use /%d or shorter", p, c.NodeMask, longest)
	case c.NodeMask-p.Bits() > maxPoolBits:
		return fmt.Errorf("pool %s: node mask /%d cuts it into more than %d node prefixes: use a node mask of /%d or shorter, or a pool of /%d or longer",
			p, c.NodeMask, 1<<maxPoolBits, p.Bits()+maxPoolBits, c.NodeMask-maxPoolBits)
	}
	return nil
}

// A Pool carves one prefix into equal node prefixes and knows the state of each.
//
// The map of slots is the truth. The bitmap (a cidrset) is only an index into the node prefixes
// that were never in use: they go first, in ascending order. Prefixes that became free again
// follow in the order in which they did, so the one just released is used last, which gives
// routes and connection tracking the longest time to forget it.
//
// Callers name whole node prefixes only, and cidrset is never asked to release anything: there
// a half or a superset would free what others hold.
type Pool struct {
	config   PoolConfig
	slots    map[int]slot // those that are not free
	counts   [states]int
	unused   *cidrset.CidrSet
	released *list.List            // of int: slots that are free again, oldest first
	position map[int]*list.Element // where in released
}

// NewPool returns a pool whose node prefixes are all free. It rejects impossible sizes with an
// error that names value and remedy.
func NewPool(config PoolConfig) (*Pool, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	unused, err := cidrset.NewCIDRSet(toIPNet(config.Prefix), config.NodeMask)
	if err != nil {
		return nil, fmt.Errorf("pool %s with node mask /%d: %w", config.Prefix, config.NodeMask, err)
	}
	p := &Pool{
		config:   config,
		slots:    map[int]slot{},
		unused:   unused,
		released: list.New(),
		position: map[int]*list.Element{},
	}
	p.counts[free] = 1 << (config.NodeMask - config.Prefix.Bits())
	return p, nil
}

// Prefix returns the range that the pool carves.
func (p *Pool) Prefix() netip.Prefix { return p.config.Prefix }

// NodeMask returns the length in bits of each node prefix.
func (p *Pool) NodeMask() int { return p.config.NodeMask }

// Carves tells whether the prefix is one of the pool's node prefixes.
func (p *Pool) Carves(prefix netip.Prefix) bool {
	return prefix.Bits() == p.config.NodeMask && p.config.Prefix.Overlaps(prefix) && prefix == canonical(prefix)
}

// Take hands the next free node prefix to the holder. It reports false if none is left.
func (p *Pool) Take(holder string) (netip.Prefix, bool) {
	i, ok := p.next()
	if !ok {
		return netip.Prefix{}, false
	}
	p.change(i, func(s *slot) { s.held, s.holder = true, holder })
	return p.prefix(i), true
}

// Claim records that the holder has this node prefix, free or not: exclusions and foreign
// prefixes don't undo what a Node already has. Claiming it again for the same holder changes
// nothing; a node prefix of another holder is refused.
func (p *Pool) Claim(prefix netip.Prefix, holder string) error {
	if !p.Carves(prefix) {
		return p.notCarved(prefix)
	}
	i := p.index(prefix.Addr())
	if s := p.slots[i]; s.held && s.holder != holder {
		return fmt.Errorf("pool %s: %s is held by %q: release it there first", p.config.Prefix, prefix, s.holder)
	}
	p.change(i, func(s *slot) { s.held, s.holder = true, holder })
	return nil
}

// Release ends the holder's claim on this node prefix. Only its holder can: anything else,
// also a part or a superset of a node prefix, is refused and changes nothing.
func (p *Pool) Release(prefix netip.Prefix, holder string) error {
	if !p.Carves(prefix) {
		return p.notCarved(prefix)
	}
	i := p.index(prefix.Addr())
	if s := p.slots[i]; !s.held || s.holder != holder {
		return fmt.Errorf("pool %s: %s is not held by %q: nothing to release", p.config.Prefix, prefix, holder)
	}
	p.change(i, func(s *slot) { s.held, s.holder = false, "" })
	return nil
}

// Exclude keeps every node prefix that overlaps the given one from ever being handed out.
func (p *Pool) Exclude(prefix netip.Prefix) {
	p.each(prefix, func(s *slot) { s.excluded = true })
}

// Block keeps every node prefix that overlaps a foreign one from being handed out, until
// Unblock is called as often as Block was.
func (p *Pool) Block(foreign netip.Prefix) {
	p.each(foreign, func(s *slot) { s.foreign++ })
}

// Unblock takes one Block back.
func (p *Pool) Unblock(foreign netip.Prefix) {
	p.each(foreign, func(s *slot) { s.foreign = max(0, s.foreign-1) })
}

// Counts returns how many node prefixes are in which state.
func (p *Pool) Counts() Counts {
	return Counts{
		Pool: p.config.Prefix, NodeMask: p.config.NodeMask,
		Free: p.counts[free], Allocated: p.counts[allocated], Excluded: p.counts[excluded], Foreign: p.counts[foreign],
	}
}

func (p *Pool) notCarved(prefix netip.Prefix) error {
	return fmt.Errorf("pool %s: %s is none of its node prefixes: they are /%d, written with host bits zero",
		p.config.Prefix, prefix, p.config.NodeMask)
}
