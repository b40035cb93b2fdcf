package layer2

import (
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// Times of the protocol. RFC 5227 makes a host wait for seconds before it uses an address, as its
// link may be new and its switch may not forward yet. Here the link is in use and each wait is an
// outage: hosts answer a probe within a millisecond, and later checks find a missed holder.
const (
	firstProbes      = 3 // if an external host could have the address
	firstProbeWait   = 200 * time.Millisecond
	takeoverProbes   = 1
	takeoverWait     = 50 * time.Millisecond
	refusedWait      = 30 * time.Second // between probes for an external host
	doubtWait        = 500 * time.Millisecond
	settleWait       = time.Second // from taking an address to the first check
	checkWait        = 30 * time.Second
	youngWait        = 5 * time.Second  // to release it to an external host after probing
	leaveWait        = 15 * time.Second // longer than an unresponsive agent keeps an address
	silenceWait      = 2 * time.Second  // until a yielded address is taken again
	defenceWait      = time.Second
	confirmWait      = doubtWait // minimum time between two claims of a conflict
	rivalWait        = 2*checkWait + 5*time.Second
	announcementsAll = 4
)

// announceAfter returns the time of the n-th announcement after taking an address. The first may be
// lost, or be too early for a switch whose link changed.
func announceAfter(n int) time.Duration {
	return []time.Duration{0, 200 * time.Millisecond, time.Second, 2 * time.Second}[n]
}

type wireKey struct {
	link   string
	index  int
	family addresses.Family
}

func keyOf(link Link, address netip.Addr) wireKey {
	return wireKey{link.Name, link.Index, addresses.FamilyOf(address)}
}

// protocol is the state of all addresses of a node. It sends and logs nothing: its methods append
// frames to out and log messages to notes, which [Responder] takes.
type protocol struct {
	friend   func(net.HardwareAddr) bool
	cluster  uint64
	doubt    bool
	links    []Link
	replyOn  string             // Desired.ReplyOn
	wires    map[wireKey]string // error of each wire; empty if it is open
	holdings map[netip.Addr]*holding
	order    []netip.Addr // keys of holdings

	out     []Frame
	notes   []note
	changed bool // phases or claimants changed
	sooner  bool // next may be earlier than before
}

type holding struct {
	addresses.Assigned
	phase  Phase
	link   Link
	linked bool

	stepAt      time.Time // time of the next step; zero if there is none
	probesLeft  int
	announceAt  time.Time // zero if all announcements are sent
	announced   int       // number of announcements in this series
	announcedAt time.Time
	takenAt     time.Time
	youngUntil  time.Time // until then an external host gets the address back
	checkAt     time.Time // next probe for other holders

	by       MAC // see State
	byFriend bool
	byAt     time.Time // last observed
	newer    uint64    // higher epoch of another member that holds it, or 0

	suspect   MAC // first claimant of a suspected conflict
	suspectAt time.Time

	sent map[Kind]int
}

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

// set applies the desired state.
func (p *protocol) set(now time.Time, d Desired) {
	began, ended := d.Doubt && !p.doubt, p.doubt && !d.Doubt
	p.cluster, p.doubt, p.links = clusterHash(d.Cluster), d.Doubt, d.Links
	if p.replyOn != d.ReplyOn {
		p.replyOn, p.changed = d.ReplyOn, true
		clear(p.holdings)
	}
	wanted := make(map[netip.Addr]addresses.Assigned, len(d.Hold))
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
		if h.phase == Holding && (began || ended) && h.checkAt.After(now) { // one that is due stays so
			p.scheduleCheck(now, h)
		}
	}
	p.sooner = true
}

