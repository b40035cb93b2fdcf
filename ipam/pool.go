package ipam

import "net/netip"

// pool is a configured pool. It has the order in which it hands out prefixes; the Ledger records
// their holders.
//
// Node prefixes are handed out in a circle, which gives routes and connection tracking time to
// expire before one is used again. Where it continues is not stored: after a restart, that is after
// the prefix of the youngest Node.
type pool struct {
	PoolConfig
	grid grid   // the zero grid in a pool of the servers' own prefixes
	next uint64 // where the search in the circle continues
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
	p.next = (p.grid.index(prefix.Addr()) + 1) % p.grid.size()
}
