package controller

import (
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// silentFor is how long a node is the last choice after it responds again: it may fail again.
	silentFor  = time.Minute
	refusedFor = 5 * time.Minute
	// refusedLongest limits how long refusals by a provider are extended.
	refusedLongest = time.Hour
	// disputedFor is how long to wait for reports against the reporters of an unresponsive node,
	// see [addresses.Silent]. All nodes check kube-proxy and agents every 300 ms, so these reports
	// are due after that time plus the time to send them.
	disputedFor = 500 * time.Millisecond
	// believed is the number of nodes that must report an address as used by an external host, or
	// that a provider must refuse, before the address is no longer moved: every node would fail.
	believed = 3
	// notRouted means that a provider refused to route an address to a node.
	notRouted addresses.ProblemReason = "NotRouted"
	// unheardFor is how long the Ready condition of a node may be Unknown before that alone makes
	// the node ineligible. If the API server is cut off from all nodes, all of them become Unknown
	// within this time: each kubelet reports every 10 s.
	unheardFor = 20 * time.Second
)

// health keeps observations of nodes for a limited time. A node that refuses an address loses it
// and no longer reports it; without a record it would be the first choice again immediately.
type health struct {
	silences map[addresses.Endpoint]silence
	refusals map[outcome]refusal
	// unheard maps the nodes whose Ready condition is Unknown to the start of that state. Other
	// nodes may still reach them, and if the API server is cut off from all nodes, each node that
	// is given up burdens the remaining nodes with more addresses.
	unheard map[string]time.Time
}

func newHealth() *health {
	return &health{refusals: make(map[outcome]refusal), unheard: make(map[string]time.Time)}
}

// silence is the state of an unresponsive port of a node.
type silence struct {
	from  time.Time // start of being believed; zero if the port responds
	until time.Time // expiry; zero if it was never believed
	now   bool      // believed, and the port is still unresponsive
}

type refusal struct {
	reason addresses.ProblemReason
	until  time.Time
	first  time.Time // first refusal by a provider, if any
}

func (h *health) learn(f *fleet) {
	h.learnSilences(*f)
	for one, r := range h.refusals {
		if _, there := f.member(one.node); !there || !f.now.Before(r.until) {
			delete(h.refusals, one)
		}
	}
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
	h.spare(f)
}

func (h *health) learnSilences(f fleet) {
	agreed, left := addresses.Silent(f.reports(), f.watching())
	before := h.silences
	h.silences = make(map[addresses.Endpoint]silence)
	for e, s := range before {
		if _, there := f.member(e.Node); there && f.now.Before(s.until) {
			h.silences[e] = silence{until: s.until}
		}
	}
	lasts := func(e addresses.Endpoint, from time.Time) {
		s := h.silences[e]
		if s.from = before[e].from; s.from.IsZero() || s.from.After(from) {
			s.from = from
		}
		if s.now = !f.now.Before(s.from); s.now {
			s.until = f.now.Add(silentFor)
		}
		h.silences[e] = s
	}
	for _, e := range agreed {
		lasts(e, f.now)
	}
	for _, e := range left {
		lasts(e, f.now.Add(disputedFor))
	}
}

// spare records since when nodes are Unknown, and exempts nodes, which then keep their addresses.
//
// A node is exempt for unheardFor if other nodes watch it: they detect a failure before the
// kubelet's status shows it. While at least half of the nodes are Unknown, all of them are exempt
// if there are agents, whose reports count instead.
func (h *health) spare(f *fleet) {
	watched, agents, since := false, false, make(map[string]time.Time)
	for _, m := range f.members {
		watched, agents = watched || m.ready && m.reports, agents || m.reports
		if m.unheard {
			since[m.name] = f.now
		}
	}
	most := agents && len(since) > 1 && 2*len(since) >= len(f.members)
	for name := range since {
		// After a common failure all periods restart: the nodes do not recover all at once.
		if at, known := h.unheard[name]; known && !most {
			since[name] = at
		}
	}
	h.unheard = since
	for i := range f.members {
		m := &f.members[i]
		if m.unheard && m.unfit == whyNotReady && (most || watched && f.now.Before(since[m.name].Add(unheardFor))) {
			m.unfit, m.spared = "", true
		}
	}
}

// observe records the results of routing addresses to nodes. Only an address's holder is tried. While
// it is refused, refusals of other nodes don't expire: the address must not move around forever.
func (h *health) observe(outcomes map[outcome]bool, now time.Time) {
	for one, refused := range outcomes {
		if !refused {
			if h.unrouted(one.node, one.address) {
				delete(h.refusals, one)
			}
			continue
		}
		h.refusals[one] = refusal{reason: notRouted, first: now}
		for other, r := range h.refusals {
			if other.address == one.address && r.reason == notRouted {
				r.until = r.first.Add(refusedLongest)
				if soon := now.Add(refusedFor); soon.Before(r.until) {
					r.until = soon
				}
				h.refusals[other] = r
			}
		}
	}
}

// unrouted reports whether a provider refused to route an address to a node. The cause may be
// temporary: the node is the last choice, but better than a holder that can't serve the address.
func (h *health) unrouted(node string, address netip.Addr) bool {
	return h.refusals[outcome{address, node}].reason == notRouted
}

// silent reports whether a port of a node is believed to be unresponsive, now or recently.
func (h *health) silent(node string, port int) (now, was bool) {
	s := h.silences[addresses.Endpoint{Node: node, Port: port}]
	return s.now, !s.until.IsZero()
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
	for _, s := range h.silences {
		if s.from.After(now) {
			at(s.from)
		} else {
			at(s.until)
		}
	}
	for _, r := range h.refusals {
		at(r.until)
	}
	for _, since := range h.unheard {
		if end := since.Add(unheardFor); end.After(now) {
			at(end)
		}
	}
	return first
}
