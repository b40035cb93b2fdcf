package controller

import (
	"maps"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// calmFor is how long nothing must have moved before addresses move to spread over the nodes.
	calmFor = 5 * time.Minute
	// balanceEvery is the time between two such moves: each is one that nobody needed.
	balanceEvery = time.Minute
)

// calm knows since when nothing has moved.
type calm struct {
	since    time.Time // the last move that was needed, or the start
	balanced time.Time // the last one that was not
	readAt   time.Time // the stored ledger
	unequal  bool      // there is something to balance
}

// begin is called when something moves.
func (c *calm) begin(now time.Time) { c.since = now }

// old reports whether the stored ledger was read long ago.
func (c *calm) old(now time.Time) bool { return now.Sub(c.readAt) >= lookAgain }

// due is when the next move that is not needed may be.
func (c *calm) due() time.Time {
	due := c.since.Add(calmFor)
	if next := c.balanced.Add(balanceEvery); next.After(due) {
		return next
	}
	return due
}

// next is when there is something to balance; zero: there is nothing.
func (c *calm) next() time.Time {
	if !c.unequal {
		return time.Time{}
	}
	return c.due()
}

// balance moves one address to a node that holds fewer, if all is calm and nothing else is to be
// done. Providers that count moves, or don't do as asked, are spared.
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
