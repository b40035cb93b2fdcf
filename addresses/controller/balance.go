package controller

import (
	"maps"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// balanceAfter is the time without a necessary move before addresses are balanced.
	balanceAfter = 5 * time.Minute
	// balanceEvery is the interval of balancing moves: none of them is necessary.
	balanceEvery = time.Minute
)

// balance moves one address to a node with fewer addresses if nothing else moves. Providers that
// limit moves or currently fail to route an address are exempt.
func (c *Controller) balance(p *plan) {
	if len(p.moves) > 0 || p.fleet.now.Before(c.balanceAt) {
		return
	}
	eligible := maps.Clone(p.eligible)
	for mover, r := range c.routing {
		steady := r.steady()
		maps.DeleteFunc(eligible, func(address netip.Addr, _ addresses.Eligible) bool {
			pool, _ := poolOf(p.pools, address)
			return pool.Mover == mover && (r.Scarce || !steady(address))
		})
	}
	balanced, move, unequal := p.ledger.Balance(eligible)
	if !unequal {
		return
	}
	c.balanceAt = p.fleet.now.Add(balanceEvery)
	p.ledger = balanced
	p.moves = append(p.moves, move)
	p.why[move.Address] = whyBalanced
}
