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

// serviceRangesKey stands in the queue for all ServiceCIDRs. No Node has such a name.
const serviceRangesKey = "/servicecidrs"

// excluded is all that must never be handed out: what is configured, the ranges of Services as
// the API server has them now, and the addresses of Nodes that lie in pools.
func (d *decider) excluded() []netip.Prefix {
	out := slices.Clone(d.Exclusions)
	if d.ServiceCIDRs != nil {
		// The lister has no other error than a wrong selector.
		ranges, _ := d.ServiceCIDRs.Lister().List(labels.Everything())
		for _, r := range ranges {
			for _, text := range r.Spec.CIDRs {
				// The API server lets no others in.
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

// exclude brings the Ledger's exclusions up to date.
func (d *decider) exclude(ctx context.Context) {
	excluded := d.excluded()
	klog.FromContext(ctx).V(2).Info("Never handed out", "prefixes", excluded)
	d.warn(ctx, d.ledger.SetExclusions(excluded))
	d.freed = true
	for _, n := range d.nodes {
		// What is reserved may have to be replaced.
		if n.phase == unserved && n.cached && !n.busy {
			d.queue.Add(n.Name)
		}
	}
}

// occupies notes which of the Node's addresses lie in pools, and tells it if it names more than count.
// Those that are new are excluded at once, and by themselves: every Node may have some.
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
		if holder, ok := d.nodes[types.UID(w.Node.UID)]; ok && holder.phase == unserved && holder.cached && !holder.busy {
			d.queue.Add(holder.Name) // what is reserved has to be replaced
		}
	}
}

// vacates notes that a Node is gone whose addresses may lie in pools.
func (d *decider) vacates(n *node) { d.vacated = d.vacated || len(n.inside) > 0 }

// vacate takes back the exclusion of addresses that are no Node's any more: once, when many go.
func (d *decider) vacate(ctx context.Context) {
	if d.vacated && d.queue.Len() == 0 {
		d.vacated = false
		d.exclude(ctx)
	}
}

// insidePools are the Node's addresses that lie in pools, sorted: as many as one Node can make count,
// because its kubelet may report one of every node prefix.
func (d *decider) insidePools(live *corev1.Node) []netip.Addr {
	var inside []netip.Addr
	for _, a := range kube.Addresses(live) {
		contains := func(p netip.Prefix) bool { return p.Contains(a) }
		if len(inside) < kube.MostReported && !slices.Contains(inside, a) && !slices.ContainsFunc(d.Exclusions, contains) && slices.ContainsFunc(d.Pools, func(p Pool) bool { return contains(p.Prefix) }) {
			inside = append(inside, a)
		}
	}
	slices.SortFunc(inside, netip.Addr.Compare)
	return inside
}
