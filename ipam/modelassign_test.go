package ipam

import (
	"net/netip"
	"slices"
	"time"
)

func isIPv6(c PoolConfig) bool { return c.Own || c.Prefix.Addr().Is6() }

// families returns the address families in order: true is IPv6.
func (m *model) families() []bool {
	var order []bool
	for _, c := range m.pools {
		if !slices.Contains(order, isIPv6(c)) {
			order = append(order, isIPv6(c))
		}
	}
	return order
}

// queue returns the prefixes that a pool assigns, in order, if nothing else happens.
func (m *model) queue(c PoolConfig) []netip.Prefix {
	all := m.slots(c)
	at := slices.Index(all, m.next[c.Name])
	var circle []netip.Prefix
	if at >= 0 {
		circle = slices.Concat(all[at:], all[:at])
	}
	return slices.DeleteFunc(circle, func(p netip.Prefix) bool {
		return overlapsAny(p, m.exclusions) || overlapsAny(p, m.claimed()) || overlapsAny(p, m.routes)
	})
}

// ownQueue returns the prefixes that can be cut from the server's own prefix.
func (m *model) ownQueue(c PoolConfig, node Node, offer Offer) []netip.Prefix {
	if !offer.Own.IsValid() || offer.Own.Bits() >= c.NodeMask {
		return nil
	}
	for _, claim := range m.claims {
		n := m.nodes[claim.uid]
		same := n.gone() && n.node.ProviderID == node.ProviderID && node.ProviderID != ""
		if claim.prefix.Overlaps(offer.Own) && claim.uid != node.UID && !same {
			return nil
		}
	}
	return slices.DeleteFunc(slots(PoolConfig{Prefix: offer.Own, NodeMask: c.NodeMask}),
		func(p netip.Prefix) bool {
			return !allowed(offer, p) || overlapsAny(p, m.claimed()) || overlapsAny(p, m.exclusions) ||
				overlapsAny(p, m.routes)
		})
}

// allowed reports whether a part of the server's own prefix contains no address in use.
func allowed(offer Offer, p netip.Prefix) bool {
	first := offer.Own.Addr()
	return !p.Contains(first) && !p.Contains(first.Next()) &&
		!slices.ContainsFunc(offer.Avoid, p.Contains)
}

func (m *model) contested(n *modelNode) bool {
	return slices.ContainsFunc(n.current, func(p netip.Prefix) bool {
		before, after := m.rivals(n.node.UID, p)
		return len(before) > 0 || slices.ContainsFunc(after, func(c modelClaim) bool {
			return m.nodes[c.uid].observed || m.nodes[c.uid].gone()
		})
	})
}

// current reports whether a Node has a valid prefix of every family.
func (m *model) current(n *modelNode) bool {
	for _, ipv6 := range m.families() {
		if !slices.ContainsFunc(n.current, func(p netip.Prefix) bool { return p.Addr().Is6() == ipv6 }) {
			return false
		}
	}
	return !slices.ContainsFunc(n.current, func(p netip.Prefix) bool {
		return m.judge(n, p).Kind != 0
	})
}

// back returns the released Node that the same machine may take its prefixes from.
func (m *model) back(node Node, offer Offer) *modelNode {
	var best *modelNode
	for _, n := range m.nodes {
		if node.ProviderID == "" || n.node.Name != node.Name || n.node.ProviderID != node.ProviderID || !n.gone() {
			continue
		}
		if len(n.abandoned) > 0 || len(n.current) != len(m.families()) || !m.current(n) {
			continue
		}
		fits := true
		for _, p := range n.current {
			c, _ := m.poolOf(n, p)
			before, after := m.rivals(n.node.UID, p)
			fits = fits && len(before)+len(after) == 0 && (offer.Pools == nil || offer.Pools(c.Name))
			if c.Own {
				within := offer.Own.IsValid() && offer.Own.Contains(p.Addr()) && offer.Own.Bits() < p.Bits()
				fits = fits && within && allowed(offer, p)
			}
		}
		later := best == nil || n.released.After(best.released) ||
			n.released.Equal(best.released) && n.node.UID < best.node.UID
		if fits && later {
			best = n
		}
	}
	return best
}

