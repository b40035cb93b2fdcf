//go:build linux

package kernel

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// readRoute parses a route message. It reports false for routes outside of the main table of
// unicast IP, such as multicast routes.
func readRoute(data []byte) (e agent.Entry, ok bool, err error) {
	attrs, err := attributes(data, unix.SizeofRtMsg)
	if err != nil {
		return e, false, err
	}
	msg := nl.DeserializeRtMsg(data)
	var dst netip.Addr
	switch msg.Family {
	case unix.AF_INET:
		dst = netip.IPv4Unspecified()
	case unix.AF_INET6:
		dst = netip.IPv6Unspecified()
	}
	if !dst.IsValid() || msg.Flags&unix.RTM_F_CLONED != 0 || msg.Table != unix.RT_TABLE_MAIN {
		return e, false, nil
	}
	plain := msg.Type == unix.RTN_UNICAST && msg.Tos == 0
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(attr.Value)
		case unix.RTA_GATEWAY:
			e.Via, _ = netip.AddrFromSlice(attr.Value)
		case unix.RTA_OIF:
			e.Link = int(nl.NativeEndian().Uint32(attr.Value))
		case unix.RTA_PRIORITY:
			e.Metric = nl.NativeEndian().Uint32(attr.Value)
		case unix.RTA_MULTIPATH, unix.RTA_VIA, unix.RTA_ENCAP:
			plain = false
		}
	}
	e.Dst, e.Protocol = netip.PrefixFrom(dst, int(msg.Dst_len)), msg.Protocol
	switch {
	case plain:
		e.Kind = agent.Unicast
	case msg.Type == unix.RTN_UNREACHABLE:
		e.Kind, e.Link, e.Via = agent.Unreachable, 0, netip.Addr{}
	default:
		e.Kind, e.Via = agent.OtherKind, netip.Addr{}
	}
	return e, e.Dst.IsValid(), nil
}

// attributes parses those behind a message's header.
func attributes(data []byte, header int) ([]syscall.NetlinkRouteAttr, error) {
	if len(data) < header {
		return nil, fmt.Errorf("a message of %d bytes is too short", len(data))
	}
	return nl.ParseRouteAttr(data[header:])
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, family := n.Mask.Size()
	if family == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, bits), ok && bits >= 0
}
