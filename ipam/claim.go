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

// seat is a prefix that is claimed.
type seat struct {
	claims []claim // in order of arrival
	// What the pool was told about it, if there is one that counts it.
	keeper keeper
	holder string
	gone   bool
}

// keeper is the pool that counts a prefix.
type keeper interface {
	Claim(prefix netip.Prefix, holder string) error
	Release(prefix netip.Prefix, holder string) error
	Pass(prefix netip.Prefix, holder, to string) error
	Quarantine(prefix netip.Prefix, holder string, gone bool) error
}

// claim records one more holder of a prefix.
func (l *Ledger) claim(h *holding, p netip.Prefix) {
	s, taken := l.seats.get(p)
	if !taken {
		s = &seat{}
		l.seats.put(p, s)
		l.block(p, (*Pool).Block)
	}
	l.arrivals++
	s.claims = append(s.claims, claim{h, l.arrivals})
	l.settle(p)
}

// drop ends one holder's claim. The next in order of arrival takes its place; the prefix
// becomes free only with the last.
func (l *Ledger) drop(h *holding, p netip.Prefix) {
	s, _ := l.seats.get(p)
	s.claims = slices.DeleteFunc(s.claims, func(c claim) bool { return c.holder == h })
	if len(s.claims) > 0 {
		l.settle(p)
		return
	}
	l.seats.remove(p)
	l.block(p, (*Pool).Unblock)
	if s.keeper != nil {
		mustAgree(s.keeper.Release(p, s.holder))
	}
}

// block keeps everything that overlaps the prefix from being handed out, or no more. A node
// prefix of a pool overlaps nothing else that pools carve.
func (l *Ledger) block(p netip.Prefix, apply func(*Pool, netip.Prefix)) {
	if l.carver(p) != nil {
		return
	}
	for _, s := range l.sources {
		if s.pool != nil {
			apply(s.pool, p)
		}
	}
}

// settle tells the pool for whom a claimed prefix stands: for the first whose Node is not gone,
// else for the first.
func (l *Ledger) settle(p netip.Prefix) {
	s, _ := l.seats.get(p)
	h := s.claims[0].holder
	if i := slices.IndexFunc(s.claims, func(c claim) bool { return !c.holder.gone() }); i > 0 {
		h = s.claims[i].holder
	}
	k := l.keeper(h, p)
	if s.keeper != nil && s.keeper != k {
		mustAgree(s.keeper.Release(p, s.holder))
		s.keeper = nil
	}
	if k == nil {
		return
	}
	if s.keeper == nil {
		mustAgree(k.Claim(p, h.node.UID))
		s.keeper, s.holder, s.gone = k, h.node.UID, false
	}
	if s.holder != h.node.UID {
		mustAgree(k.Pass(p, s.holder, h.node.UID))
		s.holder = h.node.UID
	}
	if s.gone != h.gone() {
		mustAgree(k.Quarantine(p, s.holder, h.gone()))
		s.gone = h.gone()
	}
}

// keeper returns the pool that counts a prefix of this holder, or nil.
func (l *Ledger) keeper(h *holding, p netip.Prefix) keeper {
	if s := l.carver(p); s != nil {
		return s.pool
	}
	if s := l.ownSource(h.origins[p]); s != nil {
		return s.own
	}
	return nil
}

// mustAgree stops the program when parts of the bookkeeping disagree about who holds what: it
// must not hand out anything any more. Started again, it rebuilds its knowledge from what is
// stored.
func mustAgree(err error) {
	if err != nil {
		panic("ipam: the ledger and its pool disagree: " + err.Error())
	}
}

// rival is another holder's claim on something that overlaps.
type rival struct {
	prefix netip.Prefix
	claim
}

// rivals returns the claims of others that overlap p, the earliest first. The holder may be nil.
func (l *Ledger) rivals(h *holding, p netip.Prefix) []rival {
	var found []rival
	for q, s := range l.seats.overlapping(p) {
		for _, c := range s.claims {
			if c.holder != h {
				found = append(found, rival{q, c})
			}
		}
	}
	slices.SortFunc(found, func(a, b rival) int { return cmp.Compare(a.arrival, b.arrival) })
	return found
}

// arrival is when the holder's claim on a prefix arrived.
func (l *Ledger) arrival(h *holding, p netip.Prefix) uint64 {
	s, _ := l.seats.get(p)
	own := slices.IndexFunc(s.claims, func(c claim) bool { return c.holder == h })
	return s.claims[own].arrival
}

// contested tells whether something of what is reserved here may already be at work elsewhere:
// another Node has it or had it until lately, or was promised it before.
func (l *Ledger) contested(h *holding) bool {
	return slices.ContainsFunc(h.prefixes, func(p netip.Prefix) bool {
		mine := l.arrival(h, p)
		return slices.ContainsFunc(l.rivals(h, p), func(r rival) bool {
			return r.holder.observed || r.holder.gone() || r.arrival < mine
		})
	})
}
