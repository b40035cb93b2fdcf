package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// A Node is an owner of prefixes. Two Nodes with one name and different UIDs are two owners:
// the UID decides, the name is for people and the key of the stored ledger.
type Node struct {
	Name string
	UID  string
	// ProviderID names the machine, "" while it is unknown. One that comes back under the same
	// name gets its prefixes again.
	ProviderID string
}

// A Holding is what one Node has.
type Holding struct {
	Node     Node
	Prefixes []netip.Prefix // in the order of the families, or as observed
	// Pools names the pool that handed out each prefix, also of Abandoned. Those that none did
	// are not in it.
	Pools map[netip.Prefix]string
	// Observed tells that these are the Node's podCIDRs. Otherwise they are only reserved.
	Observed bool
	// Foreign tells that some of the Prefixes come from no pool: others set them.
	Foreign bool
	// Abandoned are reservations that were replaced, because others turned up with them or the
	// pools no longer hand them out. They stay held: the request that writes them to the Node
	// may still arrive.
	Abandoned []netip.Prefix
	// Released is when the Node was seen to be gone. Not zero: this is in quarantine.
	Released time.Time
}

// holding is what one UID has.
type holding struct {
	node      Node
	prefixes  []netip.Prefix
	observed  bool
	abandoned []netip.Prefix
	released  time.Time
	// origins are the names of pools for the prefixes that no configured range carves: those
	// cut from servers' own prefixes, and those of pools that were removed.
	origins map[netip.Prefix]string
}

// gone reports whether the Node is, and this is in quarantine.
func (h *holding) gone() bool { return !h.released.IsZero() }

// setReleased begins a holding's quarantine, or ends it with the zero time.
func (l *Ledger) setReleased(h *holding, at time.Time) {
	if !h.released.Equal(at) {
		h.released, l.counted = at, nil
	}
}

// all returns everything that the holding keeps from being handed out.
func (h *holding) all() []netip.Prefix { return slices.Concat(h.prefixes, h.abandoned) }

// setOrigin notes which pool a prefix came from that no range carves.
func (l *Ledger) setOrigin(h *holding, p netip.Prefix, pool string) {
	l.counted = nil
	if h.origins == nil {
		h.origins = map[netip.Prefix]string{}
	}
	h.origins[p] = pool
}

// describe is the holding as callers see it.
func (l *Ledger) describe(h *holding) Holding {
	d := Holding{
		Node: h.node, Prefixes: slices.Clone(h.prefixes), Observed: h.observed,
		Abandoned: slices.Clone(h.abandoned), Released: h.released,
		Pools: map[netip.Prefix]string{},
	}
	maps.Copy(d.Pools, h.origins)
	for _, p := range h.all() {
		if s := l.carver(p); s != nil {
			d.Pools[p] = s.Name
		}
	}
	for _, p := range h.prefixes {
		d.Foreign = d.Foreign || d.Pools[p] == ""
	}
	return d
}

// meet returns the holding of a Node, new if it has none, with what is known of the Node now.
func (l *Ledger) meet(node Node) *holding {
	h, ok := l.holdings[node.UID]
	if !ok {
		h = &holding{}
	}
	l.name(h, node)
	return h
}

// name puts a holding under a Node. A provider ID that is known is not forgotten.
func (l *Ledger) name(h *holding, node Node) {
	if node.ProviderID == "" && node.UID == h.node.UID {
		node.ProviderID = h.node.ProviderID
	}
	if l.holdings[node.UID] != h || node.Name != h.node.Name {
		l.strike(h)
		l.holdings[node.UID] = h
		l.names[node.Name] = append(l.names[node.Name], h)
	}
	h.node = node
}

// strike takes a holding out of both lists.
func (l *Ledger) strike(h *holding) {
	if l.holdings[h.node.UID] != h {
		return
	}
	delete(l.holdings, h.node.UID)
	left := slices.DeleteFunc(l.names[h.node.Name], func(other *holding) bool { return other == h })
	if len(left) == 0 {
		delete(l.names, h.node.Name)
	} else {
		l.names[h.node.Name] = left
	}
}
