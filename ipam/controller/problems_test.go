package controller

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/ipam"
)

// problems compares, at rest, the API's Nodes with the stored ledger and the metrics: no overlap
// ever happened, no prefix leaked, no Node waits although there is room, and there are no more
// writes.
func (s *schedule) problems() []string {
	problems := s.api.broken()
	pools := s.poolsOf(s.with[s.leader()])
	live, stored := s.api.live(), s.api.entries()
	var held []netip.Prefix
	var waiting []*corev1.Node
	for _, name := range slices.Sorted(maps.Keys(live)) {
		node := live[name]
		prefixes, _ := kube.PodCIDRs(node)
		if len(prefixes) == 0 {
			waiting = append(waiting, node)
			held = append(held, halfReserved(pools, live, name, string(node.UID), stored[name])...)
		}
		held = append(held, prefixes...)
		problems = append(problems, compare(pools, live, name, string(node.UID), prefixes,
			stored[name])...)
		if n := s.api.writes[node.UID]; n > 1 {
			problems = append(problems, fmt.Sprintf("%s was written %d times", name, n))
		}
	}
	for _, name := range s.api.holders() {
		if _, ok := live[name]; !ok {
			problems = append(problems, fmt.Sprintf("leaked: %s is gone, the ledger has %q", name, stored[name]))
		}
	}
	free := s.free(pools, held)
	for _, p := range pools {
		if p.Own {
			continue // it has no free prefixes: each machine has its own
		}
		shown, _ := s.leader().metric(s.t, rangesMetric, p.Name, "free")
		if want := free[p.Name]; shown != float64(want) {
			problems = append(problems, fmt.Sprintf("leaked: %d of pool %s should be free, %v are", want, p.Name, shown))
		}
	}
	for _, node := range waiting {
		if hasRoom(pools, free, held, node) {
			problems = append(problems, fmt.Sprintf("%s waits, though there is room: %v", node.Name, free))
		}
	}
	before := s.api.written()
	pass(time.Hour)
	if more := s.api.written() - before; more > 0 {
		problems = append(problems, fmt.Sprintf("%d writes in an hour of rest", more))
	}
	return problems
}

// compare returns the differences between an entry of the stored ledger and the Node's podCIDRs.
func compare(
	pools []Pool, live map[string]*corev1.Node, name, uid string, prefixes []netip.Prefix,
	entry string,
) []string {
	if len(prefixes) == 0 {
		if entry != "" && len(halfReserved(pools, live, name, uid, entry)) == 0 {
			return []string{fmt.Sprintf("leaked: %s has no podCIDRs, the ledger has %q", name, entry)}
		}
		return nil
	}
	h, err := ipam.ParseRecord(name, entry)
	if err != nil {
		return []string{fmt.Sprintf("%s has %v, the ledger has %q: %v", name, prefixes, entry, err)}
	}
	if h.Node.UID != uid || !sameOf(h.Prefixes, prefixes) || len(h.Abandoned) > 0 ||
		!h.Released.IsZero() {
		return []string{fmt.Sprintf("%s/%s has %v, the ledger has %q", name, uid, prefixes, entry)}
	}
	return nil
}

// sameOf reports whether two lists have the same prefixes in any order: entries of two ConfigMaps
// have no common order.
func sameOf(a, b []netip.Prefix) bool {
	order := func(list []netip.Prefix) []netip.Prefix {
		return slices.SortedFunc(slices.Values(list), netip.Prefix.Compare)
	}
	return slices.Equal(order(a), order(b))
}

// halfReserved returns the prefixes that a waiting Node may keep: those reserved with pools of
// fewer families, before another Node was observed with them, before the lookup of its machine's
// own prefix, or by a leader that ended between the writes of two shards. A request with them may
// have been sent, so they stay reserved.
func halfReserved(
	pools []Pool, live map[string]*corev1.Node, name, uid, entry string,
) []netip.Prefix {
	h, err := ipam.ParseRecord(name, entry)
	if err != nil || h.Node.UID != uid || !h.Released.IsZero() {
		return nil
	}
	families := map[bool]bool{}
	for _, p := range pools {
		if p.Own && p.State == ipam.Active && live[name].Spec.ProviderID == "" {
			return h.Prefixes // it waits until its machine is known
		}
		families[p.Prefix.Addr().Is4()] = true
	}
	if len(h.Prefixes) < len(families) {
		return slices.Concat(h.Prefixes, h.Abandoned)
	}
	for _, node := range live {
		theirs, _ := kube.PodCIDRs(node)
		for _, p := range h.Prefixes {
			if slices.ContainsFunc(theirs, p.Overlaps) {
				return h.Prefixes
			}
		}
	}
	return nil
}

// free counts naively the node prefixes of each pool without an overlap.
func (s *schedule) free(pools []Pool, held []netip.Prefix) map[string]int {
	taken := append(slices.Clone(held), prefixes(s.exclusions()...)...)
	free := map[string]int{}
	for _, p := range pools {
		if p.Own {
			continue
		}
		for _, block := range blocks(p.Prefix, p.NodeMask) {
			if !slices.ContainsFunc(taken, block.Overlaps) {
				free[p.Name]++
			}
		}
	}
	return free
}

// blocks returns all node prefixes of a small pool.
func blocks(p netip.Prefix, mask int) []netip.Prefix {
	if p.Bits() == mask {
		return []netip.Prefix{p}
	}
	bytes := p.Addr().AsSlice()
	bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	upper, _ := netip.AddrFromSlice(bytes)
	return append(blocks(netip.PrefixFrom(p.Addr(), p.Bits()+1), mask),
		blocks(netip.PrefixFrom(upper, p.Bits()+1), mask)...)
}

// hasRoom reports whether every family has a free prefix for the Node.
func hasRoom(pools []Pool, free map[string]int, held []netip.Prefix, n *corev1.Node) bool {
	room := map[bool]int{}
	for _, p := range pools {
		ipv4 := p.Prefix.Addr().Is4()
		switch {
		case p.State != ipam.Active || p.Selector != nil && !p.Selector.Matches(labels.Set(n.Labels)):
			room[ipv4] += 0
		case !p.Own:
			room[ipv4] += free[p.Name]
		case n.Spec.ProviderID == "":
			return false // its machine is unknown
		case ownPrefixes[n.Spec.ProviderID].IsValid() &&
			!slices.ContainsFunc(held, ownPrefixes[n.Spec.ProviderID].Overlaps):
			room[ipv4]++
		}
	}
	for _, left := range room {
		if left == 0 {
			return false
		}
	}
	return true
}
