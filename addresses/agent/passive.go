package agent

import (
	"context"
	"sync"

	"github.com/underlay-ccm/underlay/addresses"
)

// Passive is the mover of addresses that somebody else brings to this node, such as a cloud that is
// told to by the manager: holding one takes nothing here.
type Passive struct {
	mu   sync.Mutex
	held []addresses.Hold
}

// Run has nothing to do.
func (p *Passive) Run(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}

// Set holds all of it at once.
func (p *Passive) Set(w Want) {
	held := make([]addresses.Hold, len(w.Hold))
	for i, h := range w.Hold {
		held[i] = addresses.Hold{Address: h.Address, Epoch: h.Epoch}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = held
}

// State is what it was given last.
func (p *Passive) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	return State{Held: p.held}
}
