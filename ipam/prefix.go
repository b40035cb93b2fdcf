package ipam

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strings"
)

// canonical returns a prefix as comparisons need it: masked, and IPv4 if it is IPv4-mapped.
func canonical(p netip.Prefix) netip.Prefix {
	const mappedBits = 96
	if p.Addr().Is4In6() && p.Bits() >= mappedBits {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mappedBits)
	}
	return p.Masked()
}

// canonicalAll canonicalises a list in its order, without duplicates and invalid prefixes.
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

func sortedKeys(entries map[string]string) []string {
	return slices.Sorted(maps.Keys(entries))
}

func join(prefixes []netip.Prefix, separator string) string {
	text := make([]string, len(prefixes))
	for i, p := range prefixes {
		text[i] = p.String()
	}
	return strings.Join(text, separator)
}

// number is an address as 128 bits. IPv4 fills the top, so that lengths of prefixes count from
// there.
type number struct{ hi, lo uint64 }

func numberOf(a netip.Addr) number {
	if a.Is4() {
		b := a.As4()
		return number{hi: uint64(binary.BigEndian.Uint32(b[:])) << 32}
	}
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n number) addr(bitLen int) netip.Addr {
	if bitLen == 32 {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], uint32(n.hi>>32))
		return netip.AddrFrom4(b)
	}
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b)
}

// upTo returns the lowest 64 of the bits before the i-th.
func (n number) upTo(i int) uint64 {
	// Unsigned: a shift by more than 63 bits results in zero, a shift by a negative count panics.
	drop := uint(128 - i)
	return n.lo>>drop | n.hi<<(64-drop) | n.hi>>(drop-64)
}

// plus adds v, shifted so that its lowest bit is just before the i-th.
func (n number) plus(v uint64, i int) number {
	shift := uint(128 - i)
	lo, carry := bits.Add64(n.lo, v<<shift, 0)
	hi, _ := bits.Add64(n.hi, v<<(shift-64)|v>>(64-shift), carry)
	return number{hi, lo}
}
