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
	n, err := deleteConnections(stalenessOf(want))
	if err != nil {
		return n, fmt.Errorf("forgetting connections that began without the packet filter: %w", err)
	}
	return n, nil
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
