package ipam

import (
	"net"
	"net/netip"
	"slices"
)

// canonical writes a prefix the one way that comparisons rely on: host bits zero, and IPv4 as
// IPv4 even if it came as an IPv4-mapped IPv6 prefix.
func canonical(p netip.Prefix) netip.Prefix {
	const mappedBits = 96
	if p.Addr().Is4In6() && p.Bits() >= mappedBits {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
	}
	return p.Masked()
}

// canonicalAll canonicalises a list, keeps its order, and leaves out repetitions and prefixes
// that are no prefixes.
func canonicalAll(prefixes []netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if p = canonical(p); p.IsValid() && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	return out
}

// sorted returns the prefixes by family, address and length.
func sorted(prefixes []netip.Prefix) []netip.Prefix {
	return slices.SortedFunc(slices.Values(prefixes), netip.Prefix.Compare)
}

// toIPNet converts for cidrset. IPv4 must have 4 bytes there: 16 make it read zeros.
func toIPNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// bitsOf reads the bits from..to (counted from the most significant) of an address as a number.
func bitsOf(a netip.Addr, from, to int) int {
	b := a.AsSlice()
	n := 0
	for i := from; i < to; i++ {
		n = n<<1 | int(b[i/8]>>(7-i%8)&1)
	}
	return n
}

// withBits returns the address with n written into the bits from..to, which must be zero before.
func withBits(a netip.Addr, from, to, n int) netip.Addr {
	b := a.AsSlice()
	for i := to - 1; i >= from; i-- {
		b[i/8] |= byte(n&1) << (7 - i%8)
		n >>= 1
	}
	out, _ := netip.AddrFromSlice(b)
	return out
}
