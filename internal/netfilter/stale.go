package netfilter

import (
	"net/netip"
	"slices"
)

// connection is a tracked connection: addresses of its first packet and of its replies on arrival.
type connection struct {
	from, to, replyFrom, replyTo netip.Addr
	port                         uint16 // destination port of the first packet for TCP, else 0
}

// staleness selects connections that may have begun before the rules were in effect. The kernel
// keeps the NAT decision and the established state for the lifetime of a connection, so the
// rules never match those again.
type staleness struct {
	masqueraded, filtered []netip.Prefix
	inside, outer         []netip.Prefix
	openings              []Opening
}

func stalenessOf(want Desired) staleness {
	s := staleness{
		inside: minimal(slices.Concat(want.ClusterPods, hosts(want.InternalIPs))),
		outer:  minimal(want.outer()),

		openings: want.Openings,
	}
	pods := minimal(want.PodCIDRs)
	if want.FilterInbound {
		s.filtered = pods
	}
	s.masqueraded = slices.DeleteFunc(slices.Clone(pods), func(p netip.Prefix) bool {
		return !masqueraded(p)
	})
	return s
}

// stale reports whether the rules would have treated the connection differently. It is narrow
// because a deletion may cut the connection: those redirected by kube-proxy or other NAT are kept.
func (s staleness) stale(c connection) bool {
	leaves := within(s.masqueraded, c.from) && c.replyTo == c.from && !within(s.inside, c.replyFrom)
	enters := within(s.filtered, c.to) && c.replyFrom == c.to && !within(s.inside, c.from) &&
		!within(s.outer, c.from) && !s.open(c)
	return leaves || enters
}

func (s staleness) open(c connection) bool {
	return slices.ContainsFunc(s.openings, func(o Opening) bool {
		return o.To == netip.AddrPortFrom(c.to, c.port) && o.From.Contains(c.from)
	})
}

// within reports whether a prefix of sorted, which don't overlap, contains addr.
func within(sorted []netip.Prefix, addr netip.Addr) bool {
	at, found := slices.BinarySearchFunc(sorted, addr, func(p netip.Prefix, a netip.Addr) int {
		return p.Addr().Compare(a)
	})
	return found || at > 0 && sorted[at-1].Contains(addr)
}
