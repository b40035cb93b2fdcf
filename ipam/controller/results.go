package controller

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

func (r *nodeRequest) handle(ctx context.Context, d *decider) error {
	n, ok := d.nodes[types.UID(r.node.UID)]
	if !ok {
		return nil // freed in the meantime
	}
	n.busy = false
	switch r.outcome {
	case holds, empty:
		if d.outdated(n) {
			return nil
		}
		d.revive(n)
		if r.outcome == empty {
			break
		}
		d.observe(ctx, n, r.live)
		if n.cached {
			return nil
		}
	case gone:
		if len(d.byName[n.Name]) > 1 && !n.gone() {
			d.queue.Add(n.Name) // for the next Node of that name, which may be the same machine
		}
		d.forget(ctx, n)
		if g := n.departed(); g != nil {
			g.confirmed = true
		}
		return nil
	}
	if r.err != nil {
		klog.FromContext(ctx).Error(r.err, "Node's podCIDRs are not known to be set; will look and try again",
			"node", n.Name)
	}
	d.queue.AddRateLimited(n.Name)
	return nil
}

func (r *ownRequest) handle(ctx context.Context, d *decider) error {
	n, ok := d.nodes[types.UID(r.node.UID)]
	if !ok {
		return nil
	}
	n.busy = false
	switch {
	case r.err != nil:
		err := fmt.Errorf("finding the own IPv6 prefix of the machine of Node %s: %w", n.Name, r.err)
		klog.FromContext(ctx).Error(err, "Node can't be given podCIDRs; will try again", "node", n.Name)
		if n.unserved() != nil && n.age() > comeback {
			d.wait(ctx, n, reasonOwnPrefixUnknown, err)
		}
		d.queue.AddRateLimited(n.Name)
		return nil
	case r.live.Spec.ProviderID == n.ProviderID: // else the Node turned out to be another machine
		n.own = r.own
	}
	if n.unserved() != nil {
		d.reserve(ctx, n)
	}
	return nil
}

func (r *conditionRequest) handle(ctx context.Context, d *decider) error {
	n, ok := d.nodes[r.live.UID]
	if !ok {
		return nil
	}
	n.condition.writing = false
	if r.err == nil {
		d.queue.Add(n.Name) // its state may have changed
		return nil
	}
	klog.FromContext(ctx).Error(r.err, "Node's condition is not known to be set; will try again",
		"node", n.Name)
	n.condition.reason = ""
	d.queue.AddRateLimited(n.Name)
	return nil
}

func (r *policyRequest) handle(ctx context.Context, d *decider) error {
	if r.err != nil {
		klog.FromContext(ctx).Error(r.err, "Whether the admission policy is in place is not known")
	}
	d.other.refused = r.refuses
	d.freed = d.freed || r.refuses
	return nil
}

// observe records podCIDRs that a Node has. They are immutable.
func (d *decider) observe(ctx context.Context, n *node, live *corev1.Node) {
	if n.settled() {
		return
	}
	before, _, _ := d.ledger.Held(n.UID)
	prefixes, _ := kube.PodCIDRs(live)
	d.settle(ctx, n, live, before, d.look(n, prefixes))
	d.noted(n)
}

