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

// health keeps observations of nodes for a limited time. A node that refuses an address loses it
// and no longer reports it; without a record it would be the first choice again immediately.
type health struct {
	// silences maps ports that are or were unresponsive to the end of the time in which they count
	// as recently unresponsive; unresponsive are those that are it now.
	silences     map[addresses.Endpoint]time.Time
	unresponsive map[addresses.Endpoint]bool
	refusals     map[outcome]refusal
	// unknownSince maps the nodes whose Ready condition is Unknown to the start of that state. Other
	// nodes may still reach them, and if the API server is cut off from all nodes, each node that
	// is given up burdens the remaining nodes with more addresses.
	unknownSince map[string]time.Time
}

func newHealth() *health {
	return &health{
		silences: make(map[addresses.Endpoint]time.Time), unresponsive: make(map[addresses.Endpoint]bool),
		refusals: make(map[outcome]refusal), unknownSince: make(map[string]time.Time),
	}
}

// outcome identifies an attempt to route an address to a node.
type outcome struct {
	address netip.Addr
	node    string
}

type refusal struct {
	reason addresses.ProblemReason
	until  time.Time
}

func (h *health) learn(f *fleet) {
	clear(h.unresponsive)
	for _, e := range addresses.Silent(f.reports(), f.watching()) {
		h.unresponsive[e] = true
		h.silences[e] = f.now.Add(silentFor)
	}
	maps.DeleteFunc(h.silences, func(e addresses.Endpoint, until time.Time) bool {
		_, there := f.member(e.Node)
		return !there || !f.now.Before(until)
	})
	maps.DeleteFunc(h.refusals, func(one outcome, r refusal) bool {
		_, there := f.member(one.node)
		return !there || !f.now.Before(r.until)
	})
	for _, m := range f.members {
		for _, p := range m.report.Refused {
			h.refusals[outcome{p.Address, m.name}] = refusal{reason: p.Reason, until: f.now.Add(refusedFor)}
		}
		for _, held := range m.report.Held {
			// A node defends an address that an external host claims too: the host must not drive
			// it from node to node. Holding it does not prove that the provider routes it there.
			if one := (outcome{held.Address, m.name}); h.refusals[one].reason != notRouted {
				delete(h.refusals, one)
			}
		}
	}
	h.exempt(f)
}

// exempt records since when nodes are Unknown, and exempts nodes, which then keep their addresses.
//
// A node is exempt for unknownFor if other nodes watch it: they detect a failure before the
// kubelet's status shows it. While at least half of the nodes are Unknown, all of them are exempt
// if there are agents, whose reports count instead.
func (h *health) exempt(f *fleet) {
	watched, agents, since := false, false, make(map[string]time.Time)
	for _, m := range f.members {
		watched, agents = watched || m.ready && m.reports, agents || m.reports
		if m.unknown {
			since[m.name] = f.now
		}
	}
	most := agents && len(since) > 1 && 2*len(since) >= len(f.members)
	for name := range since {
		// After a common failure all periods restart: the nodes do not recover all at once.
		if at, known := h.unknownSince[name]; known && !most {
			since[name] = at
		}
	}
	h.unknownSince = since
	for i := range f.members {
		m := &f.members[i]
		recent := watched && f.now.Before(since[m.name].Add(unknownFor))
		if m.unknown && m.ineligible == whyNotReady && (most || recent) {
			m.ineligible, m.exempt = "", true
		}
	}
}

// observe records the results of routing addresses to nodes. Only an address's holder is tried.
func (h *health) observe(outcomes map[outcome]bool, now time.Time) {
	for one, refused := range outcomes {
		if refused {
			h.refusals[one] = refusal{notRouted, now.Add(notRoutedFor)}
		} else if h.unrouted(one.node, one.address) {
			delete(h.refusals, one)
		}
	}
}

// unrouted reports whether a provider refused to route an address to a node. The cause may be
// temporary: the node is the last choice, but better than a holder that can't serve the address.
func (h *health) unrouted(node string, address netip.Addr) bool {
	return h.refusals[outcome{address, node}].reason == notRouted
}

// silent reports whether a port of a node is unresponsive, now or recently.
func (h *health) silent(node string, port int) (now, recently bool) {
	e := addresses.Endpoint{Node: node, Port: port}
	_, recently = h.silences[e]
	return h.unresponsive[e], recently
}

// refused reports whether a node should not get an address because of a refusal. NoRouter does not
// count if all nodes announce the address: it does no harm, and the next session needs it.
func (h *health) refused(node string, address netip.Addr, mover string) bool {
	r, is := h.refusals[outcome{address, node}]
	switch {
	case !is, mover == MoverBGP && r.reason == addresses.NoRouter:
		return false
	case r.reason != addresses.InUse && r.reason != notRouted:
		return true
	}
	agreeing := 0
	for one, other := range h.refusals {
		if one.address == address && other.reason == r.reason {
			agreeing++
		}
	}
	return agreeing < believed
}

// next returns when the first observation takes effect or expires, or the zero time.
func (h *health) next(now time.Time) (first time.Time) {
	at := func(at time.Time) {
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	for _, until := range h.silences {
		at(until)
	}
	for _, r := range h.refusals {
		at(r.until)
	}
	for _, since := range h.unknownSince {
		if end := since.Add(unknownFor); end.After(now) {
			at(end)
		}
	}
	return first
}
