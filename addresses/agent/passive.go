package agent

import (
	"context"
	"sync"

	"github.com/underlay-ccm/underlay/addresses"
)

// Passive is the Mover of addresses that a provider routes to this node by request of the manager.
// The node itself has nothing to configure.
type Passive struct {
	mu   sync.Mutex
	held []addresses.Hold
}

// Run waits until ctx is done.
func (p *Passive) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// Set marks all of w.Hold as held.
func (p *Passive) Set(w Want) {
	held := make([]addresses.Hold, len(w.Hold))
	for i, h := range w.Hold {
		held[i] = addresses.Hold{Address: h.Address, Epoch: h.Epoch}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
}

// State returns the addresses of the last Set as held.
func (p *Passive) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{Held: p.held}
}
