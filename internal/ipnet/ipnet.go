// Package ipnet converts between the address types of net, which cloud libraries use, and netip.
package ipnet

import (
	"net"
	"net/netip"
)

// Addr returns ip as a netip.Addr, never as an IPv4-mapped address; the zero Addr for nil.
func Addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// Prefix returns n as a masked netip.Prefix; the zero Prefix for nil.
func Prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(Addr(n.IP), bits).Masked()
}

// Of returns p as a net.IPNet.
func Of(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
