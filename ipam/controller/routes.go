package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/klog/v2"
)

// routesPatience limits how long the first Nodes wait for a list of the network's routes. The
// ledger alone keeps prefixes apart, so an unresponsive cloud API must not stop allocation longer.
const routesPatience = 30 * time.Second

// routesAgain is the interval at which a waiting Node checks for the list.
const routesAgain = 500 * time.Millisecond

// routesSeen is the last list of the network's routes.
type routesSeen struct {
	known    bool
	standing []netip.Prefix
	strange  []netip.Prefix // destinations held by no Node, and reported
	since    time.Time      // when it was first missing
}

// awaitsRoutes reports whether a Node without prefixes has to wait for the list of routes.
func (d *decider) awaitsRoutes(ctx context.Context, n *node) bool {
	d.lookAtRoutes(ctx)
	if d.Routes == nil || d.routes.known {
		return false
	}
	if _, _, held := d.ledger.Held(n.UID); held {
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

// lookAtRoutes passes changed routes to the Ledger. Without a current list the last one counts.
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

// blockRoutes passes the routes to the Ledger, and reports once each destination without a Node.
func (d *decider) blockRoutes(ctx context.Context) {
	strange := d.ledger.SetRoutes(d.routes.standing)
	for _, p := range strange {
		if slices.Contains(d.routes.strange, p) {
			continue
		}
		text := fmt.Sprintf("The network has a route to %s, which no Node of this cluster holds. Nothing that overlaps it is handed out: remove the route if nothing uses it, or keep it clear with exclude", p)
		klog.FromContext(ctx).Info(text)
		d.warnLedger(reasonPrefixRouted, text)
	}
	d.routes.strange = strange
}
