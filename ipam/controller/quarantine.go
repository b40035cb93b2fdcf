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

// quarantineLook is how often a quarantine is looked at that could be over but for a route.
const quarantineLook = 10 * time.Second

// count begins the quarantine of a Node that is gone, where this process sees it first. Only what
// is left of one that another process began depends on when the stored ledger says that was. One
// that is over by that, and yet there, is counted in full: the clock that began it may have been
// behind.
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

// expire ends the quarantines that are over, and arranges for the next look.
func (d *decider) expire(ctx context.Context) {
	d.due = time.Time{}
	d.lookAtRoutes(ctx)
	if len(d.routes.told) > 0 && d.waiting.len() > 0 {
		d.expireIn(quarantineLook) // the routes may go, and nothing else would tell
	}
	for _, h := range d.ledger.Quarantined() {
		n := d.identify(h.Node)
		d.count(n, h.Released)
		switch left := time.Until(n.until); {
		case left > 0:
			d.expireIn(max(left, time.Second))
			continue
		case n.phase != confirmedGone && d.seen(h.Node):
			// Whoever wrote that it is gone: the API server has the last word.
			d.request(n)
		case d.unrouted(h, n.since):
			d.free(ctx, h)
			continue
		}
		d.expireIn(quarantineLook)
	}
}

// seen reports whether the cache has the very Node.
func (d *decider) seen(owner ipam.Node) bool {
	live, err := d.lister.Get(owner.Name)
	return err == nil && string(live.UID) == owner.UID
}

// expireIn arranges for a look at the quarantines no later than that.
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

// unrouted reports whether no route toward what a Node had stands any more, for sure: a list that
// was asked for before the Node's end may lack a route that came after it. What a living Node has as
// well, set by somebody else, doesn't count: the route is toward that one, and the prefix doesn't
// become free.
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
	klog.FromContext(ctx).Info("Quarantine is over, the podCIDRs are free", "node", h.Node.Name, "uid", h.Node.UID, "podCIDRs", freed)
	d.freed, d.stale = true, true
	if n, ok := d.nodes[types.UID(h.Node.UID)]; ok {
		d.noted(n)
		if n.gone() {
			d.drop(n)
			d.vacates(n)
		}
	}
}
