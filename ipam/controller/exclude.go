package controller

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// serviceRangesKey is the queue key for all ServiceCIDRs. No Node can have this name.
const serviceRangesKey = "/servicecidrs"

// excluded returns all prefixes that must never be handed out: the configured ones, the
// current ranges of Services, and the addresses of Nodes that lie in pools.
func (d *decider) excluded() []netip.Prefix {
	out := slices.Clone(d.Exclusions)
	if d.ServiceCIDRs != nil {
		// The lister's only error is an invalid selector.
		ranges, _ := d.ServiceCIDRs.Lister().List(labels.Everything())
		for _, r := range ranges {
			for _, text := range r.Spec.CIDRs {
				// Always valid: checked by the API server.
				if p, err := netip.ParsePrefix(text); err == nil {
					out = append(out, p.Masked())
				}
			}
		}
	}
	nodes, _ := d.lister.List(labels.Everything())
	for _, live := range nodes {
		for _, a := range d.insidePools(live) {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

func (d *decider) exclude(ctx context.Context) {
	excluded := d.excluded()
	klog.FromContext(ctx).V(2).Info("Never handed out", "prefixes", excluded)
	d.warn(ctx, d.ledger.SetExclusions(excluded))
	d.freed = true
	for _, n := range d.nodes {
		d.reconsider(n)
	}
}

// reconsider requeues a Node if it has a reservation that may have to be replaced.
func (d *decider) reconsider(n *node) {
	if n.unserved() != nil && n.cached && !n.busy {
		d.queue.Add(n.Name)
	}
}

// occupies records the Node's addresses that lie in pools, and sends an Event about too many.
// New addresses are excluded at once and individually, because every Node may have some.
func (d *decider) occupies(ctx context.Context, n *node, live *corev1.Node) {
	if excess := kube.TooMany(live); excess != n.excess {
		if n.excess = excess; excess != "" {
			d.event(n, reasonTooManyAddresses, excess)
		}
	}
	inside := d.insidePools(live)
	if slices.Equal(inside, n.inside) {
		return
	}
	var more []netip.Prefix
	for _, a := range inside {
		if !slices.Contains(n.inside, a) {
			more = append(more, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	d.vacated = d.vacated || len(inside) < len(n.inside)+len(more)
	n.inside = inside
	warnings := d.ledger.Exclude(more)
	d.warn(ctx, warnings)
	for _, w := range warnings {
		if holder, ok := d.nodes[types.UID(w.Node.UID)]; ok {
			d.reconsider(holder)
		}
	}
}

// vacate lifts the exclusion of addresses that no Node has any more. It waits for an empty
// queue, so that it runs once for many deleted Nodes.
func (d *decider) vacate(ctx context.Context) {
	if d.vacated && d.queue.Len() == 0 {
		d.vacated = false
		d.exclude(ctx)
	}
}

// insidePools returns the Node's addresses that lie in pools, sorted. Their number is limited,
// because a kubelet may report an address of every node prefix.
func (d *decider) insidePools(live *corev1.Node) []netip.Addr {
	var inside []netip.Addr
	for _, a := range kube.Addresses(live) {
		contains := func(p netip.Prefix) bool { return p.Contains(a) }
		if len(inside) < kube.MostReported && !slices.Contains(inside, a) &&
			!slices.ContainsFunc(d.Exclusions, contains) &&
			slices.ContainsFunc(d.Pools, func(p Pool) bool { return contains(p.Prefix) }) {
			inside = append(inside, a)
		}
	}
	slices.SortFunc(inside, netip.Addr.Compare)
	return inside
}
