package ipam

import (
	"net/netip"
	"slices"
	"time"
)

// Restore adds a stored holding, before anything is observed or assigned. All its prefixes
// stay held, even if records collide or the pools have changed: the record restored first owns
// a prefix, and the other one causes a warning. A second record of a UID is kept as abandoned.
// A quarantine continues. A record without prefixes is ignored.
func (l *Ledger) Restore(stored Holding) []Warning {
	prefixes := canonicalAll(stored.Prefixes)
	if len(prefixes) == 0 && len(stored.Abandoned) == 0 {
		return nil
	}
	h, known := l.holdings[stored.Node.UID]
	if !known {
		h = l.meet(stored.Node)
		l.setReleased(h, moment(stored.Released))
		h.Observed = stored.Observed
	}
	for _, p := range canonicalAll(slices.Concat(prefixes, stored.Abandoned)) {
		if slices.Contains(h.all(), p) {
			continue
		}
		if known || !slices.Contains(prefixes, p) {
			h.Abandoned = append(h.Abandoned, p)
		} else {
			h.Prefixes = append(h.Prefixes, p)
		}
		l.claim(h, p, stored.Pools[p])
	}
	return l.duplicates(h, DuplicateRecord)
}

// moment returns the stored form of a time.
func moment(t time.Time) time.Time { return t.Round(0).UTC() }

// quarantineStart returns the stored form of a time, never zero: that means no quarantine.
func quarantineStart(now time.Time) time.Time {
	if now.IsZero() {
		return time.Unix(0, 0).UTC()
	}
	return moment(now)
}

// Observe records the podCIDRs that a Node has. They replace the reservation of that UID. If
// podCIDRs of two Nodes overlap, the Node observed or assigned first owns them and the other
// one causes a warning, so existing Nodes must be observed oldest first. Observing the same
// podCIDRs again changes nothing and returns the current warnings; without podCIDRs it changes
// nothing. Observing a Node ends its quarantine.
//
// A reservation that turns out not to be the Node's enters quarantine at that time: it may be
// what the same machine had before its Node was recreated, and a route to it may exist.
func (l *Ledger) Observe(node Node, prefixes []netip.Prefix, now time.Time) []Warning {
	prefixes = canonicalAll(prefixes)
	if len(prefixes) == 0 {
		return nil
	}
	h := l.meet(node)
	before := h.all()
	h.Prefixes, h.Observed, h.Abandoned = prefixes, true, nil
	l.setReleased(h, time.Time{})
	for _, p := range prefixes {
		if !slices.Contains(before, p) {
			l.claim(h, p, "")
		}
		if own := l.likelyOwn(p); own != nil && h.Pools[p] == "" {
			h.Pools[p], l.counted = own.Name, nil
		}
	}
	l.retire(h,
		slices.DeleteFunc(before, func(p netip.Prefix) bool { return slices.Contains(prefixes, p) }), now)
	return l.warnings(h)
}

// RetiredSuffix ends the UID under which the ledger keeps the reservation of a Node that was
// observed with other podCIDRs. No Node's UID ends with it.
const RetiredSuffix = "/retired"

// retire moves prefixes of a holding to a separate one in quarantine. That one keeps the
// Node's name and provider ID, which identify a route to them as this cluster's.
func (l *Ledger) retire(h *Holding, prefixes []netip.Prefix, now time.Time) {
	if len(prefixes) == 0 {
		return
	}
	owner := h.Node
	owner.UID += RetiredSuffix
	retired := l.meet(owner)
	l.setReleased(retired, quarantineStart(now))
	for _, p := range prefixes {
		if !slices.Contains(retired.all(), p) {
			retired.Prefixes = append(retired.Prefixes, p)
			l.claim(retired, p, h.Pools[p])
		}
		delete(h.Pools, p)
		l.drop(h, p)
	}
}

// Release records that the Node with this UID is deleted. All its prefixes enter quarantine:
// they stay held until Free, or until the same machine returns. Releasing again keeps the
// first time. It reports false if the UID holds nothing.
func (l *Ledger) Release(uid string, now time.Time) (Holding, bool) {
	h, ok := l.holdings[uid]
	if !ok {
		return Holding{}, false
	}
	if !h.gone() {
		l.setReleased(h, quarantineStart(now))
	}
	return h.clone(), true
}

// Revive ends the quarantine of a Node that turned out to exist: it has its reservation again.
func (l *Ledger) Revive(uid string) {
	if h, ok := l.holdings[uid]; ok {
		l.setReleased(h, time.Time{})
	}
}

// Shared reports whether an existing Node was observed with an overlapping prefix.
func (l *Ledger) Shared(p netip.Prefix) bool {
	return slices.ContainsFunc(l.overlaps(nil, p), func(o overlap) bool {
		return o.holder.Observed && !o.holder.gone() && slices.Contains(o.holder.Prefixes, o.prefix)
	})
}

// Quarantined returns the holdings of deleted Nodes, the earliest released first.
func (l *Ledger) Quarantined() []Holding {
	return l.list((*Holding).gone, func(a, b *Holding) int {
		if c := a.Released.Compare(b.Released); c != 0 {
			return c
		}
		return compareNodes(a, b)
	})
}

// Free drops all prefixes of the Node with this UID, in quarantine or not, and returns them,
// sorted. Claims of other Nodes on them stay. It returns nil for an unknown UID.
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
