package ipam

import (
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// listed returns the prefixes of a tree that overlap p.
func listed(t *tree[int], p netip.Prefix) (found []netip.Prefix) {
	for q := range t.overlapping(p) {
		found = append(found, q)
	}
	return found
}

func TestTreeAgreesWithAMap(t *testing.T) {
	anything := prefixes("0.0.0.0/0", "::/0")
	for seed := range uint64(10) {
		draw := rand.New(rand.NewPCG(seed, 3))
		pick := func() netip.Prefix {
			if draw.IntN(2) == 0 {
				a := netip.AddrFrom4([4]byte{10, byte(draw.IntN(2)) << 7, 0, byte(draw.Uint32())})
				return netip.PrefixFrom(a, draw.IntN(33)).Masked()
			}
			b := [16]byte{0xfd, 0, 0, 0, 0, 0, byte(draw.IntN(4)), byte(draw.IntN(4)), byte(draw.IntN(4)) << 6}
			return netip.PrefixFrom(netip.AddrFrom16(b), 40+draw.IntN(40)).Masked()
		}
		var tr tree[int]
		naive := map[netip.Prefix]int{}
		for step := range 400 {
			p := pick()
			if draw.IntN(3) == 0 {
				tr.remove(p)
				delete(naive, p)
			} else {
				tr.put(p, step)
				naive[p] = step
			}
			q := pick()
			want := slices.SortedFunc(maps.Keys(naive), netip.Prefix.Compare)
			want = slices.DeleteFunc(want, func(p netip.Prefix) bool { return !p.Overlaps(q) })
			if diff := cmp.Diff(want, listed(&tr, q), comparePrefixes); diff != "" {
				t.Fatalf("seed %d, step %d: overlapping(%s) (-map +tree):\n%s", seed, step, q, diff)
			}
			first, any := tr.first(q)
			if any != (len(want) > 0) || any && first != want[0] {
				t.Fatalf("seed %d, step %d: first(%s) = %s, %t, want %v", seed, step, q, first, any, want)
			}
			for _, r := range []netip.Prefix{p, q} {
				got, ok := tr.get(r)
				if value, is := naive[r]; ok != is || got != value {
					t.Fatalf("seed %d, step %d: get(%s) = %d, %t, want %d, %t", seed, step, r, got, ok, value, is)
				}
			}
		}
		for p := range naive {
			tr.remove(p)
		}
		if tr.roots != [2]*branch[int]{} || listed(&tr, anything[0]) != nil || listed(&tr, anything[1]) != nil {
			t.Errorf("seed %d: branches are left of an empty tree", seed)
		}
	}
}
