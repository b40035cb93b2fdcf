package controller

import (
	"context"
	"net/netip"
	"slices"
	"time"
)

// comeback limits how long a new Node waits for its provider ID if its name has prefixes in
// quarantine: the ID shows whether the machine is the same. The node controller sets it within
// seconds.
const comeback = 30 * time.Second

// reserve assigns prefixes to an unserved Node and requests what follows, or lets the Node wait.
func (d *decider) reserve(ctx context.Context, n *node) {
	if d.awaitsIdentity(n) || d.awaitsRoutes(ctx, n) {
		return
	}
	if reserved, ok := d.assign(ctx, n); ok && (len(reserved) == 0 || d.recorded(n)) {
		d.request(n)
	}
}

// assign returns the prefixes reserved for an unserved Node. It returns none if its own prefix has
// to be looked up first, and reports false if the Node has to wait.
func (d *decider) assign(ctx context.Context, n *node) (reserved []netip.Prefix, ok bool) {
	before, _, known := d.ledger.Held(n.UID)
	var err error
	switch {
	case d.mustStop(n):
		err = errSecondAllocator
	case !known && d.full():
		err = errLedgerFull
	case !n.own.known && d.wantsOwn(n):
		return nil, true
	default:
		reserved, err = d.ledger.Assign(n.Node, d.offered(n))
	}
	if err != nil {
		d.wait(ctx, n, reasonOfRefusal(err), err)
		return nil, false
	}
	d.stopWaiting(n)
	if !slices.Equal(before, reserved) {
		d.succeed(n)
		d.warnFallback(n, reserved)
	}
	return reserved, true
}

// succeed drops the states of the same name whose prefixes this Node took over.
func (d *decider) succeed(n *node) {
	for _, same := range slices.Clone(d.byName[n.Name]) {
		if _, _, held := d.ledger.Held(same.UID); same.gone() && !held {
			d.drop(same)
			d.stale = true
		}
	}
}

// awaitsIdentity reports whether a Node may be a returning machine whose provider ID is not
// set yet. It requeues the Node until the ID is set or the wait has timed out.
func (d *decider) awaitsIdentity(n *node) bool {
	left := comeback - n.age()
	for _, same := range d.byName[n.Name] {
		switch {
		case same == n:
		case !same.gone() && !same.cached:
			return true // a live GET of that Node is due, after which its prefixes are in quarantine
		case same.gone() && same.ProviderID != "" && n.ProviderID == "" && left > 0:
			d.queue.AddAfter(n.Name, max(left, time.Second))
			return true
		}
	}
	return false
}
