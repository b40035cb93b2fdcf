package controller

import (
	"maps"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// silentFor is how long a node is the last choice after it responds again: it may fail again.
	silentFor  = time.Minute
	refusedFor = 5 * time.Minute
	// notRoutedFor is how long a node is the last choice after a provider refused to route an
	// address to it: an address that all nodes are refused for must not move around forever.
	notRoutedFor = time.Hour
	// believed is the number of nodes that must report an address as used by an external host, or
	// that a provider must refuse, before the address is no longer moved: every node would fail.
	believed = 3
	// notRouted means that a provider refused to route an address to a node.
	notRouted addresses.ProblemReason = "NotRouted"
	// unknownFor is how long the Ready condition of a node may be Unknown before that alone makes
	// the node ineligible. If the API server is cut off from all nodes, all of them become Unknown
	// within this time: each kubelet reports every 10 s.
	unknownFor = 20 * time.Second
)

// health keeps observations of nodes by name, each for a limited time. A node that refuses an
// address loses it and no longer reports it; without a record it would be the first choice again
// immediately.
type health map[string]*nodeHealth

type nodeHealth struct {
	// silent are the unresponsive ports. silentAt maps those that are or were it recently to the
	// last time.
	silent   []int
	silentAt map[int]time.Time
	refusals map[netip.Addr]refusal
	// unknownSince is the time since when the Ready condition is Unknown, or zero. Other nodes may
	// still reach the node, and if the API server is cut off from all nodes, each node that is given
	// up burdens the remaining nodes with more addresses.
	unknownSince time.Time
}

type refusal struct {
	reason addresses.ProblemReason
	until  time.Time
}

// outcome identifies an attempt to route an address to a node.
type outcome struct {
	address netip.Addr
	node    string
}

func (h health) learn(f *fleet) {
	maps.DeleteFunc(h, func(name string, _ *nodeHealth) bool {
		_, there := f.member(name)
		return !there
	})
	for _, m := range f.members {
		if h[m.name] == nil {
			h[m.name] = &nodeHealth{
				silentAt: make(map[int]time.Time), refusals: make(map[netip.Addr]refusal),
			}
		}
		h[m.name].learn(m.report, f.now)
	}
	for _, e := range addresses.Silent(f.reports(), f.watching()) {
		if n := h[e.Node]; n != nil {
			n.silent, n.silentAt[e.Port] = append(n.silent, e.Port), f.now
		}
	}
	h.exempt(f)
}

// learn drops what has expired and adds what the node reports itself.
func (n *nodeHealth) learn(r addresses.Report, now time.Time) {
	n.silent = nil
	maps.DeleteFunc(n.silentAt, func(_ int, last time.Time) bool { return now.Sub(last) >= silentFor })
	maps.DeleteFunc(n.refusals, func(_ netip.Addr, r refusal) bool { return !now.Before(r.until) })
	for _, p := range r.Refused {
		n.refusals[p.Address] = refusal{p.Reason, now.Add(refusedFor)}
	}
	for _, held := range r.Held {
		// A node defends an address that an external host claims too: the host must not drive it from
		// node to node. Holding it does not prove that the provider routes it there.
		if !n.unrouted(held.Address) {
			delete(n.refusals, held.Address)
		}
	}
}

// exempt records since when nodes are Unknown, and exempts nodes, which then keep their addresses.
//
// A node is exempt for unknownFor if other nodes watch it: they detect a failure before the
// kubelet's status shows it. While at least half of the nodes are Unknown, all of them are exempt
// if there are agents, whose reports count instead.
func (h health) exempt(f *fleet) {
	watched, agents, unknown := false, false, 0
	for _, m := range f.members {
		watched, agents = watched || m.ready && m.reports, agents || m.reports
		if m.unknown {
			unknown++
		}
	}
	most := agents && unknown > 1 && 2*unknown >= len(f.members)
	for i := range f.members {
		m := &f.members[i]
		n := h[m.name]
		switch {
		case !m.unknown:
			n.unknownSince = time.Time{}
		case most || n.unknownSince.IsZero():
			// After a common failure all periods restart: the nodes do not recover all at once.
			n.unknownSince = f.now
		}
		recent := watched && f.now.Before(n.unknownSince.Add(unknownFor))
		if m.unknown && m.ineligible == whyNotReady && (most || recent) {
			m.ineligible, m.exempt = "", true
		}
	}
}

// observe records the results of routing addresses to nodes; true if refused. Only an address's
// holder is tried.
func (h health) observe(outcomes map[outcome]bool, now time.Time) {
	for one, refused := range outcomes {
		switch n := h[one.node]; {
		case n == nil: // deleted
		case refused:
			n.refusals[one.address] = refusal{notRouted, now.Add(notRoutedFor)}
		case n.unrouted(one.address):
			delete(n.refusals, one.address)
		}
	}
}

// unrouted reports whether a provider refused to route an address to the node. The cause may be
// temporary: the node is the last choice, but better than a holder that can't serve the address.
func (n *nodeHealth) unrouted(address netip.Addr) bool {
	return n.refusals[address].reason == notRouted
}

// refused reports whether a node should not get an address because of a refusal. NoRouter does not
// count if all nodes announce the address: it does no harm, and the next session needs it.
func (h health) refused(node string, address netip.Addr, mover addresses.Mover) bool {
	r, is := h[node].refusals[address]
	switch {
	case !is, mover == addresses.BGP && r.reason == addresses.NoRouter:
		return false
	case r.reason != addresses.InUse && r.reason != notRouted:
		return true
	}
	agreeing := 0
	for _, other := range h {
		if other.refusals[address].reason == r.reason {
			agreeing++
		}
	}
	return agreeing < believed
}

// next returns when the first observation takes effect or expires, or the zero time.
func (h health) next(now time.Time) (first time.Time) {
	at := func(at time.Time) {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	for _, n := range h {
		for _, last := range n.silentAt {
			at(last.Add(silentFor))
		}
		for _, r := range n.refusals {
			at(r.until)
		}
		if end := n.unknownSince.Add(unknownFor); end.After(now) {
			at(end)
		}
	}
	return first
}
