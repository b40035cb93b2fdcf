package ipam

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// model is a naive Ledger: a list of claims, from which each call computes everything again, one
// node prefix after the other.
type model struct {
	pools      []PoolConfig
	exclusions []netip.Prefix
	routes     []netip.Prefix
	claims     []modelClaim // in order of arrival
	nodes      map[string]*modelNode
	next       map[string]netip.Prefix // by pool
	cut        map[PoolConfig][]netip.Prefix
}

type modelClaim struct {
	uid    string
	prefix netip.Prefix
}

type modelNode struct {
	node               Node
	current, abandoned []netip.Prefix
	observed           bool
	released           time.Time
	origin             map[netip.Prefix]string
}

func (n *modelNode) all() []netip.Prefix { return slices.Concat(n.current, n.abandoned) }
func (n *modelNode) gone() bool          { return !n.released.IsZero() }

func newModel(pools []PoolConfig, exclusions []netip.Prefix) *model {
	m := &model{
		pools: pools, exclusions: sorted(exclusions), nodes: map[string]*modelNode{},
		next: map[string]netip.Prefix{}, cut: map[PoolConfig][]netip.Prefix{},
	}
	for _, c := range pools {
		if !c.Own {
			m.next[c.Name] = slots(c)[0]
		}
	}
	return m
}

// slots lists the node prefixes of a range by counting addresses up.
func slots(c PoolConfig) []netip.Prefix {
	var all []netip.Prefix
	if c.Own {
		return nil
	}
	for p := netip.PrefixFrom(c.Prefix.Addr(), c.NodeMask); c.Prefix.Contains(p.Addr()); {
		all = append(all, p)
		b := p.Addr().AsSlice()
		carry := 1 << ((8 - c.NodeMask%8) % 8)
		for i := (c.NodeMask - 1) / 8; i >= 0 && carry > 0; i-- {
			carry += int(b[i])
			b[i], carry = byte(carry), carry>>8
		}
		next, _ := netip.AddrFromSlice(b)
		p = netip.PrefixFrom(next, c.NodeMask)
	}
	return all
}

// slots caches the list. Callers must not change it.
func (m *model) slots(c PoolConfig) []netip.Prefix {
	if _, known := m.cut[c]; !known {
		m.cut[c] = slots(c)
	}
	return m.cut[c]
}

func overlapsAny(p netip.Prefix, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, p.Overlaps)
}

func (m *model) claimed() []netip.Prefix {
	var all []netip.Prefix
	for _, c := range m.claims {
		all = append(all, c.prefix)
	}
	return all
}

// pool returns the range that has p as a node prefix.
func (m *model) pool(p netip.Prefix) (PoolConfig, bool) {
	for _, c := range m.pools {
		if slices.Contains(m.slots(c), p) {
			return c, true
		}
	}
	return PoolConfig{}, false
}

// poolOf returns the pool in which a Node's prefix is counted.
func (m *model) poolOf(n *modelNode, p netip.Prefix) (PoolConfig, bool) {
	if c, ok := m.pool(p); ok {
		return c, true
	}
	for _, c := range m.pools {
		if c.Own && c.Name == n.origin[p] {
			return c, true
		}
	}
	return PoolConfig{}, false
}

func (m *model) meet(node Node) *modelNode {
	n := m.nodes[node.UID]
	if n == nil {
		n = &modelNode{origin: map[netip.Prefix]string{}}
		m.nodes[node.UID] = n
	}
	if node.ProviderID == "" {
		node.ProviderID = n.node.ProviderID
	}
	n.node = node
	return n
}

func (m *model) take(uid string, p netip.Prefix) {
	m.claims = append(m.claims, modelClaim{uid, p})
}

func (m *model) drop(uid string, p netip.Prefix) {
	m.claims = slices.DeleteFunc(m.claims, func(c modelClaim) bool {
		return c.uid == uid && c.prefix == p
	})
}

func (m *model) observe(node Node, prefixes []netip.Prefix, now time.Time) []Warning {
	n := m.meet(node)
	old := n.all()
	n.current, n.abandoned, n.observed, n.released = prefixes, nil, true, time.Time{}
	for _, p := range prefixes {
		if n.origin[p] == "" && p.Addr().Is6() && !p.Addr().IsPrivate() && !m.inRange(p) {
			for _, c := range slices.Backward(m.pools) {
				if c.Own && c.NodeMask == p.Bits() {
					n.origin[p] = c.Name
				}
			}
		}
		if !slices.Contains(old, p) {
			m.take(node.UID, p)
		}
	}
	for _, p := range old {
		if !slices.Contains(prefixes, p) {
			m.retire(n, p, now)
		}
	}
	warnings := m.duplicates(n, Duplicate)
	for _, p := range prefixes {
		if w := m.judge(n, p); w.Kind != 0 {
			warnings = append(warnings, w)
		}
	}
	for _, ipv6 := range m.families() {
		if !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is6() == ipv6 }) {
			first := m.pools[slices.IndexFunc(m.pools, func(c PoolConfig) bool { return isIPv6(c) == ipv6 })]
			warnings = append(warnings, Warning{
				Kind: MissingFamily, Node: n.node, Prefix: prefixes[0], Against: first.Prefix,
			})
		}
	}
	slices.SortFunc(warnings, byPrefixAndKind)
	return warnings
}

