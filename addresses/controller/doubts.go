package controller

import (
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// doubt is about a node: that it holds an address, or that it answers at a port.
type doubt struct {
	node    string
	address netip.Addr
	port    int
}

// since is what was said, and until when it counts.
type since struct {
	reason addresses.ProblemReason
	// until is zero for a silence that was not believed yet.
	until time.Time
	// from is when a silence that lasts is believed; zero: it does not last.
	from time.Time
	now  bool // it is believed, and lasts
	// first is when a provider refused it, if it did.
	first time.Time
}

// doubts remember what was said against nodes for some time. A node that refuses an address loses
// it, and then nobody says anything of it any more; without memory it would be the first choice again
// at once. And one that answers again after a silence may fall silent again, so it is the last choice.
type doubts map[doubt]since

const (
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
)

// learn adds what nodes say now, and drops what is long ago.
func (d doubts) learn(f fleet) {
	lasting := f.silences()
	for one, said := range d {
		_, lasts := lasting[one]
		if !lasts {
			said.from, said.now = time.Time{}, false
		}
		if !f.now.Before(said.until) {
			said.until = time.Time{}
		}
		d[one] = said
		if _, there := f.member(one.node); !there || !lasts && said.until.IsZero() {
			delete(d, one)
		}
	}
	for one, after := range lasting {
		said := d[one]
		if from := f.now.Add(after); said.from.IsZero() || said.from.After(from) {
			said.from = from
		}
		if said.now = !f.now.Before(said.from); said.now {
			said.until = f.now.Add(silentFor)
		}
		d[one] = said
	}
	for _, m := range f.members {
		for _, p := range m.report.Refused {
			d[doubt{node: m.name, address: p.Address}] = since{reason: p.Reason, until: f.now.Add(refusedFor)}
		}
		for _, h := range m.report.Held {
			// What a stranger claims too is defended: else it could drive an address around. That a
			// node answers for an address does not yet make the provider lead it there.
			if one := (doubt{node: m.name, address: h.Address}); d[one].reason != notRouted {
				delete(d, one)
			}
		}
	}
}

// hear takes in what providers made of leading addresses to nodes. Only the one that holds an address
// is tried, again and again. While that is refused, what is known of the others is not forgotten: else
// the address would go around among them for ever.
func (d doubts) hear(outcomes map[outcome]bool, now time.Time) {
	for o, refused := range outcomes {
		one := doubt{node: o.node, address: o.address}
		if refused {
			d[one] = since{reason: notRouted, first: now}
			for other, said := range d {
				if other.address == o.address && said.reason == notRouted {
					said.until = said.first.Add(refusedLongest)
					if soon := now.Add(refusedFor); soon.Before(said.until) {
						said.until = soon
					}
					d[other] = said
				}
			}
		} else if d[one].reason == notRouted {
			delete(d, one)
		}
	}
}

// unrouted reports whether a provider refused to lead an address to a node. That may pass, so it is
// the last choice, and no reason to leave it where nobody serves it.
func (d doubts) unrouted(node string, address netip.Addr) bool {
	return d[doubt{node: node, address: address}].reason == notRouted
}

// silences are the ports that are called silent, and how long that must last until it is believed.
func (f fleet) silences() map[doubt]time.Duration {
	agreed, left := addresses.Silent(f.reports(), f.watching())
	all := make(map[doubt]time.Duration, len(agreed)+len(left))
	for _, e := range agreed {
		all[doubt{node: e.Node, port: e.Port}] = 0
	}
	for _, e := range left {
		all[doubt{node: e.Node, port: e.Port}] = disputedFor
	}
	return all
}

// silent reports whether a port of a node does not answer.
func (d doubts) silent(node string, port int) bool { return d[doubt{node: node, port: port}].now }

// wasSilent reports whether it did not answer a while ago. What is not believed yet is no silence.
func (d doubts) wasSilent(node string, port int) bool {
	return !d[doubt{node: node, port: port}].until.IsZero()
}

// refused reports whether a node should be spared an address. That no router hears it is no reason
// where all nodes announce it: it does no harm, and the next session needs it.
func (d doubts) refused(node string, address netip.Addr, mover string) bool {
	said, is := d[doubt{node: node, address: address}]
	switch {
	case !is, mover == MoverBGP && said.reason == addresses.NoRouter:
		return false
	case said.reason != addresses.InUse && said.reason != notRouted:
		return true
	}
	agreeing := 0
	for one, other := range d {
		if one.address == address && other.reason == said.reason {
			agreeing++
		}
	}
	return agreeing < believed
}

// next is when the first doubt begins to count or ends; zero: none does.
func (d doubts) next(now time.Time) (first time.Time) {
	for _, said := range d {
		at := said.until
		if said.from.After(now) {
			at = said.from
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}
