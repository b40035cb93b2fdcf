package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// WarningKind is a problem with a podCIDR that a Node already has.
type WarningKind int

const (
	// OutsidePools is a podCIDR that overlaps no pool.
	OutsidePools WarningKind = iota + 1
	// WrongSize is a podCIDR that overlaps a pool without being one of its node prefixes.
	WrongSize
	// Excluded is a node prefix of a pool that overlaps an exclusion.
	Excluded
	// Duplicate is a podCIDR that overlaps one that another Node had first.
	Duplicate
	// MissingFamily is a Node with podCIDRs, but without any of an address family of the pools: it
	// was created before that family was configured, or another component set only one.
	MissingFamily
	// DuplicateRecord is a stored prefix that overlaps one stored for another Node.
	DuplicateRecord
)

// A Warning is a problem for an operator. Nothing that overlaps its prefix is handed out.
type Warning struct {
	Kind   WarningKind
	Node   Node
	Prefix netip.Prefix // for MissingFamily the first prefix of the Node
	// Against is the prefix in conflict: the pool for WrongSize, the exclusion for Excluded,
	// the other Node's prefix for Duplicate and DuplicateRecord. For MissingFamily it is the
	// first pool of the missing family, the zero Prefix if that pool has no range.
	Against netip.Prefix
	// Holder is the Node that had it first, for Duplicate and DuplicateRecord.
	Holder Node
}

// String returns a message with the Node, the prefix and the remedy.
func (w Warning) String() string {
	has := fmt.Sprintf("Node %s has the podCIDR %s", w.Node.Name, w.Prefix)
	switch w.Kind {
	case OutsidePools:
		return has + ", which lies in no pool: add a pool that covers it, or recreate the Node"
	case WrongSize:
		return fmt.Sprintf("%s, which is no node prefix of the pool %s: set the node mask that it was made with, or recreate the Node", has, w.Against)
	case Excluded:
		return fmt.Sprintf("%s, which overlaps the excluded %s: recreate the Node, or correct the exclusion", has, w.Against)
	case Duplicate:
		return fmt.Sprintf("%s, but Node %s had %s before: recreate one of them", has, w.Holder.Name,
			w.Against)
	case MissingFamily:
		return fmt.Sprintf("%s, but none of the address family %s of the pools, and podCIDRs can't be added later: delete this Node and let it join again",
			has, familyName(w.Prefix.Addr().Is4()))
	case DuplicateRecord:
		return fmt.Sprintf("the stored ledger has %s for Node %s, but %s for Node %s too: recreate one of them, or correct the record that is wrong",
			w.Prefix, w.Node.Name, w.Against, w.Holder.Name)
	default:
		return fmt.Sprintf("%s: unknown warning %d", has, w.Kind)
	}
}

func compareWarnings(a, b Warning) int {
	return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Node.Name, b.Node.Name), cmp.Compare(a.Node.UID, b.Node.UID))
}

func (l *Ledger) warnings(h *Holding) []Warning {
	found := l.duplicates(h, Duplicate)
	for _, p := range h.Prefixes {
		if w, wrong := l.misplaced(h, p); wrong {
			w.Node = h.Node
			found = append(found, w)
		}
	}
	for _, family := range l.families {
		of := func(p netip.Prefix) bool { return p.Addr().Is6() == family[0].ipv6() }
		if !slices.ContainsFunc(h.Prefixes, of) {
			found = append(found, Warning{
				Kind: MissingFamily, Node: h.Node, Prefix: h.Prefixes[0], Against: family[0].Prefix,
			})
		}
	}
	slices.SortFunc(found, compareWarnings)
	return found
}

// duplicates returns warnings for prefixes that an existing Node had, or reserved, earlier.
func (l *Ledger) duplicates(h *Holding, kind WarningKind) []Warning {
	if h.gone() {
		return nil
	}
	var found []Warning
	for _, p := range h.Prefixes {
		mine := l.arrival(h, p)
		for _, r := range l.overlaps(h, p) {
			if !r.holder.gone() && r.arrival < mine {
				found = append(found, Warning{
					Kind: kind, Node: h.Node, Prefix: p, Against: r.prefix, Holder: r.holder.Node,
				})
				break
			}
		}
	}
	slices.SortFunc(found, compareWarnings)
	return found
}

// misplaced reports whether the pools would never hand out a prefix, and why.
func (l *Ledger) misplaced(h *Holding, p netip.Prefix) (Warning, bool) {
	if l.poolOf(h, p) == nil {
		for _, s := range l.pools {
			if s.Prefix.Overlaps(p) {
				return Warning{Kind: WrongSize, Prefix: p, Against: s.Prefix}, true
			}
		}
		return Warning{Kind: OutsidePools, Prefix: p}, true
	}
	if e, is := firstOverlap(l.exclusions, p); is {
		return Warning{Kind: Excluded, Prefix: p, Against: e}, true
	}
	return Warning{}, false
}
