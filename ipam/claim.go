package ipam

import (
	"cmp"
	"net/netip"
	"slices"
)

// claim is one holder of a prefix. Others may claim the same, by hand or by another allocator:
// the first to arrive keeps it, and it becomes free only with the last.
type claim struct {
	holder  *holding
	arrival uint64
}

// claim records one more holder of a prefix.
func (l *Ledger) claim(h *holding, p netip.Prefix) {
	claims, _ := l.claims.get(p)
	l.arrivals++
	l.claims.put(p, append(claims, claim{h, l.arrivals}))
	if s := l.carver(p); s != nil {
		s.hold(p)
	}
	l.counted = nil
}

// drop ends one holder's claim. The next in order of arrival takes its place; the prefix
// becomes free only with the last.
func (l *Ledger) drop(h *holding, p netip.Prefix) {
	claims, _ := l.claims.get(p)
	claims = slices.DeleteFunc(claims, func(c claim) bool { return c.holder == h })
	l.counted = nil
	if len(claims) > 0 {
		l.claims.put(p, claims)
		return
	}
	l.claims.remove(p)
	if s := l.carver(p); s != nil {
		s.release(p)
	}
}

// standsFor returns for whom a claimed prefix counts: for the first whose Node is not gone, else
// for the first.
func standsFor(claims []claim) *holding {
	i := slices.IndexFunc(claims, func(c claim) bool { return !c.holder.gone() })
	return claims[max(i, 0)].holder
}

// overlap is another holder's claim on something that overlaps.
type overlap struct {
	prefix netip.Prefix
	claim
}

// overlaps returns the claims of others that overlap p, the earliest first. The holder may be nil.
func (l *Ledger) overlaps(h *holding, p netip.Prefix) []overlap {
	var found []overlap
	for q, claims := range l.claims.overlapping(p) {
		for _, c := range claims {
			if c.holder != h {
				found = append(found, overlap{q, c})
			}
		}
	}
	slices.SortFunc(found, func(a, b overlap) int { return cmp.Compare(a.arrival, b.arrival) })
	return found
}

// arrival is when the holder's claim on a prefix arrived.
func (l *Ledger) arrival(h *holding, p netip.Prefix) uint64 {
	claims, _ := l.claims.get(p)
	own := slices.IndexFunc(claims, func(c claim) bool { return c.holder == h })
	return claims[own].arrival
}

// contested reports whether something of what is reserved here may already be at work elsewhere:
// another Node has it or had it until lately, or was promised it before.
func (l *Ledger) contested(h *holding) bool {
	return slices.ContainsFunc(h.prefixes, func(p netip.Prefix) bool {
		mine := l.arrival(h, p)
		return slices.ContainsFunc(l.overlaps(h, p), func(r overlap) bool {
			return r.holder.observed || r.holder.gone() || r.arrival < mine
		})
	})
}
