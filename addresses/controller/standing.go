package controller

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// standing is what a routing has come to, for the goroutine that decides: which nodes a provider led
// addresses to and which it refused, and whether there is anything that it has not done. Methods of
// routing that use it lock.
type standing struct {
	outcomes map[outcome]bool // that decided nothing so far; true: refused
	// known: the provider tells where addresses lead.
	known bool
	// astray are the addresses that don't lead to their nodes; true: such as stay whatever node they
	// are for.
	astray map[netip.Addr]bool
}

// outcome is of an address that was to be led to a node.
type outcome struct {
	address netip.Addr
	node    string
}

// hear takes in whether a provider refused to lead an address to a node.
func (r *routing) hear(address netip.Addr, node string, refused bool) {
	r.mu.Lock()
	if r.outcomes == nil {
		r.outcomes = make(map[outcome]bool)
	}
	r.outcomes[outcome{address, node}] = refused
	r.mu.Unlock()
	if refused {
		r.changed()
	}
}

// heard are the outcomes since the last call.
func (r *routing) heard() map[outcome]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	heard := r.outcomes
	r.outcomes = nil
	return heard
}

// stand takes in which addresses don't lead to their nodes; nil: nobody tells.
func (r *routing) stand(astray map[netip.Addr]bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.astray = astray != nil, astray
}

// steady reports whether an address can be moved though nobody needs it: the provider does what it is
// asked to. While it refuses one, or is away, the ledger would only part from where packets go.
func (r *routing) steady(address netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, astray := r.astray[address]; astray || !r.known {
		return false
	}
	for _, stays := range r.astray {
		if !stays {
			return false
		}
	}
	return true
}

// announceRouting makes Events of what a router could not do.
func (c *Controller) announceRouting(mover string, address netip.Addr, d destination, err error) {
	for _, svc := range d.services {
		c.recorder.Eventf(svc, corev1.EventTypeWarning, reasonRouting, "%s: %s was not led to node %s, will retry: %s",
			mover, address, d.node, cut(err.Error(), longest))
	}
}
