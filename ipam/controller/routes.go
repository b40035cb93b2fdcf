package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// routesPatience is how long after the ledger was loaded the first Nodes wait for a first list of
// the network's routes. The ledger alone keeps prefixes apart, so a cloud that doesn't answer
// stops allocation no longer than that.
const routesPatience = 30 * time.Second

// routesAgain is how often a Node that waits for the list looks whether it is there.
const routesAgain = 500 * time.Millisecond

// routesSeen is what the last known list of the network's routes showed.
type routesSeen struct {
	known    bool
	standing []netip.Prefix
	told     map[netip.Prefix]bool // nobody's, and said so
	since    time.Time             // when it was first asked for in vain
}

// awaitsRoutes reports whether a Node that holds nothing has to wait until the routes are known.
func (d *decider) awaitsRoutes(ctx context.Context, n *node) bool {
	d.lookAtRoutes(ctx)
	if d.Routes == nil || d.routes.known {
		return false
	}
	if _, held := d.ledger.Lookup(n.UID); held {
		return false
	}
	if d.routes.since.IsZero() {
		d.routes.since = time.Now()
	}
	if time.Since(d.routes.since) >= routesPatience {
		klog.FromContext(ctx).V(1).Info("The network's routes are not known; a prefix that is routed already may be handed out", "node", n.Name)
		return false
	}
	d.queue.AddAfter(n.Name, routesAgain)
	return true
}

// lookAtRoutes keeps the Ledger from handing out what is routed already. Where the list is not
// known any more, the last one counts.
func (d *decider) lookAtRoutes(ctx context.Context) {
	if d.Routes == nil {
		return
	}
	standing, known := d.Routes()
	if !known || d.routes.known && slices.Equal(standing, d.routes.standing) {
		return
	}
	d.routes.known, d.routes.standing = true, standing
	d.blockRoutes(ctx)
	d.freed = true
}

// blockRoutes tells the Ledger about the routes, and people once about each that is nobody's.
func (d *decider) blockRoutes(ctx context.Context) {
	told := map[netip.Prefix]bool{}
	for _, p := range d.ledger.SetRoutes(d.routes.standing) {
		if told[p] = true; d.routes.told[p] {
			continue
		}
		text := fmt.Sprintf("The network has a route to %s, which no Node of this cluster holds. Nothing that overlaps it is handed out: remove the route if nothing uses it, or keep it clear with exclude", p)
		klog.FromContext(ctx).Info(text)
		d.tellLedger(reasonPrefixRouted, text)
	}
	d.routes.told = told
}
