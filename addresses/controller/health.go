package controller

import (
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

const (
	// silentFor is how long a node that answers again stays the last choice: it may fall silent again.
	silentFor  = time.Minute
	refusedFor = 5 * time.Minute
	// refusedLongest is when a node is tried again that a provider refused, though it goes on to
	// refuse others.
	refusedLongest = time.Hour
	// disputedFor is how long others may take to say that those who call a node silent are silent
	// themselves, where some of its watchers can't be counted on: see [addresses.Silent]. They check
	// as often, so they know it 300 ms later at most, and then have to say it.
	disputedFor = 500 * time.Millisecond
	// believed is of how many nodes it must be said that a stranger answers for an address, or that
	// a provider refuses it, until it stays where it is: it would be the same everywhere.
	believed = 3
	// notRouted: a provider refuses to lead an address to a node.
	notRouted addresses.ProblemReason = "NotRouted"
	// unheardFor is how long the API server may not hear a node's kubelet before that alone counts
	// against the node. If it hears nobody any more, all nodes become unknown within this time: each
	// kubelet tells of itself every 10 s.
	unheardFor = 20 * time.Second
)

// health remembers what was observed of nodes for some time. A node that refuses an address loses it,
// and then nothing is reported of it any more; without memory it would be the first choice again at once.
type health struct {
	silences map[addresses.Endpoint]silence
	refusals map[outcome]refusal
	// unheard are the nodes whose kubelet the API server does not hear (Ready is Unknown), since when.
	// That says less of a node than it seems to: others may hear it well, and where the API server is
	// cut off from all of them, each one that is believed to be gone leaves more to the next.
	unheard map[string]time.Time
}

func newHealth() *health {
	return &health{refusals: make(map[outcome]refusal), unheard: make(map[string]time.Time)}
}

// silence is of a port of a node.
type silence struct {
	from  time.Time // when it is believed, as it lasts; zero: it does not last
	until time.Time // when it is forgotten; zero: it was not believed yet
	now   bool      // it is believed, and lasts
}

// refusal is what spoke against an address at a node.
type refusal struct {
	reason addresses.ProblemReason
	until  time.Time
	first  time.Time // when a provider refused it, if it did
}

// learn adds what is reported now, and drops what is long ago.
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
			// What a stranger claims too is defended: else it could drive an address around. That a
			// node answers for an address does not yet make the provider lead it there.
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

// spare remembers since when nodes are not heard, and says which are spared: what they hold stays with
// them.
//
// A node is spared for a while if other nodes watch it: they say sooner than its kubelet whether it
// is gone. When half of the nodes are unheard, the API server's word counts for none of them, where
// there are agents whose word counts instead.
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
		if at, known := h.unheard[name]; known && !most { // when it hears again, not all come back at once
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

// hear takes in what providers made of leading addresses to nodes. Only the one that holds an address
// is tried, again and again. While that is refused, what is known of the others is not forgotten: else
// the address would go around among them for ever.
func (h *health) hear(outcomes map[outcome]bool, now time.Time) {
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

// unrouted reports whether a provider refused to lead an address to a node. That may pass, so it is
// the last choice, and no reason to leave it where nobody serves it.
func (h *health) unrouted(node string, address netip.Addr) bool {
	return h.refusals[outcome{address, node}].reason == notRouted
}

// silent reports whether a port of a node does not answer, and was whether it did not a while ago. What
// is not believed yet is no silence.
func (h *health) silent(node string, port int) (now, was bool) {
	s := h.silences[addresses.Endpoint{Node: node, Port: port}]
	return s.now, !s.until.IsZero()
}

// refused reports whether a node should be spared an address. That no router hears it is no reason
// where all nodes announce it: it does no harm, and the next session needs it.
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

// next is when the first of it begins to count or ends; zero: none does.
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