// want adds an address or updates its epoch.
func (p *protocol) want(now time.Time, w addresses.Assigned, doubtEnded bool) {
	h, known := p.holdings[w.Address]
	if !known {
		p.holdings[w.Address] = &holding{Assigned: w, phase: OffSegment, sent: make(map[Kind]int)}
		p.changed = true
		return // relink begins probing
	}
	other := h.Epoch != w.Epoch
	h.Epoch, h.Held, h.Resumed = w.Epoch, w.Held, h.Resumed && w.Resumed
	if h.newer <= h.Epoch {
		h.newer = 0
	}
	switch {
	case h.phase == Leaving:
		p.take(now, h) // still answered for, and no other holder was observed
	case other && h.phase == Holding:
		p.announceFromNow(now, h)
	case other && h.phase != OffSegment, doubtEnded && h.phase == Yielded && h.newer == 0,
		doubtEnded && h.phase == Probing && h.Resumed:
		h.by = MAC{}
		p.begin(now, h)
	}
	p.changed = p.changed || other
}

// release ends holding an address. If another node should hold it, this node answers until the next
// holder is observed, so that there is no gap. It sends one probe: a holder with a higher epoch
// then announces the address.
func (p *protocol) release(now time.Time, h *holding, elsewhere bool) {
	switch {
	case h.phase == Leaving && elsewhere:
	case h.phase == Holding && elsewhere && p.replyOn == "":
		h.phase, h.stepAt, h.by = Leaving, now.Add(leaveWait), MAC{}
		// A suspended machine may have missed the announcement of the next holder.
		h.announceAt, h.checkAt = time.Time{}, now
		p.log(h, "Leaving an address to another machine")
	default:
		p.drop(h, "Stopped answering for an address")
	}
}

func (p *protocol) drop(h *holding, why string) {
	if h.phase == Holding || h.phase == Leaving {
		p.log(h, why)
	}
	delete(p.holdings, h.Address)
	p.changed = true
}

// relink updates the link of an address, which may have appeared, disappeared or changed.
func (p *protocol) relink(now time.Time, h *holding) {
	link, found := linkFor(h.Address, p.links)
	if p.replyOn != "" {
		link, found = linkNamed(p.replyOn, p.links)
	}
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
		p.drop(h, "Stopped replying for an address because its interface is gone")
	case found:
		p.begin(now, h)
	case h.phase != OffSegment:
		h.phase, h.by, h.Resumed = OffSegment, MAC{}, false
		p.log(h, "No interface is on the segment of an address")
	}
}

// opened handles an open wire. Frames may have been missed before, so its addresses are probed for.
func (p *protocol) opened(now time.Time, key wireKey) {
	p.wires[key] = ""
	for _, h := range p.needed()[key] {
		if h.phase != Leaving {
			p.begin(now, h)
		}
	}
}

// failed handles a wire that is unavailable for now. No address is held on it.
func (p *protocol) failed(now time.Time, key wireKey, why string) {
	before, open := p.wires[key]
	p.changed = p.changed || before != why
	p.wires[key] = why
	for _, h := range p.needed()[key] {
		switch {
		case h.phase == Leaving:
			p.drop(h, "Stopped replying for an address because its interface fails")
		case open && before == "":
			h.Resumed = false
			p.begin(now, h)
		}
	}
}

func (p *protocol) ready(h *holding) bool {
	why, open := p.wires[keyOf(h.link, h.Address)]
	return h.linked && open && why == ""
}

// needed returns the required wires and their holdings.
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

// next returns when tick is due, or the zero time.
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

func (p *protocol) states() (states []State) {
	for _, address := range p.order {
		h, there := p.holdings[address]
		if !there {
			continue
		}
		s := State{
			Address: address, Epoch: h.Epoch, Phase: h.phase, By: h.by, Friend: h.byFriend,
			Young: h.phase == Holding && !h.youngUntil.IsZero(), Sent: maps.Clone(h.sent),
		}
		if h.linked {
			s.Link = h.link.Name
			s.Trouble = p.wires[keyOf(h.link, address)]
		}
		if h.phase == Probing && h.by != (MAC{}) {
			s.Phase = Refused // it probes again
		}
		states = append(states, s)
	}
	return states
}
