package ipam

import (
	"net/netip"
	"slices"
)

// maxReleased limits how many released node prefixes are kept out of the circle. Beyond it,
// the oldest returns to the circle.
const maxReleased = 64

// pool is a configured pool. It has the order in which it hands out prefixes; the Ledger records
// their holders.
//
// Node prefixes are handed out in a circle. Recently released ones are kept out of it and
// handed out last, the latest after all others, which gives routes and connection tracking the
// longest time to expire. The order is not stored: after a restart, the circle continues after the
// prefix of the youngest Node.
type pool struct {
	PoolConfig
	grid     grid     // the zero grid in a pool of the servers' own prefixes
	next     uint64   // where the search in the circle continues
	released []uint64 // kept out of the circle, oldest first
}

func newPool(config PoolConfig) (*pool, error) {
	if err := config.check(); err != nil {
		return nil, err
	}
	p := &pool{PoolConfig: config}
	if !config.Own {
		p.grid = grid{config.Prefix, config.NodeMask}
	}
	return p, nil
}

func (p *pool) ipv6() bool { return p.Own || p.Prefix.Addr().Is6() }

// carves reports whether the prefix is one of the pool's node prefixes.
func (p *pool) carves(prefix netip.Prefix) bool { return !p.Own && p.grid.carves(prefix) }

// took records that a node prefix was handed out: the circle continues after it.
func (p *pool) took(prefix netip.Prefix) {
	i := p.grid.index(prefix.Addr())
	if !slices.Contains(p.released, i) {
		p.next = (i + 1) % p.grid.size()
	}
}

func (p *pool) hold(prefix netip.Prefix) {
	i := p.grid.index(prefix.Addr())
	p.released = slices.DeleteFunc(p.released, func(waiting uint64) bool { return waiting == i })
}

func (p *pool) release(prefix netip.Prefix) {
	p.released = append(p.released, p.grid.index(prefix.Addr()))
	p.released = p.released[max(0, len(p.released)-maxReleased):]
}
