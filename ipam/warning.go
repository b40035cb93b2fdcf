package ipam

import (
	"cmp"
	"fmt"
	"net/netip"
)

// WarningKind says what is wrong with a podCIDR that a Node already has.
type WarningKind int

const (
	// OutsidePools is a podCIDR that overlaps no pool.
	OutsidePools WarningKind = iota + 1
	// WrongSize is a podCIDR that overlaps a pool without being one of its node prefixes.
	WrongSize
	// Excluded is a node prefix of a pool that overlaps an exclusion.
	Excluded
	// Duplicate is a podCIDR that overlaps one which another Node had first.
	Duplicate
	// MissingFamily is a Node that has podCIDRs, but none of an address family that the pools
	// have: it came before the second family, or others gave it only one.
	MissingFamily
)

// A Warning is something that Observe found on a Node and that a person should look at. It
// never keeps the Ledger from going on: nothing that overlaps the prefix is handed out.
type Warning struct {
	Kind   WarningKind
	Node   Node
	Prefix netip.Prefix // for MissingFamily the first that the Node has
	// Against is what the prefix collides with: the pool for WrongSize, the exclusion for
	// Excluded, the other Node's prefix for Duplicate. For MissingFamily it is the first pool of
	// the family that the Node lacks.
	Against netip.Prefix
	// Holder is the Node that had it first, for Duplicate.
	Holder Node
}

// String names the Node, the prefix and the remedy.
func (w Warning) String() string {
	switch w.Kind {
	case OutsidePools:
		return fmt.Sprintf("Node %s has the podCIDR %s, which lies in no pool: add a pool that covers it, or recreate the Node", w.Node.Name, w.Prefix)
	case WrongSize:
		return fmt.Sprintf("Node %s has the podCIDR %s, which is no node prefix of the pool %s: set the node mask that it was made with, or recreate the Node", w.Node.Name, w.Prefix, w.Against)
	case Excluded:
		return fmt.Sprintf("Node %s has the podCIDR %s, which overlaps the excluded %s: recreate the Node, or correct the exclusion", w.Node.Name, w.Prefix, w.Against)
	case Duplicate:
		return fmt.Sprintf("Node %s has the podCIDR %s, but Node %s had %s before: recreate one of them", w.Node.Name, w.Prefix, w.Holder.Name, w.Against)
	case MissingFamily:
		return fmt.Sprintf("Node %s has the podCIDR %s, but none of the address family of the pool %s, and podCIDRs can't be added later: delete this Node and let it join again", w.Node.Name, w.Prefix, w.Against)
	default:
		return fmt.Sprintf("Node %s has the podCIDR %s: unknown warning %d", w.Node.Name, w.Prefix, w.Kind)
	}
}

// compareWarnings orders by prefix, then kind.
func compareWarnings(a, b Warning) int {
	return cmp.Or(a.Prefix.Compare(b.Prefix), cmp.Compare(a.Kind, b.Kind))
}
