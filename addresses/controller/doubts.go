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
	until  time.Time
	now    bool // it was said just now
}

// doubts remember what was said against nodes for some time. A node that refuses an address loses
// it, and then nobody says anything of it any more; without memory it would be the first choice again
// at once. And one that answers again after a silence may fall silent again, so it is the last choice.
type doubts map[doubt]since

const (
	silentFor  = time.Minute
	refusedFor = 5 * time.Minute
	// believed is how many nodes must say that a stranger answers for an address until it stays
	// where it is: it would be the same everywhere.
	believed = 3
)

// learn adds what nodes say now, and drops what is long ago.
func (d doubts) learn(f fleet) {
	for one, said := range d {
		if _, there := f.member(one.node); !there || !f.now.Before(said.until) {
			delete(d, one)
			continue
		}
		said.now = false
		d[one] = said
	}
	for _, e := range addresses.Silent(f.reports(), f.watching()) {
		d[doubt{node: e.Node, port: e.Port}] = since{until: f.now.Add(silentFor), now: true}
	}
	for _, m := range f.members {
		for _, p := range m.report.Refused {
			d[doubt{node: m.name, address: p.Address}] = since{reason: p.Reason, until: f.now.Add(refusedFor)}
		}
		for _, h := range m.report.Held {
			// What a stranger claims too is defended: else it could drive an address around.
			delete(d, doubt{node: m.name, address: h.Address})
		}
	}
}

// silent reports whether a port of a node does not answer.
func (d doubts) silent(node string, port int) bool { return d[doubt{node: node, port: port}].now }

// wasSilent reports whether it did not answer a while ago.
func (d doubts) wasSilent(node string, port int) bool {
	_, was := d[doubt{node: node, port: port}]
	return was
}

// refused reports whether a node should be spared an address. That no router hears it is no reason
// where all nodes announce it: it does no harm, and the next session needs it.
func (d doubts) refused(node string, address netip.Addr, mover string) bool {
	said, is := d[doubt{node: node, address: address}]
	switch {
	case !is, mover == MoverBGP && said.reason == addresses.NoRouter:
		return false
	case said.reason != addresses.InUse:
		return true
	}
	agreeing := 0
	for one, other := range d {
		if one.address == address && other.reason == addresses.InUse {
			agreeing++
		}
	}
	return agreeing < believed
}

// next is when the first doubt ends; zero: there is none.
func (d doubts) next() (first time.Time) {
	for _, said := range d {
		if first.IsZero() || said.until.Before(first) {
			first = said.until
		}
	}
	return first
}
