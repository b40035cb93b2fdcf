package netfilter

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/internal/ipnet"
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
	Desired
	pods, inside, outer []netip.Prefix // minimal
}

func stalenessOf(want Desired) staleness {
	return staleness{want, minimal(want.PodCIDRs), minimal(want.inside()), minimal(want.outer())}
}

// stale reports whether the rules would have treated the connection differently. It is narrow
// because a deletion may cut the connection: those redirected by kube-proxy or other NAT are kept.
func (s staleness) stale(c connection) bool {
	leaves := masqueraded(c.from) && within(s.pods, c.from) && c.replyTo == c.from &&
		!within(s.inside, c.replyFrom)
	enters := s.FilterInbound && within(s.pods, c.to) && c.replyFrom == c.to &&
		!within(s.inside, c.from) && !within(s.outer, c.from) && !s.open(c)
	return leaves || enters
}

func (s staleness) open(c connection) bool {
	return slices.ContainsFunc(s.Openings, func(o Opening) bool {
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

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s staleness) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	c := connection{
		from: ipnet.Addr(flow.Forward.SrcIP), to: ipnet.Addr(flow.Forward.DstIP),
		replyFrom: ipnet.Addr(flow.Reverse.SrcIP), replyTo: ipnet.Addr(flow.Reverse.DstIP),
	}
	if flow.Forward.Protocol == unix.IPPROTO_TCP {
		c.port = flow.Forward.DstPort
	}
	return s.stale(c)
}

// deleteConnections deletes the conntrack entries that match, and returns their number.
func deleteConnections(match netlink.CustomConntrackFilter) (n int, err error) {
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		deleted, failed := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, match)
		n += int(deleted)
		err = errors.Join(err, failed)
	}
	return n, err
}
