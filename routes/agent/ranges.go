package agent

import (
	"net/netip"
	"slices"
)

// PodRanges returns the parts of the pools that contain only pods. A connection to a pod of a
// Node that this machine has not observed yet must not be masqueraded, since it would keep its
// first source address. The excluded parts of pools may belong to hosts without routes to
// pods. Both lists are masked.
func PodRanges(pools, excluded []netip.Prefix) []netip.Prefix {
	var ranges []netip.Prefix
	for _, pool := range pools {
		ranges = append(ranges, without(pool, excluded)...)
	}
	return ranges
}

// without returns the rest of a prefix, as the fewest prefixes in order.
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

// sibling returns the upper half of the prefix of which p is the lower half.
func sibling(p netip.Prefix) netip.Prefix {
	last := p.Bits() - 1
	bytes := p.Addr().AsSlice()
	bytes[last/8] |= 0x80 >> (last % 8)
	addr, _ := netip.AddrFromSlice(bytes)
	return netip.PrefixFrom(addr, p.Bits())
}
