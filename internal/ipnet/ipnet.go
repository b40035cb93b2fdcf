// Package ipnet converts between the addresses of package net, which libraries of clouds use, and
// those of netip. It decides nothing.
package ipnet

import (
	"net"
	"net/netip"
)

// Addr is an address, never IPv4 in an IPv6 coat; none is the zero value.
func Addr(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

// Prefix is a range, masked; none is the zero value.
func Prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(Addr(n.IP), bits).Masked()
}

// Of is a range as package net has it.
func Of(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
