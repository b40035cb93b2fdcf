package ipam

import (
	"net/netip"
	"slices"
)

// maxReleased is how many node prefixes wait outside of the circle. With more, the oldest goes
// back into it. Each costs some bytes of the stored ledger.
const maxReleased = 64

// pool is a pool of the configuration. It knows in which order it hands out, and nothing of who
// holds what: that is the Ledger's to say.
//
// Node prefixes are handed out in a circle. Those that became free lately wait outside of it
// and go last, the one just released after all others, which gives routes and connection
// tracking the longest time to forget it. [Cursor] is the whole of that order.
type pool struct {
	PoolConfig
	grid     grid     // the zero grid in a pool of the servers' own prefixes
	next     uint64   // where the search in the circle goes on
	released []uint64 // those that wait outside of it, oldest first
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

// took notes that a node prefix was handed out: the circle goes on after it.
func (p *pool) took(prefix netip.Prefix) {
	i := p.grid.index(prefix.Addr())
	if !slices.Contains(p.released, i) {
		p.next = (i + 1) % p.grid.size()
	}
}

// hold notes that a node prefix is held, and waits no more.
func (p *pool) hold(prefix netip.Prefix) {
	i := p.grid.index(prefix.Addr())
	p.released = slices.DeleteFunc(p.released, func(waiting uint64) bool { return waiting == i })
}

// release puts a node prefix at the end of those that wait.
func (p *pool) release(prefix netip.Prefix) {
	p.released = append(p.released, p.grid.index(prefix.Addr()))
	p.released = p.released[max(0, len(p.released)-maxReleased):]
}
