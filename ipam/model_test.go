package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// model is a Ledger without cleverness: a list of claims, and one queue of free node prefixes
// per pool that is worked out again from all claims and exclusions after every change.
type model struct {
	pools      []PoolConfig
	exclusions []netip.Prefix
	claims     []modelClaim // in order of arrival
	queues     [][]netip.Prefix
	current    map[string][]netip.Prefix // by UID, in the order that was observed or assigned
	abandoned  map[string][]netip.Prefix
	observed   map[string]bool
}

type modelClaim struct {
	node   Node
	prefix netip.Prefix
}

func newModel(pools []PoolConfig, exclusions []netip.Prefix) *model {
	m := &model{
		pools: pools, exclusions: exclusions, queues: make([][]netip.Prefix, len(pools)),
		current: map[string][]netip.Prefix{}, abandoned: map[string][]netip.Prefix{}, observed: map[string]bool{},
	}
	m.refresh()
	return m
}

// slots lists the node prefixes of a pool by counting addresses up.
func slots(c PoolConfig) []netip.Prefix {
	var all []netip.Prefix
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

func (m *model) refresh() {
	for i, c := range m.pools {
		free := func(p netip.Prefix) bool {
			return !overlapsAny(p, m.exclusions) && !overlapsAny(p, m.claimed())
		}
		m.queues[i] = slices.DeleteFunc(m.queues[i], func(p netip.Prefix) bool { return !free(p) })
		for _, p := range slots(c) {
			if free(p) && !slices.Contains(m.queues[i], p) {
				m.queues[i] = append(m.queues[i], p)
			}
		}
	}
}

func (m *model) of(uid string) []netip.Prefix {
	return slices.Concat(m.current[uid], m.abandoned[uid])
}

func (m *model) take(node Node, p netip.Prefix) {
	m.claims = append(m.claims, modelClaim{node: node, prefix: p})
	m.refresh()
}

func (m *model) drop(uid string, p netip.Prefix) {
	m.claims = slices.DeleteFunc(m.claims, func(c modelClaim) bool { return c.node.UID == uid && c.prefix == p })
	m.refresh()
}

func (m *model) observe(node Node, prefixes []netip.Prefix) []Warning {
	if len(prefixes) == 0 {
		return nil
	}
	old := m.of(node.UID)
	m.current[node.UID], m.abandoned[node.UID], m.observed[node.UID] = prefixes, nil, true
	for _, p := range prefixes {
		if !slices.Contains(old, p) {
			m.take(node, p)
		}
	}
	for _, p := range old {
		if !slices.Contains(prefixes, p) {
			m.drop(node.UID, p)
		}
	}
	var warnings []Warning
	for i, c := range m.claims {
		if c.node.UID == node.UID {
			warnings = append(warnings, m.judge(i)...)
		}
	}
	for _, pool := range m.pools {
		is4 := pool.Prefix.Addr().Is4()
		lacks := !slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() == is4 })
		told := slices.ContainsFunc(warnings, func(w Warning) bool { return w.Kind == MissingFamily })
		if lacks && !told {
			warnings = append(warnings, Warning{Kind: MissingFamily, Node: node, Prefix: prefixes[0], Against: pool.Prefix})
		}
	}
	slices.SortFunc(warnings, func(a, b Warning) int {
		return cmp.Or(a.Prefix.Compare(b.Prefix), int(a.Kind)-int(b.Kind))
	})
	return warnings
}

func (m *model) judge(i int) (warnings []Warning) {
	c := m.claims[i]
	w := Warning{Kind: OutsidePools, Node: c.node, Prefix: c.prefix}
	for _, pool := range slices.Backward(m.pools) {
		if pool.Prefix.Overlaps(c.prefix) {
			w.Kind, w.Against = WrongSize, pool.Prefix
		}
	}
	for _, pool := range m.pools {
		if slices.Contains(slots(pool), c.prefix) {
			w.Kind, w.Against = 0, netip.Prefix{}
		}
	}
	if w.Kind == 0 {
		for _, e := range slices.Backward(m.exclusions) {
			if e.Overlaps(c.prefix) {
				w.Kind, w.Against = Excluded, e
			}
		}
	}
	if w.Kind != 0 {
		warnings = append(warnings, w)
	}
	for _, earlier := range m.claims[:i] {
		if earlier.node.UID != c.node.UID && earlier.prefix.Overlaps(c.prefix) {
			return append(warnings, Warning{
				Kind: Duplicate, Node: c.node, Prefix: c.prefix, Against: earlier.prefix, Holder: earlier.node,
			})
		}
	}
	return warnings
}

func (m *model) contested(uid string) bool {
	return slices.ContainsFunc(m.claims, func(c modelClaim) bool {
		return c.node.UID != uid && overlapsAny(c.prefix, m.current[uid])
	})
}

func (m *model) assign(node Node) ([]netip.Prefix, bool) {
	uid := node.UID
	if len(m.current[uid]) > 0 && (m.observed[uid] || !m.contested(uid)) {
		return m.current[uid], true
	}
	if m.room() == 0 {
		return nil, false
	}
	m.current[uid], m.abandoned[uid] = nil, append(m.abandoned[uid], m.current[uid]...)
	for _, is4 := range m.families() {
		for i, pool := range m.pools {
			if pool.Prefix.Addr().Is4() == is4 && len(m.queues[i]) > 0 {
				p := m.queues[i][0]
				m.current[uid] = append(m.current[uid], p)
				m.take(node, p)
				break
			}
		}
	}
	return m.current[uid], true
}

func (m *model) families() []bool {
	var order []bool
	for _, pool := range m.pools {
		if is4 := pool.Prefix.Addr().Is4(); !slices.Contains(order, is4) {
			order = append(order, is4)
		}
	}
	return order
}

func (m *model) room() int {
	byFamily := map[bool]int{}
	for i, pool := range m.pools {
		byFamily[pool.Prefix.Addr().Is4()] += len(m.queues[i])
	}
	room := 1 << 30
	for _, n := range byFamily {
		room = min(room, n)
	}
	return room
}

func (m *model) release(uid string) []netip.Prefix {
	held := slices.SortedFunc(slices.Values(m.of(uid)), netip.Prefix.Compare)
	delete(m.current, uid)
	delete(m.abandoned, uid)
	delete(m.observed, uid)
	for _, p := range held {
		m.drop(uid, p)
	}
	return held
}

func (m *model) counts() []Counts {
	var all []Counts
	for _, pool := range m.pools {
		c := Counts{Pool: pool.Prefix, NodeMask: pool.NodeMask}
		for _, p := range slots(pool) {
			switch {
			case overlapsAny(p, m.exclusions):
				c.Excluded++
			case slices.Contains(m.claimed(), p):
				c.Allocated++
			case overlapsAny(p, m.claimed()):
				c.Foreign++
			default:
				c.Free++
			}
		}
		all = append(all, c)
	}
	return all
}

// String prints who claims what, in order of arrival.
func (m *model) String() string {
	var b strings.Builder
	for _, c := range m.claims {
		fmt.Fprintf(&b, "%s/%s %s\n", c.node.Name, c.node.UID, c.prefix)
	}
	for i, q := range m.queues {
		fmt.Fprintf(&b, "free in %s: %v\n", m.pools[i].Prefix, q)
	}
	return b.String()
}
