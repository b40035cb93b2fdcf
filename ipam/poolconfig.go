package ipam

import (
	"fmt"
	"net/netip"
	"strings"
)

// State controls whether a pool hands out prefixes.
type State int

const (
	// Active pools hand out node prefixes.
	Active State = iota
	// Draining pools hand out nothing. Nodes keep the prefixes they have of them.
	Draining
)

// String returns the state as it is written in the configuration.
func (s State) String() string {
	switch s {
	case Active:
		return "active"
	case Draining:
		return "draining"
	default:
		return fmt.Sprintf("State(%d)", int(s))
	}
}

// Limits of a node mask in bits below its pool: 65,536 node prefixes in IPv4, 2^48 in IPv6.
const (
	maxPoolBits4 = 16
	maxPoolBits6 = 48
)

// Range of node masks for pools that are cut from each server's own prefix, which is a /64.
const (
	shortestOwnMask = 65
	longestOwnMask  = 126
)

const maxNameLength = 63

// A PoolConfig describes a pool. It may be invalid.
type PoolConfig struct {
	// Name is unique among the pools: a-z, 0-9 and "-", at most 63 characters.
	Name string
	// Prefix is the range to carve, with its host bits zero. It is not set for pools with Own.
	Prefix netip.Prefix
	// NodeMask is the length in bits of each node prefix.
	NodeMask int
	State    State
	// Own means that node prefixes are cut from each server's own IPv6 prefix instead.
	Own bool
}

// String returns the pool's name and range for messages.
func (c PoolConfig) String() string {
	if c.Own {
		return fmt.Sprintf("pool %s (the servers' own prefixes)", c.Name)
	}
	return fmt.Sprintf("pool %s (%s)", c.Name, c.Prefix)
}

// check returns an error that names the value and a remedy if the pool is invalid.
func (c PoolConfig) check() error {
	if !validName(c.Name) {
		return fmt.Errorf("pool name %q of %s: use 1 to %d of the characters a-z, 0-9 and \"-\"", c.Name,
			c.Prefix, maxNameLength)
	}
	if c.State != Active && c.State != Draining {
		return fmt.Errorf("%s: unknown state %d: use active or draining", c, c.State)
	}
	if c.Own {
		return c.checkOwn()
	}
	return c.checkSize()
}

func (c PoolConfig) checkOwn() error {
	if c.Prefix.IsValid() {
		return fmt.Errorf("%s: has the prefix %s as well: leave one of them out", c, c.Prefix)
	}
	if c.NodeMask < shortestOwnMask || c.NodeMask > longestOwnMask {
		return fmt.Errorf("%s: node mask /%d can't be cut from a server's /64: use one between /%d and /%d",
			c, c.NodeMask, shortestOwnMask, longestOwnMask)
	}
	return nil
}

func (c PoolConfig) checkSize() error {
	p := c.Prefix
	if !p.IsValid() {
		return fmt.Errorf("%s: not a prefix: write an address and a length, such as 10.244.0.0/16", c)
	}
	if p != canonical(p) {
		return fmt.Errorf("%s: not the first address of its range: write %s", c, canonical(p))
	}
	deepest := maxPoolBits6
	if p.Addr().Is4() {
		deepest = maxPoolBits4
	}
	// host-local needs a network, a gateway, a pod and a broadcast address.
	longest := p.Addr().BitLen() - 2
	switch {
	case p.Bits() > longest:
		return fmt.Errorf("%s: too small for even one node prefix: a node prefix is at most a /%d", c,
			longest)
	case c.NodeMask < p.Bits():
		return fmt.Errorf("%s: node mask /%d is larger than the pool: use one between /%d and /%d",
			c, c.NodeMask, p.Bits(), min(longest, p.Bits()+deepest))
	case c.NodeMask > longest:
		return fmt.Errorf("%s: node mask /%d leaves no addresses for pods: use /%d or shorter", c,
			c.NodeMask, longest)
	case c.NodeMask-p.Bits() > deepest:
		return fmt.Errorf("%s: node mask /%d cuts it into more than 2^%d node prefixes: use a node mask of /%d or shorter, or a pool of /%d or longer",
			c, c.NodeMask, deepest, p.Bits()+deepest, c.NodeMask-deepest)
	}
	return nil
}

func validName(name string) bool {
	const allowed = "abcdefghijklmnopqrstuvwxyz0123456789-"
	return name != "" && len(name) <= maxNameLength && strings.Trim(name, allowed) == ""
}
