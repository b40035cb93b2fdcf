//go:build linux

package kernel

import (
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/routes/agent"
)

// readRoute reads a route of the main table, as an event or a dump has it: a struct
// rtmsg and attributes behind it (rtnetlink(7)). Not ok are routes of other tables,
// those that the kernel cloned, and what belongs to no unicast IP, such as multicast's.
func readRoute(data []byte) (agent.Entry, bool) {
	if len(data) < unix.SizeofRtMsg {
		return agent.Entry{}, false
	}
	family, bits, tos, table, protocol, kind := data[0], int(data[1]), data[3], data[4], data[5], data[7]
	flags := binary.NativeEndian.Uint32(data[8:])
	dst := netip.IPv4Unspecified()
	if family == unix.AF_INET6 {
		dst = netip.IPv6Unspecified()
	}
	if family != unix.AF_INET && family != unix.AF_INET6 || flags&unix.RTM_F_CLONED != 0 || table != unix.RT_TABLE_MAIN {
		return agent.Entry{}, false
	}
	e := agent.Entry{Kind: agent.OtherKind, Protocol: protocol}
	single := kind == unix.RTN_UNICAST && tos == 0
	ok := eachAttribute(data[unix.SizeofRtMsg:], func(kind uint16, value []byte) {
		switch kind {
		case unix.RTA_DST:
			dst, _ = netip.AddrFromSlice(value)
		case unix.RTA_GATEWAY:
			e.Via, _ = netip.AddrFromSlice(value)
			e.Via = e.Via.Unmap()
		case unix.RTA_OIF:
			e.Link = int(number(value))
		case unix.RTA_PRIORITY:
			e.Metric = number(value)
		case unix.RTA_MULTIPATH, unix.RTA_VIA, unix.RTA_ENCAP:
			single = false
		}
	})
	e.Dst = netip.PrefixFrom(dst, bits)
	switch {
	case kind == unix.RTN_UNREACHABLE:
		e.Kind, e.Link, e.Via = agent.Unreachable, 0, netip.Addr{}
	case single:
		e.Kind = agent.Unicast
	default:
		e.Via = netip.Addr{}
	}
	return e, ok && e.Dst.IsValid()
}

// readNeighbor reads a neighbor and its interface: a struct ndmsg and attributes
// behind it. Not ok are those of which the kernel knows nothing, and a bridge's.
func readNeighbor(data []byte) (n agent.Neighbor, link int, ok bool) {
	if len(data) < unix.SizeofNdMsg {
		return n, 0, false
	}
	state := binary.NativeEndian.Uint16(data[8:])
	read := eachAttribute(data[unix.SizeofNdMsg:], func(kind uint16, value []byte) {
		if kind == unix.NDA_DST {
			n.Addr, _ = netip.AddrFromSlice(value)
		}
	})
	n.Addr, n.Silent = n.Addr.Unmap(), state&silent != 0
	inet := data[0] == unix.AF_INET || data[0] == unix.AF_INET6
	return n, int(number(data[4:])), read && inet && n.Addr.IsValid() && state != unix.NUD_NONE
}

// attributeMask leaves flags out of an attribute's number (linux/netlink.h,
// NLA_TYPE_MASK).
const attributeMask = 0x3fff

// eachAttribute shows attributes, and reports whether all could be read.
func eachAttribute(data []byte, each func(kind uint16, value []byte)) bool {
	for len(data) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(data))
		if length < unix.SizeofRtAttr || length > len(data) {
			return false
		}
		each(binary.NativeEndian.Uint16(data[2:])&attributeMask, data[unix.SizeofRtAttr:length])
		data = data[min(aligned(length), len(data)):]
	}
	return true
}

func number(value []byte) uint32 {
	if len(value) < 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

// appendRoute appends a request about an entry. The kernel compares all of it when
// it looks for the route to delete.
func appendRoute(out []byte, e agent.Entry, kind, flags uint16, seq uint32) []byte {
	start := len(out)
	out = appendHeader(out, kind, flags, seq)
	family, action, scope := byte(unix.AF_INET6), byte(unix.RTN_UNICAST), byte(unix.RT_SCOPE_UNIVERSE)
	if e.Dst.Addr().Is4() {
		family = unix.AF_INET
	}
	switch {
	case e.Kind == agent.Unreachable:
		action = unix.RTN_UNREACHABLE
	case !e.Via.IsValid():
		scope = unix.RT_SCOPE_LINK
	}
	out = append(out, family, byte(e.Dst.Bits()), 0, 0, unix.RT_TABLE_MAIN, e.Protocol, scope, action, 0, 0, 0, 0)
	out = appendAddress(out, unix.RTA_DST, e.Dst.Addr())
	out = appendNumber(out, unix.RTA_PRIORITY, e.Metric)
	if e.Kind != agent.Unreachable {
		out = appendNumber(out, unix.RTA_OIF, uint32(e.Link))
		if e.Via.IsValid() {
			out = appendAddress(out, unix.RTA_GATEWAY, e.Via)
		}
	}
	return endMessage(out, start)
}

// appendHeader begins a message, and endMessage tells its length.
func appendHeader(out []byte, kind, flags uint16, seq uint32) []byte {
	out = binary.NativeEndian.AppendUint32(out, 0)
	out = binary.NativeEndian.AppendUint16(out, kind)
	out = binary.NativeEndian.AppendUint16(out, flags)
	out = binary.NativeEndian.AppendUint32(out, seq)
	return binary.NativeEndian.AppendUint32(out, 0)
}

func endMessage(out []byte, start int) []byte {
	binary.NativeEndian.PutUint32(out[start:], uint32(len(out)-start))
	return out
}

func appendAddress(out []byte, kind uint16, addr netip.Addr) []byte {
	out = binary.NativeEndian.AppendUint16(out, uint16(unix.SizeofRtAttr+addr.BitLen()/8))
	out = binary.NativeEndian.AppendUint16(out, kind)
	if addr.Is4() {
		four := addr.As4()
		return append(out, four[:]...)
	}
	sixteen := addr.As16()
	return append(out, sixteen[:]...)
}

func appendNumber(out []byte, kind uint16, value uint32) []byte {
	out = binary.NativeEndian.AppendUint16(out, unix.SizeofRtAttr+4)
	out = binary.NativeEndian.AppendUint16(out, kind)
	return binary.NativeEndian.AppendUint32(out, value)
}

func prefixOf(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr, bits), ok && bits >= 0
}
