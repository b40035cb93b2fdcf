package ipam

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// merge adds the prefixes that another object has of the same UID.
func (h *Holding) merge(part Holding) {
	h.Node.ProviderID = cmp.Or(h.Node.ProviderID, part.Node.ProviderID)
	if part.Released.After(h.Released) {
		h.Released = part.Released
	}
	maps.Copy(h.Pools, part.Pools)
	for _, p := range part.Prefixes {
		second := slices.ContainsFunc(h.Prefixes, func(q netip.Prefix) bool {
			return q.Addr().Is4() == p.Addr().Is4()
		})
		h.keep(p, second)
	}
	for _, p := range part.Abandoned {
		h.keep(p, true)
	}
}

func (h *Holding) keep(p netip.Prefix, abandoned bool) {
	switch {
	case slices.Contains(h.Prefixes, p) || slices.Contains(h.Abandoned, p):
	case abandoned:
		h.Abandoned = append(h.Abandoned, p)
	default:
		h.Prefixes = append(h.Prefixes, p)
	}
}

// A LiveNode is a Node as returned by the API server.
type LiveNode struct {
	Node
	PodCIDRs []netip.Prefix // empty if it has none, or none that can be parsed
	Created  time.Time
}

// Facts is the input of Rebuild.
type Facts struct {
	Pools []PoolConfig
	// Exclusions are those of the configuration, which the pools are validated against.
	Exclusions []netip.Prefix
	// Occupied holds all prefixes not to be handed out: Exclusions and those found at run time.
	Occupied []netip.Prefix
	Stored   []Holding
	// Unstored holds holdings that are missing from the stored ledger.
	Unstored []Holding
	Nodes    []LiveNode
	Now      time.Time
}

// Rebuilt is a Ledger and the results of rebuilding it.
type Rebuilt struct {
	*Ledger
	Restored []Warning     // about stored records
	Observed []Observation // of every Node, the oldest first
}

// An Observation is the result of observing a Node's podCIDRs.
type Observation struct {
	Node LiveNode
	// Before is the Node's Holding before the observation, without prefixes if it held none.
	Before   Holding
	Warnings []Warning
}

// Rebuild returns a Ledger of the stored holdings and of the Nodes' podCIDRs. It fails if the
// pools are invalid together; Removed returns the stored prefixes without a pool.
//
// If podCIDRs overlap, the older Node owns them: the other Node's were set by another
// component. A Node that is recorded as deleted is not observed: that record followed a read
// from the API server, and the list of Nodes may be older.
func Rebuild(f Facts) (Rebuilt, error) {
	l, err := NewLedger(f.Pools, f.Exclusions)
	if err != nil {
		return Rebuilt{}, err
	}
	l.SetExclusions(f.Occupied)
	r := Rebuilt{Ledger: l}
	created := map[string]time.Time{}
	for _, n := range f.Nodes {
		created[n.UID] = n.Created
	}
	born := func(h Holding) time.Time {
		if at, ok := created[h.Node.UID]; ok {
			return at
		}
		return f.Now
	}
	stored := slices.SortedStableFunc(slices.Values(f.Stored), func(a, b Holding) int {
		return born(a).Compare(born(b))
	})
	for _, h := range slices.Concat(stored, f.Unstored) {
		if h.Released.After(f.Now) { // a clock was wrong
			h.Released = f.Now
		}
		h.Prefixes = l.inOrder(slices.Clone(h.Prefixes)) // several objects may have them
		r.Restored = append(r.Restored, l.Restore(h)...)
	}
	oldestFirst := slices.SortedFunc(slices.Values(f.Nodes), func(a, b LiveNode) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID,
			b.UID))
	})
	for _, n := range oldestFirst {
		o := Observation{Node: n}
		if o.Before, _ = l.Lookup(n.UID); o.Before.Released.IsZero() {
			o.Warnings = l.Observe(n.Node, n.PodCIDRs, f.Now)
		}
		r.Observed = append(r.Observed, o)
		for _, p := range canonicalAll(n.PodCIDRs) {
			if s := l.carver(p); s != nil {
				s.took(p) // the circle continues after the youngest Node
			}
		}
	}
	return r, nil
}