func (m *model) adopt(n *modelNode, node Node) []netip.Prefix {
	old := n.node.UID
	delete(m.nodes, old)
	m.nodes[node.UID] = n
	for i := range m.claims {
		if m.claims[i].uid == old {
			m.claims[i].uid = node.UID
		}
	}
	n.node, n.observed, n.released = node, false, time.Time{}
	var ordered []netip.Prefix
	for _, ipv6 := range m.families() {
		for _, p := range n.current {
			if p.Addr().Is6() == ipv6 {
				ordered = append(ordered, p)
			}
		}
	}
	n.current = ordered
	return ordered
}

func (m *model) assign(node Node, offer Offer) ([]netip.Prefix, bool) {
	n, known := m.nodes[node.UID]
	if known {
		m.meet(node)
		n.released = time.Time{}
		if n.observed || m.current(n) && !m.contested(n) {
			return n.current, true
		}
	} else if n = m.back(node, offer); n != nil {
		return m.adopt(n, node), true
	}
	plan, pools, ok := m.plan(node, offer)
	if !ok {
		return nil, false
	}
	n = m.meet(node)
	n.abandoned, n.current = append(n.abandoned, n.current...), plan
	for i, p := range plan {
		c := pools[i]
		if c.Own {
			n.origin[p] = c.Name
		} else {
			all := m.slots(c)
			m.next[c.Name] = all[(slices.Index(all, p)+1)%len(all)]
		}
		m.take(node.UID, p)
	}
	return plan, true
}

func (m *model) plan(node Node, offer Offer) (plan []netip.Prefix, pools []PoolConfig, ok bool) {
	for _, ipv6 := range m.families() {
		for _, c := range m.pools {
			queue := m.queue(c)
			if c.Own {
				queue = m.ownQueue(c, node, offer)
			}
			if isIPv6(c) == ipv6 && c.State == Active && (offer.Pools == nil || offer.Pools(c.Name)) &&
				len(queue) > 0 {
				plan, pools = append(plan, queue[0]), append(pools, c)
				break
			}
		}
	}
	return plan, pools, len(plan) == len(m.families())
}

func (m *model) room() int {
	room := 1 << 30
	for _, ipv6 := range m.families() {
		n := 0
		for _, c := range m.pools {
			if isIPv6(c) == ipv6 && c.State == Active {
				n += len(m.queue(c))
				if c.Own {
					n = 1 << 30
				}
			}
		}
		room = min(room, n)
	}
	return room
}

func (m *model) counts() []Counts {
	var all []Counts
	for _, c := range m.pools {
		n := Counts{Name: c.Name, Pool: c.Prefix, NodeMask: c.NodeMask, State: c.State}
		for _, p := range m.slots(c) {
			switch {
			case overlapsAny(p, m.exclusions):
				n.Excluded++
			case slices.Contains(m.claimed(), p):
				*m.live(p, &n)++
			case overlapsAny(p, m.claimed()), overlapsAny(p, m.routes):
				n.Foreign++
			default:
				n.Free++
			}
		}
		if c.Own {
			m.countOwn(c, &n)
		}
		all = append(all, n)
	}
	return all
}

// foremost returns the Node that a claimed prefix is counted for: the first one that is not
// deleted, else the first.
func (m *model) foremost(p netip.Prefix) *modelNode {
	var first *modelNode
	for _, c := range m.claims {
		n := m.nodes[c.uid]
		if c.prefix == p && (first == nil || first.gone() && !n.gone()) {
			first = n
		}
	}
	return first
}

// live returns the counter for a claimed prefix: quarantined if all Nodes that claim it are
// deleted.
func (m *model) live(p netip.Prefix, n *Counts) *uint64 {
	if m.foremost(p).gone() {
		return &n.Quarantined
	}
	return &n.Allocated
}

func (m *model) countOwn(pool PoolConfig, n *Counts) {
	for _, p := range canonicalAll(m.claimed()) {
		if c, ok := m.poolOf(m.foremost(p), p); ok && c.Name == pool.Name {
			*m.live(p, n)++
		}
	}
}
