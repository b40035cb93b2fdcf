package agent

import (
	"context"

	"github.com/underlay-ccm/underlay/addresses"
)

// Passive announces addresses that a provider routes to this node by request of the manager.
// The node itself has nothing to configure.
type Passive struct{ held []addresses.Hold }

// Run waits until ctx is done.
func (p *Passive) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// Set marks all of want.Hold as held.
func (p *Passive) Set(want addresses.Assignment) {
	p.held = nil
	for _, h := range want.Hold {
		p.held = append(p.held, addresses.Hold{Address: h.Address, Epoch: h.Epoch})
	}
}

// Status returns the addresses of the last Set as held.
func (p *Passive) Status() addresses.Status { return addresses.Status{Held: p.held} }
