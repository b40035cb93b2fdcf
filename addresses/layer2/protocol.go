package layer2

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// The times of the protocol. RFC 5227 has a machine wait for seconds before it uses an address,
// because it may have been plugged in just now and its switch may not forward yet. Here the link
// is in use, and each moment of silence is an outage of whoever the address serves: machines answer
// a probe within a millisecond, and one that was not heard is found by the checks that follow.
const (
	firstProbes      = 3 // for an address that a stranger could have
	firstProbeWait   = 200 * time.Millisecond
	takeoverProbes   = 1
	takeoverWait     = 100 * time.Millisecond
	refusedWait      = 30 * time.Second // between looks at an address that a stranger has
	doubtWait        = 500 * time.Millisecond
	settleWait       = time.Second // from taking an address to the first check
	checkWait        = 30 * time.Second
	youngWait        = 5 * time.Second  // after those probes a stranger gets the address back
	leaveWait        = 15 * time.Second // longer than an address waits for a silent agent
	silenceWait      = 2 * time.Second  // until an address that was yielded is taken again
	defenceWait      = time.Second
	confirmWait      = doubtWait // from a claim to the one that shows it was no accident
	rivalWait        = 2*checkWait + 5*time.Second
	probingRestarts  = 3
	announcementsAll = 4
)

// announceAfter is when the announcements come, from taking the address: the first may be lost, or
// come before a switch knows that the link has moved.
func announceAfter(n int) time.Duration {
	return []time.Duration{0, 200 * time.Millisecond, time.Second, 2 * time.Second}[n]
}

// wireKey names a wire.
type wireKey struct {
	link   string
	index  int
	family addresses.Family
}

func keyOf(link Link, address netip.Addr) wireKey {
	return wireKey{link.Name, link.Index, addresses.FamilyOf(address)}
}

// protocol is what a machine does about all of its addresses. Methods take the time and change it;
// what is to be sent, and to be told, gathers in out and notes until drain. It has no clock, and
// sends nothing itself.
type protocol struct {
	friend   func(net.HardwareAddr) bool
	cluster  uint64
	doubt    bool
	links    []Link
	wires    map[wireKey]string // open ones: why one failed; empty: it did not
	holdings map[netip.Addr]*holding
	order    []netip.Addr // of holdings

	totals  Totals
	out     []Frame
	notes   []note
	changed bool // phases or claimants
	sooner  bool // next may be earlier than it was
}

// holding is one address.
type holding struct {
	Want
	phase  Phase
	link   Link
	linked bool

	stepAt      time.Time // when the phase goes on; zero: not by itself
	probesLeft  int
	restarts    int
	announceAt  time.Time // zero: all was said
	announced   int       // how many of those that follow each other
	announcedAt time.Time
	takenAt     time.Time
	youngUntil  time.Time // it is given back to a stranger
	checkAt     time.Time // the next look for others

	by       MAC // see State
	byFriend bool
	byAt     time.Time // when it was heard last
	newer    uint64    // the epoch above ours that a machine of the cluster holds it by; 0: none

	suspect   MAC // who claimed it once
	suspectAt time.Time

	answers, announcements, probes uint64
}

// note is something to be logged.
type note struct {
	text    string
	address netip.Addr
	link    string
	by      MAC
	epoch   uint64
}

func newProtocol(friend func(net.HardwareAddr) bool) *protocol {
	return &protocol{
		friend: friend, wires: make(map[wireKey]string), holdings: make(map[netip.Addr]*holding),
	}
}

