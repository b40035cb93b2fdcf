package ipam

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A table yields the prefixes that overlap one, each once, those that contain it first.
func TestOverlappingAgreesWithAList(t *testing.T) {
	for seed := range uint64(10) {
		draw := rand.New(rand.NewPCG(seed, 3))
		pick := func() netip.Prefix {
			if draw.IntN(2) == 0 {
				a := netip.AddrFrom4([4]byte{10, byte(draw.IntN(2)) << 7, 0, byte(draw.Uint32())})
				return netip.PrefixFrom(a, draw.IntN(33)).Masked()
			}
			b := [16]byte{
				0xfd, 0, 0, 0, 0, 0, byte(draw.IntN(4)), byte(draw.IntN(4)), byte(draw.IntN(4)) << 6,
			}
			return netip.PrefixFrom(netip.AddrFrom16(b), 40+draw.IntN(40)).Masked()
		}
		var list []netip.Prefix
		for step := range 400 {
			list = append(list, pick())
			table, q := setOf(list), pick()
			var got []netip.Prefix
			for p := range overlapping(table, q) {
				got = append(got, p)
			}
			first, any := firstOverlap(table, q)
			if any != (len(got) > 0) ||
				any &&
					(first != got[0] ||
						first.Bits() > q.Bits() &&
							slices.ContainsFunc(got, func(p netip.Prefix) bool { return p.Bits() <= q.Bits() })) {
				t.Fatalf("seed %d, step %d: the first overlap of %s is %s, %t, of %v", seed, step, q, first, any, got)
			}
			want := slices.Compact(sorted(slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool {
				return !p.Overlaps(q)
			})))
			if diff := cmp.Diff(want, sorted(got), comparePrefixes); diff != "" {
				t.Fatalf("seed %d, step %d: overlapping(%s) (-list +table):\n%s", seed, step, q, diff)
			}
		}
	}
}
