package controller

import (
	"cmp"
	"context"
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

func (d *decider) takeResult(ctx context.Context, f finding) {
	d.flying--
	logger := klog.FromContext(ctx)
	if f.job.policy {
		if f.err != nil {
			logger.Error(f.err, "Whether the admission policy is in place is not known")
		}
		d.other.refused = f.refuses
		d.freed = d.freed || d.other.refused
		return
	}
	n, ok := d.nodes[types.UID(f.job.node.UID)]
	if !ok {
		return // freed in the meantime
	}
	if f.job.notice != nil {
		n.writingCondition = false
		if f.err != nil {
			logger.Error(f.err, "Node's condition is not known to be set; will try again", "node", n.Name)
			n.shownReason = ""
			d.queue.AddRateLimited(n.Name)
		} else {
			d.queue.Add(n.Name) // its state may have changed
		}
		return
	}
	n.busy = false
	if f.job.locate != nil && f.err != nil && !n.gone() && n.age() > comeback {
		d.wait(ctx, n, reasonOwnPrefixUnknown, f.err)
	}
	switch f.outcome {
	case located:
		n.own = *f.own
		if !n.gone() {
			d.reserve(ctx, n)
		}
		return
	case holds, empty:
		if d.outdated(n) {
			return
		}
		d.revive(n)
		if f.outcome == empty {
			break
		}
		d.observe(ctx, n, f.live)
		if n.cached {
			return
		}
	case gone:
		if len(d.byName[n.Name]) > 1 && !n.gone() {
			d.queue.Add(n.Name) // for the next Node of that name, which may be the same machine
		}
		d.forget(ctx, n)
		n.phase = confirmedGone
		return
	}
	if f.err != nil {
		logger.Error(f.err, "Node's podCIDRs are not known to be set; will look and try again", "node",
			n.Name)
	}
	n.doubt = true
	d.queue.AddRateLimited(n.Name)
}

// observe records podCIDRs that a Node has. They are immutable.
func (d *decider) observe(ctx context.Context, n *node, live *corev1.Node) {
	if n.phase == settled {
		return
	}
	before, _, _ := d.ledger.Held(n.UID)
	prefixes, _ := kube.PodCIDRs(live)
	d.settle(ctx, n, live, before, d.look(n, prefixes))
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
	n.phase, n.doubt = settled, false
	d.noted(n)
	d.stopWaiting(n)
	d.queue.Forget(n.Name)
	d.suspect(ctx, live, expected)
	switch {
	case expected && n.delivery == sent:
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
		gone := d.identify(retired)
		gone.phase, d.stale = released, true
		d.count(gone, held.Released)
		d.expireIn(max(d.Quarantine, time.Second))
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

// forget puts the prefixes of a deleted UID into quarantine.
func (d *decider) forget(ctx context.Context, n *node) {
	if n.gone() {
		return
	}
	d.stopWaiting(n)
	n.phase = released
	held, ok := d.ledger.Release(n.UID, moment())
	if !ok {
		d.drop(n)
		d.vacates(n)
		return
	}
	d.count(n, held.Released)
	d.metrics.releases.Inc()
	d.noted(n)
	d.stale = true
	klog.FromContext(ctx).Info("Node is gone, its podCIDRs are in quarantine", "node", n.Name, "uid",
		n.UID, "podCIDRs", held.Prefixes)
	d.expireIn(max(d.Quarantine, time.Second))
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
func (d *decider) outdated(n *node) bool { return n.gone() && n.cached && !d.seen(n.Node) }

// revive marks a Node that the API server has as existing. Its prefixes leave quarantine when
// the Ledger next observes or assigns them.
func (d *decider) revive(n *node) {
	if n.gone() {
		n.phase, n.since, d.stale = unserved, time.Time{}, true
	}
}

func (d *decider) drop(n *node) {
	d.stopWaiting(n)
	delete(d.nodes, types.UID(n.UID))
	d.byName[n.Name] = slices.DeleteFunc(d.byName[n.Name], func(other *node) bool {
		return other == n
	})
	if len(d.byName[n.Name]) == 0 {
		delete(d.byName, n.Name)
		d.queue.Forget(n.Name)
	}
}

// track returns the state of a Node's UID, updated from the live Node.
func (d *decider) track(live *corev1.Node) *node {
	n := d.identify(ipam.Node{
		Name: live.Name, UID: string(live.UID), ProviderID: live.Spec.ProviderID,
	})
	n.created, n.labels = live.CreationTimestamp.Time, live.Labels
	if n.ProviderID == live.Spec.ProviderID || live.Spec.ProviderID == "" {
		return n
	}
	n.ProviderID, n.own = live.Spec.ProviderID, ownPrefix{}
	if held, _, ok := d.ledger.Held(n.UID); ok && n.phase == settled {
		// So that the record identifies the machine after the Node's deletion.
		d.look(n, held)
		d.noted(n)
	}
	return n
}

// age returns the time since a Node's creation, or since this process first observed the Node
// if the creation time is ahead of the local clock.
func (n *node) age() time.Duration { return max(time.Since(n.created), time.Since(n.met)) }

// identify returns the state of a UID, creating it if necessary.
func (d *decider) identify(owner ipam.Node) *node {
	n, ok := d.nodes[types.UID(owner.UID)]
	if !ok {
		n = &node{Node: owner, met: time.Now()}
		d.nodes[types.UID(owner.UID)] = n
		d.byName[owner.Name] = append(d.byName[owner.Name], n)
	}
	return n
}

// countEvery limits how often the pools are counted: a tenth of a microsecond per held prefix.
const countEvery = time.Second

// show publishes changed pool states, or returns how long to wait if they were counted recently.
func (d *decider) show() (wait time.Duration) {
	d.metrics.showTrouble(d.waiting, d.other.stops())
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
