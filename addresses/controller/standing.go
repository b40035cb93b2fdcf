package controller

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// outcome is of an address that was to be led to a node.
type outcome struct {
	address netip.Addr
	node    string
}

// hear takes in whether a provider refused to lead an address to a node.
func (r *routing) hear(address netip.Addr, node string, refused bool) {
	if r.outcomes == nil {
		r.outcomes = make(map[outcome]bool)
	}
	r.outcomes[outcome{address, node}] = refused
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

// steady returns whether an address can be moved though nobody needs it: the provider does what it is
// asked to. While it refuses one, or is away, the ledger would only part from where packets go.
func (r *routing) steady() func(netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	astray, steady := make(map[netip.Addr]bool), r.known
	for address, d := range r.wanted {
		if r.leads[address] != d.providerID {
			astray[address] = true
			steady = steady && r.tries[address].stays // whatever node it is for
		}
	}
	return func(address netip.Addr) bool { return steady && !astray[address] }
}

// announceRouting makes Events of what a router could not do.
func (c *Controller) announceRouting(mover string, address netip.Addr, d destination, err error) {
	for _, svc := range d.services {
		c.recorder.Eventf(svc, corev1.EventTypeWarning, reasonRouting, "%s: %s was not led to node %s, will retry: %s",
			mover, address, d.node, cut(err.Error(), longest))
	}
}
