package ipam

import (
	"net/netip"
	"slices"
)

// claim records one more holder of a prefix. Only the first stands in the pool.
func (l *Ledger) claim(h *holding, p netip.Prefix) {
	l.arrivals++
	l.claims[p] = append(l.claims[p], claim{h, l.arrivals})
	if len(l.claims[p]) == 1 {
		l.occupy(h, p)
	}
}

// drop ends one holder's claim. The next in order of arrival takes its place; the prefix
// becomes free only with the last.
func (l *Ledger) drop(h *holding, p netip.Prefix) {
	first := l.claims[p][0].holder
	left := slices.DeleteFunc(l.claims[p], func(c claim) bool { return c.holder == h })
	if len(left) == 0 {
		delete(l.claims, p)
	} else {
		l.claims[p] = left
	}
	if first != h {
		return
	}
	l.vacate(h, p)
	if len(left) > 0 {
		l.occupy(left[0].holder, p)
	}
}

// occupy keeps a prefix, and all that overlaps it, from being handed out.
func (l *Ledger) occupy(h *holding, p netip.Prefix) {
	if pool := l.carver(p); pool != nil {
		mustAgree(pool.Claim(p, h.node.UID))
		return
	}
	l.misfits[p] = true
	for _, pool := range l.pools {
		pool.Block(p)
	}
}

// vacate undoes occupy.
func (l *Ledger) vacate(h *holding, p netip.Prefix) {
	if pool := l.carver(p); pool != nil {
		mustAgree(pool.Release(p, h.node.UID))
		return
	}
	delete(l.misfits, p)
	for _, pool := range l.pools {
		pool.Unblock(p)
	}
}

// mustAgree stops the program when Ledger and Pool disagree about who holds what: it must not
// hand out anything any more. Started again, it rebuilds its knowledge from the Nodes.
func mustAgree(err error) {
	if err != nil {
		panic("ipam: the ledger and its pool disagree: " + err.Error())
	}
}

// carver returns the pool that has the prefix among its node prefixes, or nil.
func (l *Ledger) carver(p netip.Prefix) *Pool {
	for _, pool := range l.pools {
		if pool.Carves(p) {
			return pool
		}
	}
	return nil
}

// rival is another holder's claim on something that overlaps.
type rival struct {
	prefix netip.Prefix
	claim  claim
}

// rivals returns the claims of others that overlap p, the earliest first.
func (l *Ledger) rivals(h *holding, p netip.Prefix) []rival {
	var found []rival
	collect := func(q netip.Prefix) {
		for _, c := range l.claims[q] {
			if c.holder != h {
				found = append(found, rival{q, c})
			}
		}
	}
	if l.misfits[p] {
		for q := range l.claims {
			if q.Overlaps(p) {
				collect(q)
			}
		}
	} else {
		// Node prefixes of the pools never overlap each other without being equal.
		collect(p)
		for q := range l.misfits {
			if q.Overlaps(p) {
				collect(q)
			}
		}
	}
	slices.SortFunc(found, func(a, b rival) int { return int(a.claim.arrival) - int(b.claim.arrival) })
	return found
}

// contested tells whether another Node claims something of what is reserved here.
func (l *Ledger) contested(h *holding) bool {
	return slices.ContainsFunc(h.prefixes, func(p netip.Prefix) bool { return len(l.rivals(h, p)) > 0 })
}

// warnings judges what a Node was observed with.
func (l *Ledger) warnings(h *holding) []Warning {
	var found []Warning
	for _, p := range h.prefixes {
		if w, wrong := l.misplaced(p); wrong {
			w.Node = h.node
			found = append(found, w)
		}
		own := slices.IndexFunc(l.claims[p], func(c claim) bool { return c.holder == h })
		rivals := l.rivals(h, p)
		if len(rivals) > 0 && rivals[0].claim.arrival < l.claims[p][own].arrival {
			found = append(found, Warning{
				Kind: Duplicate, Node: h.node, Prefix: p,
				Against: rivals[0].prefix, Holder: rivals[0].claim.holder.node,
			})
		}
	}
	for _, family := range l.families {
		pool := family[0].Prefix()
		of := func(p netip.Prefix) bool { return sameFamily(p, pool) }
		if !slices.ContainsFunc(h.prefixes, of) {
			found = append(found, Warning{Kind: MissingFamily, Node: h.node, Prefix: h.prefixes[0], Against: pool})
		}
	}
	slices.SortFunc(found, compareWarnings)
	return found
}

// misplaced tells whether a prefix is one that the pools would never hand out.
func (l *Ledger) misplaced(p netip.Prefix) (Warning, bool) {
	overlaps := func(q netip.Prefix) bool { return q.Overlaps(p) }
	if l.carver(p) == nil {
		i := slices.IndexFunc(l.pools, func(pool *Pool) bool { return overlaps(pool.Prefix()) })
		if i < 0 {
			return Warning{Kind: OutsidePools, Prefix: p}, true
		}
		return Warning{Kind: WrongSize, Prefix: p, Against: l.pools[i].Prefix()}, true
	}
	if i := slices.IndexFunc(l.exclusions, overlaps); i >= 0 {
		return Warning{Kind: Excluded, Prefix: p, Against: l.exclusions[i]}, true
	}
	return Warning{}, false
}
