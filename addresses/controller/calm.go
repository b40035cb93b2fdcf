package controller

import (
	"maps"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// calmFor is the cooldown after a move before addresses are balanced.
	calmFor = 5 * time.Minute
	// balanceEvery is the interval of balancing moves: none of them is necessary.
	balanceEvery = time.Minute
)

type calm struct {
	since    time.Time // last necessary move, or the start
	balanced time.Time // last balancing move
	readAt   time.Time // last read of the stored ledger
	unequal  bool      // a balancing move is possible
}

func (c *calm) begin(now time.Time) { c.since = now }

func (c *calm) old(now time.Time) bool { return now.Sub(c.readAt) >= lookAgain }

func (c *calm) due() time.Time {
	due := c.since.Add(calmFor)
	if next := c.balanced.Add(balanceEvery); next.After(due) {
		return next
	}
	return due
}

// next returns when to balance, or the zero time if there is nothing to balance.
func (c *calm) next() time.Time {
	if !c.unequal {
		return time.Time{}
	}
	return c.due()
}

// balance moves one address to a node with fewer addresses if nothing else moves and the cooldown
// is over. Providers that limit moves or currently fail to route an address are exempt.
func (c *Controller) balance(p *plan) {
	eligible := maps.Clone(p.eligible)
	for mover, r := range c.routing {
		steady := r.steady()
		maps.DeleteFunc(eligible, func(address netip.Addr, _ addresses.Eligible) bool {
			pool, _ := poolOf(p.pools, address)
			return pool.Mover == mover && (r.Scarce || !steady(address))
		})
	}
	balanced, move, unequal := p.ledger.Balance(eligible)
	c.calm.unequal = unequal
	if !unequal || len(p.moves) > 0 || p.fleet.now.Before(c.calm.due()) {
		return
	}
	c.calm.balanced = p.fleet.now
	p.ledger = balanced
	p.moves = append(p.moves, move)
	p.why[move.Address] = whyBalanced
}
