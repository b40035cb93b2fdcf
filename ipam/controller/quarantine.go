package controller

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/ipam"
)

// quarantineLook is the interval for checking quarantines that only a route keeps open.
const quarantineLook = 10 * time.Second

// expire ends the quarantines that are over, and schedules the next check.
func (d *decider) expire(ctx context.Context) {
	d.due = time.Time{}
	if d.rebuilt {
		d.rebuilt = false
		d.vacated = true // by Nodes deleted before they were decided on
		for _, n := range d.nodes {
			d.noted(n)
		}
	}
	d.lookAtRoutes(ctx)
	if len(d.routes.strange) > 0 && d.waiting.Len() > 0 {
		d.expireIn(quarantineLook) // the routes may be deleted, without any other notification
	}
	for _, h := range d.ledger.Quarantined() {
		n := d.identify(h.Node)
		d.depart(n, h.Released)
		g := n.departed()
		switch left := time.Until(g.until); {
		case left > 0:
			d.expireIn(max(left, time.Second))
			continue
		case !g.confirmed && d.cachedNode(h.Node) != nil:
			// Confirm with the API server, whatever the record.
			d.request(n)
		case d.unrouted(h, g.since):
			d.free(ctx, n)
			continue
		}
		d.expireIn(quarantineLook)
	}
}

// expireIn schedules a check of the quarantines after at most this time.
func (d *decider) expireIn(after time.Duration) {
	due := time.Now().Add(after)
	if !d.due.IsZero() && !due.Before(d.due) {
		return
	}
	d.due = due
	if d.alarm != nil {
		d.alarm.Reset(after)
	}
}

// unrouted reports whether a current list shows that no route to the Node's prefixes exists: a
// list requested before the Node's deletion may lack a later route. A prefix that an existing Node
// has too, set by another component, doesn't count: it is routed to that Node and stays in use.
func (d *decider) unrouted(h ipam.Holding, since time.Time) bool {
	if d.Routed == nil {
		return true
	}
	return !slices.ContainsFunc(slices.Concat(h.Prefixes, h.Abandoned), func(p netip.Prefix) bool {
		routed, known := d.Routed(p, since)
		return !known || routed && !d.ledger.Shared(p)
	})
}

func (d *decider) free(ctx context.Context, n *node) {
	freed := d.ledger.Free(n.UID)
	klog.FromContext(ctx).Info("Quarantine is over, the podCIDRs are free", "node", n.Name, "uid",
		n.UID, "podCIDRs", freed)
	d.freed, d.stale = true, true
	d.noted(n)
	d.drop(n)
}
