package netfilter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (s staleness) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	c := connection{
		from: addrOf(flow.Forward.SrcIP), to: addrOf(flow.Forward.DstIP),
		replyFrom: addrOf(flow.Reverse.SrcIP), replyTo: addrOf(flow.Reverse.DstIP),
	}
	if flow.Forward.Protocol == unix.IPPROTO_TCP {
		c.port = flow.Forward.DstPort
	}
	return s.stale(c)
}

func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// forget deletes the conntrack entries of connections that began without the rules, so that
// their next packet is matched as the first of a connection. It returns their number.
func forget(ctx context.Context, want Desired) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s := stalenessOf(want)
	forgotten := 0
	var failed []error
	for f, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		if len(split(want.PodCIDRs)[f]) == 0 {
			continue
		}
		n, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, s)
		forgotten += int(n)
		if err != nil {
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return forgotten, fmt.Errorf("forgetting connections that began without the packet filter: %w", err)
	}
	return forgotten, nil
}
