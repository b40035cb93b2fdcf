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

// gone reports whether the Node is deleted and the holding is in quarantine.
func (h *Holding) gone() bool { return !h.Released.IsZero() }

// setReleased starts a holding's quarantine, or ends it with the zero time.
func (l *Ledger) setReleased(h *Holding, at time.Time) {
	if !h.Released.Equal(at) {
		h.Released, l.counted = at, nil
	}
}

// all returns every prefix that the holding keeps from being handed out.
func (h *Holding) all() []netip.Prefix { return slices.Concat(h.Prefixes, h.Abandoned) }

func (h *Holding) clone() Holding {
	c := *h
	c.Prefixes, c.Abandoned = slices.Clone(h.Prefixes), slices.Clone(h.Abandoned)
	c.Pools = maps.Clone(h.Pools)
	return c
}

// meet returns the holding of a Node, new if there is none, with the Node's current identity.
func (l *Ledger) meet(node Node) *Holding {
	h, ok := l.holdings[node.UID]
	if !ok {
		h = &Holding{Pools: map[netip.Prefix]string{}}
	}
	l.name(h, node)
	return h
}

// name puts a holding under a Node. An empty provider ID does not overwrite one of the same UID.
func (l *Ledger) name(h *Holding, node Node) {
	if node.ProviderID == "" && node.UID == h.Node.UID {
		node.ProviderID = h.Node.ProviderID
	}
	if l.holdings[node.UID] != h || node.Name != h.Node.Name {
		l.strike(h)
		l.holdings[node.UID] = h
		l.names[node.Name] = append(l.names[node.Name], h)
	}
	h.Node = node
}

func (l *Ledger) strike(h *Holding) {
	if l.holdings[h.Node.UID] != h {
		return
	}
	delete(l.holdings, h.Node.UID)
	left := slices.DeleteFunc(l.names[h.Node.Name], func(other *Holding) bool { return other == h })
	if len(left) == 0 {
		delete(l.names, h.Node.Name)
	} else {
		l.names[h.Node.Name] = left
	}
}
