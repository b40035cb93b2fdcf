package ipam

import (
	"iter"
	"net/netip"

	"github.com/gaissmai/bart"
)

// overlapping yields the prefixes of a table that overlap a canonical one: those that contain it,
// the longest first, then those inside it, in order. The table must not change meanwhile.
func overlapping[V any](t *bart.Table[V], p netip.Prefix) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		for q, value := range t.Supernets(p) {
			if q != p && !yield(q, value) {
				return
			}
		}
		for q, value := range t.Subnets(p) {
			if !yield(q, value) {
				return
			}
		}
	}
}

// firstOverlap returns the first of them.
func firstOverlap[V any](t *bart.Table[V], p netip.Prefix) (netip.Prefix, bool) {
	if t.OverlapsPrefix(p) { // several times as fast if there is none, as usual
		for q := range overlapping(t, p) {
			return q, true
		}
	}
	return netip.Prefix{}, false
}

func setOf(prefixes []netip.Prefix) *bart.Table[struct{}] {
	t := &bart.Table[struct{}]{}
	for _, p := range prefixes {
		t.Insert(canonical(p), struct{}{})
	}
	return t
}
