package controller

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/ipam"
)

// quarantineLook is the interval for checking quarantines that only a route keeps open.
const quarantineLook = 10 * time.Second

// count starts the quarantine of a deleted Node when this process first observes the deletion.
// The recorded time only shortens a quarantine that another process started. One that is over
// by that time, yet still exists, lasts its full time: the clock may have been behind.
func (d *decider) count(n *node, released time.Time) {
	if !n.since.IsZero() {
		return
	}
	n.since = time.Now()
	left := released.Add(d.Quarantine).Sub(n.since)
	if left <= 0 || left > d.Quarantine {
		left = d.Quarantine
	}
	n.until = n.since.Add(left)
}

// expire ends the quarantines that are over, and schedules the next check.
func (d *decider) expire(ctx context.Context) {
	d.due = time.Time{}
	d.lookAtRoutes(ctx)
	if len(d.routes.warned) > 0 && d.waiting > 0 {
		d.expireIn(quarantineLook) // the routes may be deleted, without any other notification
	}
	for _, h := range d.ledger.Quarantined() {
		n := d.identify(h.Node)
		d.count(n, h.Released)
		switch left := time.Until(n.until); {
		case left > 0:
			d.expireIn(max(left, time.Second))
			continue
		case n.phase != confirmedGone && d.seen(h.Node):
			// Confirm with the API server, whatever the record.
			d.request(n)
		case d.unrouted(h, n.since):
			d.free(ctx, h)
			continue
		}
		d.expireIn(quarantineLook)
	}
}

// seen reports whether the cache has the Node with this UID.
func (d *decider) seen(owner ipam.Node) bool {
	live, err := d.lister.Get(owner.Name)
	return err == nil && string(live.UID) == owner.UID
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

func (d *decider) free(ctx context.Context, h ipam.Holding) {
	freed := d.ledger.Free(h.Node.UID)
	klog.FromContext(ctx).Info("Quarantine is over, the podCIDRs are free", "node", h.Node.Name, "uid",
		h.Node.UID, "podCIDRs", freed)
	d.freed, d.stale = true, true
	if n, ok := d.nodes[types.UID(h.Node.UID)]; ok {
		d.noted(n)
		if n.gone() {
			d.drop(n)
			d.vacates(n)
		}
	}
}