// set goes over to what is desired.
func (p *protocol) set(now time.Time, d Desired) {
	began, ended := d.Doubt && !p.doubt, p.doubt && !d.Doubt
	p.cluster, p.doubt = clusterHash(d.Cluster), d.Doubt
	p.links = p.links[:0:0]
	for _, l := range d.Links {
		p.links = append(p.links, l.clone())
	}
	wanted := make(map[netip.Addr]Want, len(d.Hold))
	for _, w := range d.Hold {
		wanted[w.Address] = w
	}
	elsewhere := make(map[netip.Addr]bool, len(d.Elsewhere))
	for _, address := range d.Elsewhere {
		elsewhere[address] = true
	}
	for _, address := range p.order {
		_, stays := wanted[address]
		if h, there := p.holdings[address]; there && !stays {
			p.release(now, h, elsewhere[address])
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(wanted), netip.Addr.Compare) {
		p.want(now, wanted[address], ended)
	}
	p.order = slices.SortedFunc(maps.Keys(p.holdings), netip.Addr.Compare)
	for _, address := range p.order {
		h := p.holdings[address]
		p.relink(now, h)
		if h.phase == Holding && (began || ended) {
			p.scheduleCheck(now, h)
		}
	}
	p.sooner = true
}

// want brings an address to where it is to be held by an epoch.
func (p *protocol) want(now time.Time, w Want, doubtEnded bool) {
	h, known := p.holdings[w.Address]
	if !known || h.AnswerOn != w.AnswerOn {
		p.holdings[w.Address] = &holding{Want: w, phase: OffSegment}
		p.changed = true
		return // relink begins
	}
	other := h.Epoch != w.Epoch
	h.Epoch, h.Held = w.Epoch, w.Held
	if h.newer <= h.Epoch {
		h.newer = 0
	}
	switch {
	case h.phase == Leaving:
		p.take(now, h) // it is still answered for, and nobody else was heard
	case other && h.phase == Holding:
		p.announceFromNow(now, h)
	case other && h.phase != OffSegment, doubtEnded && h.phase == Yielded && h.newer == 0:
		h.by = MAC{}
		p.begin(now, h)
	}
	p.changed = p.changed || other
}

// release ends what is not wanted any more. Where another machine is to hold it, it is answered
// for until that one is heard, so that nobody is without an answer in between. It is asked for once:
// who holds it by a higher epoch announces it.
func (p *protocol) release(now time.Time, h *holding, elsewhere bool) {
	switch {
	case h.phase == Leaving && elsewhere:
	case h.phase == Holding && elsewhere && h.AnswerOn == "":
		h.phase, h.stepAt, h.by = Leaving, now.Add(leaveWait), MAC{}
		// A machine that was frozen has not heard who announced it meanwhile.
		h.announceAt, h.checkAt = time.Time{}, now
		p.tell(h, "Leaving an address to another machine")
	default:
		p.drop(h, "Stopped answering for an address")
	}
}

func (p *protocol) drop(h *holding, why string) {
	if h.phase == Holding || h.phase == Leaving {
		p.tell(h, why)
	}
	delete(p.holdings, h.Address)
	p.changed = true
}

// relink finds the link of an address, which may have come, gone, or become another.
func (p *protocol) relink(now time.Time, h *holding) {
	link, found := linkOf(h.Want, p.links)
	before := h.link
	stays := found && h.linked && link.same(before)
	h.link, h.linked = link, found
	switch {
	case stays && macOf(link.MAC) != macOf(before.MAC):
		if h.phase == Holding {
			p.announceFromNow(now, h)
		}
	case stays:
	case h.phase == Leaving:
		p.drop(h, "Stopped answering for an address whose interface is gone")
	case found:
		p.begin(now, h)
	case h.phase != OffSegment:
		h.phase, h.by = OffSegment, MAC{}
		p.tell(h, "No interface is on the segment of an address")
	}
}

// opened says that a wire is there, for the first time or again: what was said meanwhile is not
// known.
func (p *protocol) opened(now time.Time, key wireKey) {
	p.wires[key] = ""
	for h := range p.on(key) {
		if h.phase != Leaving {
			p.begin(now, h)
		}
	}
}

// failed says why there is no wire, for now. Nothing is held on it.
func (p *protocol) failed(now time.Time, key wireKey, why string) {
	before, open := p.wires[key]
	p.changed = p.changed || before != why
	p.wires[key] = why
	for h := range p.on(key) {
		switch {
		case h.phase == Leaving:
			p.drop(h, "Stopped answering for an address whose interface fails")
		case open && before == "":
			p.begin(now, h)
		}
	}
}

// ready reports whether an address can be spoken of on its link.
func (p *protocol) ready(h *holding) bool {
	why, open := p.wires[keyOf(h.link, h.Address)]
	return h.linked && open && why == ""
}

// closed says that a wire is not there any more, and not needed.
func (p *protocol) closed(key wireKey) { delete(p.wires, key) }

// on are the holdings of a wire, in order.
func (p *protocol) on(key wireKey) func(yield func(*holding) bool) {
	return func(yield func(*holding) bool) {
		for _, address := range p.order {
			h, there := p.holdings[address]
			if there && h.linked && keyOf(h.link, address) == key && !yield(h) {
				return
			}
		}
	}
}

// needed are the wires that holdings need, with their links and addresses.
func (p *protocol) needed() map[wireKey][]*holding {
	needed := make(map[wireKey][]*holding)
	for _, address := range p.order {
		if h, there := p.holdings[address]; there && h.linked {
			key := keyOf(h.link, address)
			needed[key] = append(needed[key], h)
		}
	}
	return needed
}

// next is when tick has something to do; zero: never, unless something happens.
func (p *protocol) next() (next time.Time) {
	for _, h := range p.holdings {
		for _, at := range []time.Time{h.stepAt, h.announceAt, h.checkAt, h.youngUntil} {
			if !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
	}
	return next
}

// states are those of all addresses, in order.
func (p *protocol) states() (states []State) {
	for _, address := range p.order {
		h, there := p.holdings[address]
		if !there {
			continue
		}
		s := State{
			Address: address, Epoch: h.Epoch, Phase: h.phase, By: h.by, Friend: h.byFriend,
			Young:   h.phase == Holding && !h.youngUntil.IsZero(),
			Answers: h.answers, Announcements: h.announcements, Probes: h.probes,
		}
		if h.linked {
			s.Link = h.link.Name
			s.Trouble = p.wires[keyOf(h.link, address)]
		}
		if h.phase == Probing && h.by != (MAC{}) {
			s.Phase = Refused // it looks again
		}
		states = append(states, s)
	}
	return states
}
