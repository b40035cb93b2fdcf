package controller

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// outcome identifies an attempt to route an address to a node.
type outcome struct {
	address netip.Addr
	node    string
}

func (r *routing) observe(address netip.Addr, node string, refused bool) {
	if r.outcomes == nil {
		r.outcomes = make(map[outcome]bool)
	}
	r.outcomes[outcome{address, node}] = refused
	if refused {
		r.changed()
	}
}

func (r *routing) takeOutcomes() map[outcome]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.outcomes
	r.outcomes = nil
	return taken
}

// steady returns a function that reports whether an address may be balanced: it has the desired
// route and the provider accepts requests. Otherwise ledger and routes would only diverge.
func (r *routing) steady() func(netip.Addr) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	astray, steady := make(map[netip.Addr]bool), r.known
	for address, d := range r.wanted {
		if r.leads[address] != d.providerID {
			astray[address] = true
			steady = steady && r.tries[address].stays // every node would be refused
		}
	}
	return func(address netip.Addr) bool { return steady && !astray[address] }
}

func (c *Controller) announceRouting(mover string, address netip.Addr, d destination, err error) {
	for _, svc := range d.services {
		c.recorder.Eventf(svc, corev1.EventTypeWarning, reasonRouting, "%s: %s was not led to node %s, will retry: %s",
			mover, address, d.node, cut(err.Error(), longest))
	}
}
