package config

import (
	"net/netip"
	"slices"
)

func within(prefix netip.Prefix, ranges []netip.Prefix) bool {
	return slices.ContainsFunc(ranges, func(outer netip.Prefix) bool { return contains(outer, prefix) })
}

func contains(outer, inner netip.Prefix) bool {
	return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
}

// roomLeft reports whether pool has a node prefix that overlaps no exclusion. It halves the pool
// only where an exclusion overlaps it.
func roomLeft(pool netip.Prefix, nodeMask int, excluded []netip.Prefix) bool {
	if within(pool, excluded) {
		return false
	}
	if !slices.ContainsFunc(excluded, pool.Overlaps) {
		return true
	}
	if pool.Bits() >= nodeMask {
		return false
	}
	lower, upper := halves(pool)
	return roomLeft(lower, nodeMask, excluded) || roomLeft(upper, nodeMask, excluded)
}

func halves(prefix netip.Prefix) (lower, upper netip.Prefix) {
	bits := prefix.Bits()
	address := prefix.Addr().AsSlice()
	address[bits/8] |= 0x80 >> (bits % 8)
	middle, _ := netip.AddrFromSlice(address)
	return netip.PrefixFrom(prefix.Addr(), bits+1), netip.PrefixFrom(middle, bits+1)
}
