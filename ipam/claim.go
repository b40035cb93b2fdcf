package ipam

import (
	"cmp"
	"net/netip"
	"slices"
)

// claim is one holder of a prefix. A prefix set by hand or by another allocator can have
// several: the first owns it, and it becomes free only with the last.
type claim struct {
	holder  *Holding
	arrival uint64
}

// claim adds a holder of a prefix, handed out by that pool; "" is unknown.
func (l *Ledger) claim(h *Holding, p netip.Prefix, pool string) {
	claims, _ := l.claims.Get(p)
	l.arrivals++
	l.claims.Insert(p, append(claims, claim{h, l.arrivals}))
	if s := l.carver(p); s != nil {
		pool = s.Name
	}
	if pool != "" {
		h.Pools[p] = pool
	}
	l.counted = nil
}

// drop ends one holder's claim. The next claim in order of arrival takes its place.
func (l *Ledger) drop(h *Holding, p netip.Prefix) {
	claims, _ := l.claims.Get(p)
	claims = slices.DeleteFunc(claims, func(c claim) bool { return c.holder == h })
	l.counted = nil
	if len(claims) > 0 {
		l.claims.Insert(p, claims)
		return
	}
	l.claims.Delete(p)
}

// standsFor returns the holder that a prefix counts for: the first active one, else the first.
func standsFor(claims []claim) *Holding {
	i := slices.IndexFunc(claims, func(c claim) bool { return !c.holder.gone() })
	return claims[max(i, 0)].holder
}

type overlap struct {
	prefix netip.Prefix
	claim
}

// overlaps returns the claims of other holders that overlap p, earliest first. h may be nil.
func (l *Ledger) overlaps(h *Holding, p netip.Prefix) []overlap {
	var found []overlap
	for q, claims := range overlapping(&l.claims, p) {
		for _, c := range claims {
			if c.holder != h {
				found = append(found, overlap{q, c})
			}
		}
	}
	slices.SortFunc(found, func(a, b overlap) int { return cmp.Compare(a.arrival, b.arrival) })
	return found
}

// arrival returns the sequence number of the holder's claim on a prefix.
func (l *Ledger) arrival(h *Holding, p netip.Prefix) uint64 {
	claims, _ := l.claims.Get(p)
	own := slices.IndexFunc(claims, func(c claim) bool { return c.holder == h })
	return claims[own].arrival
}

// contested reports whether any of the holding's prefixes may already be in use elsewhere:
// another Node has it, had it until recently, or reserved it earlier.
func (l *Ledger) contested(h *Holding) bool {
	return slices.ContainsFunc(h.Prefixes, func(p netip.Prefix) bool {
		mine := l.arrival(h, p)
		return slices.ContainsFunc(l.overlaps(h, p), func(r overlap) bool {
			return r.holder.Observed || r.holder.gone() || r.arrival < mine
		})
	})
}
