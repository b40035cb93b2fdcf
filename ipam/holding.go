package ipam

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// A Node is an owner of prefixes, identified by its UID. Two Nodes with the same name and
// different UIDs are two owners. The name is for messages and the key of the stored ledger.
type Node struct {
	Name string
	UID  string
	// ProviderID identifies the machine, "" if it is not set yet.
	ProviderID string
}

// A Holding is the set of prefixes held by one Node.
type Holding struct {
	Node     Node
	Prefixes []netip.Prefix // in the order of the families, or as observed
	// Pools has the name of the pool that handed out each prefix, Abandoned ones included.
	// Prefixes set by another component are missing.
	Pools map[netip.Prefix]string
	// Observed means that Prefixes are the Node's podCIDRs; otherwise they are only reserved.
	Observed bool
	// Abandoned holds replaced reservations: another Node was observed with them, or the pools
	// no longer hand them out. They stay held because the request that writes them to the Node
	// may still arrive.
	Abandoned []netip.Prefix
	// Released is when the Node's deletion was observed and the quarantine began, or zero.
	Released time.Time
}

type holding struct {
	node      Node
	prefixes  []netip.Prefix
	observed  bool
	abandoned []netip.Prefix
	released  time.Time
	// origins has the pool names of prefixes that no configured range carves: those cut from
	// servers' own prefixes, and those of removed pools.
	origins map[netip.Prefix]string
}

// gone reports whether the Node is deleted and the holding is in quarantine.
func (h *holding) gone() bool { return !h.released.IsZero() }

// setReleased starts a holding's quarantine, or ends it with the zero time.
func (l *Ledger) setReleased(h *holding, at time.Time) {
	if !h.released.Equal(at) {
		h.released, l.counted = at, nil
	}
}

// all returns every prefix that the holding keeps from being handed out.
func (h *holding) all() []netip.Prefix { return slices.Concat(h.prefixes, h.abandoned) }

func (l *Ledger) setOrigin(h *holding, p netip.Prefix, pool string) {
	l.counted = nil
	if h.origins == nil {
		h.origins = map[netip.Prefix]string{}
	}
	h.origins[p] = pool
}

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
	return d
}

// meet returns the holding of a Node, new if there is none, with the Node's current identity.
func (l *Ledger) meet(node Node) *holding {
	h, ok := l.holdings[node.UID]
	if !ok {
		h = &holding{}
	}
	l.name(h, node)
	return h
}

// name puts a holding under a Node. An empty provider ID does not overwrite one of the same UID.
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