// retire puts a prefix that was reserved for the Node and never used into quarantine.
func (m *model) retire(n *modelNode, p netip.Prefix, now time.Time) {
	owner := n.node
	owner.UID += RetiredSuffix
	retired := m.meet(owner)
	retired.released = now
	if n.origin[p] != "" {
		retired.origin[p] = n.origin[p]
	}
	if !slices.Contains(retired.all(), p) {
		retired.current = append(retired.current, p)
		m.take(owner.UID, p)
	}
	m.drop(n.node.UID, p)
	delete(n.origin, p)
}

func byPrefixAndKind(a, b Warning) int {
	return cmp.Or(a.Prefix.Compare(b.Prefix), int(a.Kind)-int(b.Kind), strings.Compare(a.Node.Name+" "+a.Node.UID, b.Node.Name+" "+b.Node.UID))
}

func (m *model) inRange(p netip.Prefix) bool {
	return slices.ContainsFunc(m.pools, func(c PoolConfig) bool {
		return !c.Own && c.Prefix.Overlaps(p)
	})
}

// judge returns the warning about a prefix alone, without other claims.
func (m *model) judge(n *modelNode, p netip.Prefix) Warning {
	w := Warning{Node: n.node, Prefix: p}
	if _, ok := m.poolOf(n, p); ok {
		for _, e := range slices.Backward(m.exclusions) {
			if e.Overlaps(p) {
				w.Kind, w.Against = Excluded, e
			}
		}
		return w
	}
	w.Kind = OutsidePools
	for _, c := range slices.Backward(m.pools) {
		if c.Prefix.Overlaps(p) {
			w.Kind, w.Against = WrongSize, c.Prefix
		}
	}
	return w
}

// rivals returns the other UIDs' claims that overlap a prefix, before the own claim and after it.
func (m *model) rivals(uid string, p netip.Prefix) (before, after []modelClaim) {
	mine := slices.Index(m.claims, modelClaim{uid, p})
	for i, c := range m.claims {
		switch {
		case c.uid == uid || !c.prefix.Overlaps(p):
		case i < mine:
			before = append(before, c)
		default:
			after = append(after, c)
		}
	}
	return before, after
}

func (m *model) duplicates(n *modelNode, kind WarningKind) (warnings []Warning) {
	for _, p := range n.current {
		before, _ := m.rivals(n.node.UID, p)
		before = slices.DeleteFunc(before, func(c modelClaim) bool {
			return m.nodes[c.uid].gone() || n.gone()
		})
		if len(before) > 0 {
			first := before[0]
			warnings = append(warnings, Warning{
				Kind: kind, Node: n.node, Prefix: p, Against: first.prefix, Holder: m.nodes[first.uid].node,
			})
		}
	}
	slices.SortFunc(warnings, byPrefixAndKind)
	return warnings
}

func (m *model) setExclusions(exclusions []netip.Prefix) (warnings []Warning) {
	before := m.exclusions
	m.exclusions = sorted(exclusions)
	for _, n := range m.nodes {
		for _, p := range n.current {
			if w := m.judge(n, p); w.Kind == Excluded && !n.gone() && !overlapsAny(p, before) {
				warnings = append(warnings, w)
			}
		}
	}
	slices.SortFunc(warnings, byPrefixAndKind)
	return warnings
}

func (m *model) setRoutes(routes []netip.Prefix) (strange []netip.Prefix) {
	m.routes = slices.Compact(sorted(routes))
	for _, p := range m.routes {
		if m.inRange(p) && !slices.Contains(m.claimed(), p) {
			strange = append(strange, p)
		}
	}
	return strange
}

func (m *model) release(uid string, now time.Time) bool {
	n, ok := m.nodes[uid]
	if ok && !n.gone() {
		n.released = now
	}
	return ok
}

func (m *model) free(uid string) []netip.Prefix {
	n, ok := m.nodes[uid]
	if !ok {
		return nil
	}
	held := sorted(n.all())
	for _, p := range held {
		m.drop(uid, p)
	}
	delete(m.nodes, uid)
	return held
}

// restart returns the model of a new process with these pools, from the stored state only.
func (m *model) restart(pools []PoolConfig) *model {
	after := newModel(pools, m.exclusions)
	order := slices.SortedFunc(maps.Values(m.nodes), func(a, b *modelNode) int {
		return cmp.Or(cmp.Compare(a.node.Name, b.node.Name), cmp.Compare(a.node.UID, b.node.UID))
	})
	for _, n := range order {
		copied := after.meet(n.node)
		copied.current = slices.Clone(n.current)
		copied.abandoned = slices.Clone(n.abandoned)
		copied.released = n.released
		for _, p := range n.all() {
			if c, ok := m.poolOf(n, p); ok {
				copied.origin[p] = c.Name
			} else if n.origin[p] != "" {
				copied.origin[p] = n.origin[p]
			}
			if _, ok := after.pool(p); ok {
				delete(copied.origin, p)
			}
			after.take(n.node.UID, p)
		}
	}
	return after
}

// String prints the claims in order of arrival.
func (m *model) String() string {
	var b strings.Builder
	for _, c := range m.claims {
		n := m.nodes[c.uid]
		fmt.Fprintf(&b, "%s/%s %s observed=%t gone=%t %s\n", n.node.Name, c.uid, c.prefix, n.observed, n.gone(), n.origin[c.prefix])
	}
	fmt.Fprintf(&b, "excluded: %v\nnext: %v\n", m.exclusions, m.next)
	return b.String()
}
