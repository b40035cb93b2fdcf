package ipam

import (
	"net/netip"
	"slices"
	"time"
)

// Restore puts back what is stored of one Node, before anything is observed or assigned. All of
// it stays held, also where records collide or the pools have changed since: there the first
// one restored keeps it, and the other is warned about. A second record of one UID is kept as
// abandoned. What was in quarantine still is. Without a prefix it is no holding.
func (l *Ledger) Restore(stored Holding) []Warning {
	prefixes := canonicalAll(stored.Prefixes)
	if len(prefixes) == 0 && len(stored.Abandoned) == 0 {
		return nil
	}
	h, known := l.holdings[stored.Node.UID]
	if !known {
		h = l.meet(stored.Node)
		l.setReleased(h, moment(stored.Released))
		h.observed = stored.Observed
	}
	for _, p := range canonicalAll(slices.Concat(prefixes, stored.Abandoned)) {
		if slices.Contains(h.all(), p) {
			continue
		}
		if pool := stored.Pools[p]; pool != "" && l.carver(p) == nil {
			l.setOrigin(h, p, pool)
		}
		if known || !slices.Contains(prefixes, p) {
			h.abandoned = append(h.abandoned, p)
		} else {
			h.prefixes = append(h.prefixes, p)
		}
		l.claim(h, p)
	}
	return l.duplicates(h, DuplicateRecord)
}

// moment is a time as it is stored: without what only this process knows.
func moment(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.Round(0).UTC()
}

// quarantineStart is the time as it is stored of a quarantine, where the zero time means none.
func quarantineStart(now time.Time) time.Time {
	if now.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return moment(now)
}

// Observe records the podCIDRs that a Node really has, whatever they are. They replace what was
// reserved for that UID. Where two Nodes have overlapping ones, the one observed or assigned
// first keeps it and the other is warned about, so observe existing Nodes oldest first.
// Observing the same again changes nothing and returns the warnings as they are now; observing
// nothing at all changes nothing. A Node that is observed is not gone: a quarantine ends.
//
// A reservation that turns out not to be the Node's goes into quarantine, from now on: it may be
// what the same machine had before its Node was created again, and a route to it may stand.
func (l *Ledger) Observe(node Node, prefixes []netip.Prefix, now time.Time) []Warning {
	prefixes = canonicalAll(prefixes)
	if len(prefixes) == 0 {
		return nil
	}
	h := l.meet(node)
	before := h.all()
	h.prefixes, h.observed, h.abandoned = prefixes, true, nil
	l.setReleased(h, time.Time{})
	for _, p := range prefixes {
		if own := l.likelyOwn(p); own != nil && h.origins[p] == "" {
			l.setOrigin(h, p, own.Name)
		}
		if !slices.Contains(before, p) {
			l.claim(h, p)
		}
	}
	l.retire(h, slices.DeleteFunc(before, func(p netip.Prefix) bool { return slices.Contains(prefixes, p) }), now)
	return l.warnings(h)
}

// RetiredSuffix ends the UID under which the ledger has what was reserved for a Node that was
// observed with other podCIDRs. No UID of a Node ends so.
const RetiredSuffix = "/retired"

// retire moves prefixes of a holding to one of their own, which is in quarantine. It has the
// Node's name and machine, by which a route to them is known to be this cluster's.
func (l *Ledger) retire(h *holding, prefixes []netip.Prefix, now time.Time) {
	if len(prefixes) == 0 {
		return
	}
	owner := h.node
	owner.UID += RetiredSuffix
	retired := l.meet(owner)
	l.setReleased(retired, quarantineStart(now))
	for _, p := range prefixes {
		if pool := h.origins[p]; pool != "" {
			l.setOrigin(retired, p, pool)
			delete(h.origins, p)
		}
		if !slices.Contains(retired.all(), p) {
			retired.prefixes = append(retired.prefixes, p)
			l.claim(retired, p)
		}
		l.drop(h, p)
	}
}

// Release says that the Node with this UID is gone. All that it holds goes into quarantine: it
// stays held until Free, or until the same machine comes back. Releasing again keeps the first
// time. It reports false if the UID holds nothing.
func (l *Ledger) Release(uid string, now time.Time) (Holding, bool) {
	h, ok := l.holdings[uid]
	if !ok {
		return Holding{}, false
	}
	if !h.gone() {
		l.setReleased(h, quarantineStart(now))
	}
	return l.describe(h), true
}

// Shared reports whether a Node that is not gone was observed with something that overlaps.
func (l *Ledger) Shared(p netip.Prefix) bool {
	return slices.ContainsFunc(l.overlaps(nil, p), func(o overlap) bool {
		return o.holder.observed && !o.holder.gone() && slices.Contains(o.holder.prefixes, o.prefix)
	})
}

// Quarantined returns what Nodes that are gone still hold, the longest gone first.
func (l *Ledger) Quarantined() []Holding {
	return l.list((*holding).gone, func(a, b *holding) int {
		if c := a.released.Compare(b.released); c != 0 {
			return c
		}
		return compareNodes(a, b)
	})
}

// Free ends everything that the Node with this UID holds, in quarantine or not, and returns it,
// sorted. What other Nodes hold as well stays theirs. An unknown UID has nothing.
func (l *Ledger) Free(uid string) []netip.Prefix {
	h, ok := l.holdings[uid]
	if !ok {
		return nil
	}
	l.strike(h)
	held := sorted(h.all())
	for _, p := range held {
		l.drop(h, p)
	}
	return held
}
