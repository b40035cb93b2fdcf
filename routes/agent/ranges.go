package agent

import (
	"net/netip"
	"slices"
)

// PodRanges returns the parts of the pools that contain only pods. A connection to a pod of a
// Node that this machine has not observed yet must not be masqueraded, since it would keep its
// first source address. The excluded parts of pools may belong to hosts without routes to
// pods. Both lists are masked.
func PodRanges(pools, excluded []netip.Prefix) (ranges []netip.Prefix) {
	for _, p := range pools {
		at := slices.IndexFunc(excluded, p.Overlaps)
		switch {
		case at < 0:
			ranges = append(ranges, p)
		case excluded[at].Bits() > p.Bits():
			bytes := p.Addr().AsSlice()
			bytes[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
			upper, _ := netip.AddrFromSlice(bytes)
			halves := []netip.Prefix{
				netip.PrefixFrom(p.Addr(), p.Bits()+1), netip.PrefixFrom(upper, p.Bits()+1),
			}
			ranges = append(ranges, PodRanges(halves, excluded)...)
		}
	}
	return ranges
}