// settle updates the state after the Ledger observed a Node's podCIDRs.
func (d *decider) settle(
	ctx context.Context, n *node, live *corev1.Node, before []netip.Prefix, warnings []ipam.Warning,
) {
	logger := klog.FromContext(ctx)
	prefixes, unreadable := kube.PodCIDRs(live)
	known := len(before) > 0
	// The order of families doesn't matter: another allocator may have set them in another one.
	sorted := func(p []netip.Prefix) []netip.Prefix {
		return slices.SortedFunc(slices.Values(p), netip.Prefix.Compare)
	}
	expected := known && slices.Equal(sorted(before), sorted(prefixes))
	u := n.unserved()
	d.stopWaiting(n)
	n.phase = settled{}
	d.queue.Forget(n.Name)
	d.suspect(ctx, live, expected)
	switch {
	case expected && u != nil && u.delivery == sent:
		d.metrics.allocated(time.Since(n.created))
		logger.Info("Node has its podCIDRs", "node", n.Name, "podCIDRs", prefixes)
	case known && !expected:
		d.metrics.conflicts.Inc()
		logger.Info("Node has other podCIDRs than those reserved for it", "node", n.Name, "podCIDRs",
			prefixes, "reserved", before)
	}
	if unreadable != nil {
		d.warnOnce(n, reasonForeignPodCIDR, "", unreadable.Error())
	}
	d.warn(ctx, warnings)
}

// look records a Node's podCIDRs in the Ledger. Its other reservations enter quarantine.
func (d *decider) look(n *node, podCIDRs []netip.Prefix) []ipam.Warning {
	warnings := d.ledger.Observe(n.Node, podCIDRs, moment())
	retired := n.Node
	retired.UID += ipam.RetiredSuffix
	if held, ok := d.ledger.Lookup(retired.UID); ok {
		d.depart(d.identify(retired), held.Released)
		d.stale = true
	}
	return warnings
}

func (d *decider) warn(ctx context.Context, warnings []ipam.Warning) {
	for _, w := range warnings {
		n, ok := d.nodes[types.UID(w.Node.UID)]
		if !ok {
			continue
		}
		if d.warnOnce(n, reasonOf(w), w.Prefix.String(), w.String()) {
			klog.FromContext(ctx).Info("Node's podCIDRs are not as they should be", "node", n.Name,
				"warning", w.String())
		}
	}
}

// inquiring reports whether some Nodes still have to be read from the API server.
func (d *decider) inquiring() bool {
	for _, n := range d.nodes {
		if !n.cached && !n.gone() {
			return true
		}
	}
	return false
}

// moment returns the current time, rounded up to the second: shorter text, no shorter quarantine.
func moment() time.Time { return time.Now().UTC().Add(time.Second - 1).Truncate(time.Second) }

// outdated reports whether the cache has shown a Node's deletion. A UID is never reused.
func (d *decider) outdated(n *node) bool {
	return n.gone() && n.cached && d.cachedNode(n.Node) == nil
}

// countEvery limits how often the pools are counted: a tenth of a microsecond per held prefix.
const countEvery = time.Second

// show publishes changed pool states, or returns how long to wait if they were counted recently.
func (d *decider) show() (wait time.Duration) {
	d.metrics.showTrouble(d.waiting.Len(), d.other.stops())
	d.showDeparted()
	if !d.ledger.Counted() {
		if wait = time.Until(d.counted.Add(countEvery)); wait > 0 {
			return wait
		}
		d.counted = time.Now()
	}
	if counts := d.ledger.Counts(); !slices.Equal(counts, d.shown) {
		d.shown = counts
		d.metrics.showRanges(counts)
	}
	return 0
}

func (d *decider) showDeparted() {
	if !d.stale || d.queue.Len() > 0 {
		return // once for many deletions
	}
	if d.departed.Load() == nil && d.inquiring() {
		return
	}
	d.stale = false
	out := Departed(d.ledger.Quarantined())
	d.departed.Store(&out)
}

// Departed returns the holders that are deleted Nodes with podCIDRs in quarantine, by name.
func Departed(holdings []ipam.Holding) []kube.Departed {
	var out []kube.Departed
	for _, h := range holdings {
		if !h.Released.IsZero() {
			out = append(out, kube.Departed{
				Name: h.Node.Name, ProviderID: h.Node.ProviderID,
				Prefixes: slices.Concat(h.Prefixes, h.Abandoned),
			})
		}
	}
	slices.SortFunc(out, func(a, b kube.Departed) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ProviderID, b.ProviderID))
	})
	return out
}
