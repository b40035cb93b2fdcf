//go:build linux

package kernel

import (
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// entryOf converts a route of the main table. It reports false for routes outside of the
// tables of unicast IP, such as multicast routes.
func entryOf(r netlink.Route) (agent.Entry, bool) {
	dst, ok := prefixOf(r.Dst)
	if !ok || r.Table != unix.RT_TABLE_MAIN {
		return agent.Entry{}, false
	}
	e := agent.Entry{
		Dst: dst, Kind: agent.OtherKind,
		Metric: uint32(r.Priority), Protocol: uint8(r.Protocol),
	}
	switch {
	case r.Type == unix.RTN_UNREACHABLE:
		e.Kind = agent.Unreachable
	case r.Type == unix.RTN_UNICAST && len(r.MultiPath) == 0 && r.Via == nil && r.Encap == nil &&
		r.Tos == 0:
		e.Kind, e.Link = agent.Unicast, r.LinkIndex
		if via, ok := netip.AddrFromSlice(r.Gw); ok {
			e.Via = via.Unmap()
		}
	default:
		e.Link = r.LinkIndex
	}
	return e, true
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, family := n.Mask.Size()
	if family == 32 {
		addr = addr.Unmap() // the library returns IPv4's default route as IPv6
	}
	return netip.PrefixFrom(addr, bits), ok && bits >= 0
}
