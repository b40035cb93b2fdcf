package agent

import (
	"net/netip"
	"slices"
)

// PodRanges are the parts of the pools that hold nothing but pods. A connection
// to a pod of a Node that this machine has not heard of yet must not be
// masqueraded, since it would keep the address that it began with; what is
// excluded of the pools may be somebody else's, who knows no pods. Both are masked.
func PodRanges(pools, excluded []netip.Prefix) []netip.Prefix {
	var ranges []netip.Prefix
	for _, pool := range pools {
		ranges = append(ranges, without(pool, excluded)...)
	}
	return ranges
}

// without is what is left of a prefix, as few prefixes in order.
func without(p netip.Prefix, excluded []netip.Prefix) []netip.Prefix {
	at := slices.IndexFunc(excluded, p.Overlaps)
	switch {
	case at < 0:
		return []netip.Prefix{p}
	case excluded[at].Bits() <= p.Bits():
		return nil
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	return append(without(low, excluded), without(sibling(low), excluded)...)
}

// sibling is the upper half of what p is the lower half of.
func sibling(p netip.Prefix) netip.Prefix {
	last := p.Bits() - 1
	bytes := p.Addr().AsSlice()
	bytes[last/8] |= 0x80 >> (last % 8)
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, p.Bits())
}
