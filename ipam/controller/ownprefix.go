package controller

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/ipam"
)

// ownPrefix is the looked up own prefix of a machine.
type ownPrefix struct {
	known bool
	own   netip.Prefix
	avoid []netip.Addr
}

func configs(pools []Pool) []ipam.PoolConfig {
	out := make([]ipam.PoolConfig, len(pools))
	for i, p := range pools {
		out[i] = p.PoolConfig
	}
	return out
}

func (p Pool) selects(n *node) bool {
	return p.Selector == nil || p.Selector.Matches(labels.Set(n.labels))
}

func (p Pool) ipv6() bool { return p.Own || p.Prefix.Addr().Is6() }

// isFor reports whether a pool may serve the Node.
func (d *decider) isFor(p Pool, n *node) bool {
	return p.selects(n) && (p.Exclusive || !slices.ContainsFunc(d.Pools, func(other Pool) bool {
		return other.Exclusive && other.ipv6() == p.ipv6() && other.selects(n)
	}))
}

// wantsOwn reports whether the Node may get a part of its machine's own prefix.
func (d *decider) wantsOwn(n *node) bool {
	return slices.ContainsFunc(d.Pools, func(p Pool) bool {
		return p.Own && p.State == ipam.Active && d.isFor(p, n)
	})
}

func (d *decider) offered(n *node) ipam.Offer {
	return ipam.Offer{
		Pools: func(name string) bool {
			return slices.ContainsFunc(d.Pools, func(p Pool) bool { return p.Name == name && d.isFor(p, n) })
		},
		Own: n.own.own, Avoid: n.own.avoid,
	}
}

// warnFallback warns about a Node with a fallback pool's prefix instead of the machine's own.
func (d *decider) warnFallback(n *node, given []netip.Prefix) {
	i := slices.IndexFunc(d.Pools, func(p Pool) bool {
		return p.ipv6() && p.State == ipam.Active && d.isFor(p, n)
	})
	if i < 0 || !d.Pools[i].Own {
		return
	}
	own := n.own.own
	switch {
	case !own.IsValid():
		d.warnOnce(n, reasonNoOwnPrefix, "", "the machine has no IPv6 prefix of its own: the Node got one of the next pool. Give the machine a primary IPv6 and recreate the Node to change that")
	case !slices.ContainsFunc(given, own.Overlaps):
		d.warnOnce(n, reasonSharedOwnPrefix, own.String(),
			"other Nodes have a part of the machine's IPv6 prefix "+own.String()+
				" already: the Node got one of the next pool. A prefix is routed to one machine only")
	}
}
