package layer2

import (
	"hash/fnv"
	"time"
)

// begin starts to probe for other holders. Without an open wire it waits for it.
func (p *protocol) begin(now time.Time, h *holding) {
	h.announceAt, h.checkAt, h.stepAt = time.Time{}, time.Time{}, time.Time{}
	h.phase = Probing
	p.changed = true
	if !p.ready(h) {
		return
	}
	if p.replyOn != "" {
		h.phase = Holding
		p.log(h, "Answering for an address that a router may send here")
		return
	}
	if h.Resumed && !p.doubt {
		p.take(now, h)
		h.youngUntil = time.Time{} // this node had it, even if the ledger does not record that yet
		h.checkAt = now
		return
	}
	h.stepAt, h.probesLeft = now, takeoverProbes
	if h.anybodys() {
		h.probesLeft = firstProbes
	}
}

// anybodys reports whether an external host may have the address: no cluster member has held it, or
// another claimant was observed.
func (h *holding) anybodys() bool { return !h.Held || h.by != (MAC{}) }

func (p *protocol) take(now time.Time, h *holding) {
	h.youngUntil = time.Time{}
	if h.phase == Probing && h.anybodys() {
		h.youngUntil = now.Add(youngWait)
	}
	h.phase, h.by, h.byFriend, h.newer, h.stepAt = Holding, MAC{}, false, 0, time.Time{}
	h.suspect, h.takenAt, h.Resumed = MAC{}, now, false
	p.announceFromNow(now, h)
	p.scheduleCheck(now, h)
	p.log(h, "Holding an address")
}

func (p *protocol) announceFromNow(now time.Time, h *holding) {
	if p.replyOn != "" {
		return
	}
	h.takenAt, h.announced, h.announceAt = now, 0, now
	p.announceIfDue(now, h)
}

// scheduleCheck sets the time of the next check, spread over the addresses.
func (p *protocol) scheduleCheck(now time.Time, h *holding) {
	address := h.Address.AsSlice()
	switch {
	case p.replyOn != "":
		return
	case p.doubt:
		h.checkAt = now.Add(spread(address, doubtWait))
	case now.Sub(h.takenAt) < settleWait:
		h.checkAt = now.Add(settleWait + spread(address, settleWait/2))
	default:
		h.checkAt = now.Add(checkWait - spread(address, checkWait/6))
	}
}

func (p *protocol) refuse(now time.Time, h *holding, m Message) {
	h.phase, h.stepAt = Refused, now.Add(refusedWait)
	h.announceAt, h.checkAt = time.Time{}, time.Time{}
	p.claimed(now, h, m)
	p.log(h, "Refused an address for which a machine outside the cluster replies")
}

// yield leaves the address to a claimant that may be its rightful holder.
func (p *protocol) yield(now time.Time, h *holding, m Message) {
	held := h.phase == Holding
	h.phase, h.announceAt, h.checkAt = Yielded, time.Time{}, now.Add(doubtWait)
	if p.tagged(m) && m.Tag.Epoch > h.Epoch {
		h.newer = m.Tag.Epoch
	}
	p.claimed(now, h, m)
	if held {
		p.log(h, "Gave up an address that another machine claims")
	} else {
		p.log(h, "Left an address to another machine that claims it")
	}
}

func (p *protocol) claimed(now time.Time, h *holding, m Message) {
	p.changed = p.changed || h.by != m.Claimant
	h.by, h.byFriend, h.byAt, h.Resumed = m.Claimant, p.trusted(m), now, false
	if h.phase == Yielded {
		// If several nodes yielded to each other, one of them takes the address first.
		h.stepAt = now.Add(silenceWait + spread(h.link.MAC, silenceWait/4))
	}
}

func (p *protocol) tick(now time.Time) {
	for _, address := range p.order {
		h, there := p.holdings[address]
		if !there {
			continue
		}
		if !h.stepAt.IsZero() && !h.stepAt.After(now) {
			p.step(now, h)
		}
		if !h.checkAt.IsZero() && !h.checkAt.After(now) {
			p.check(now, h)
		}
		p.announceIfDue(now, h)
		if !h.youngUntil.IsZero() && !h.youngUntil.After(now) {
			h.youngUntil, p.changed = time.Time{}, true
		}
	}
}

func (p *protocol) step(now time.Time, h *holding) {
	switch h.phase {
	case Probing:
		wait := takeoverWait
		if h.anybodys() {
			wait = firstProbeWait
		}
		if h.probesLeft == 0 {
			p.take(now, h)
			return
		}
		h.probesLeft--
		h.stepAt = now.Add(wait)
		p.send(h, Frame{Kind: Probe})
	case Refused:
		p.begin(now, h)
	case Yielded:
		p.take(now, h)
	case Leaving:
		p.drop(h, "Stopped replying for an address although its next holder was not observed")
	}
}

// check probes for other holders: rightful ones if the ledger is in doubt, else wrong ones.
func (p *protocol) check(now time.Time, h *holding) {
	p.send(h, Frame{Kind: Probe})
	switch h.phase {
	case Yielded:
		h.checkAt = now.Add(doubtWait)
		return
	case Leaving: // once
		h.checkAt = time.Time{}
		return
	}
	p.scheduleCheck(now, h)
	if p.doubt {
		h.checkAt = now.Add(doubtWait)
	}
	if h.by != (MAC{}) && now.Sub(h.byAt) > rivalWait {
		h.by, h.byFriend = MAC{}, false
		p.changed = true
	}
}

func (p *protocol) announceIfDue(now time.Time, h *holding) {
	if h.phase != Holding || h.announceAt.IsZero() || h.announceAt.After(now) {
		return
	}
	p.send(h, Frame{Kind: Announce})
	h.announcedAt = now
	h.announced++
	h.announceAt = time.Time{}
	if h.announced < announcementsAll {
		h.announceAt = h.takenAt.Add(announceAfter(h.announced))
	}
}

// send queues a frame.
func (p *protocol) send(h *holding, f Frame) {
	f.key, f.From, f.Address = keyOf(h.link, h.Address), macOf(h.link.MAC), h.Address
	if p.cluster != 0 {
		f.Tag = Tag{p.cluster, h.Epoch}
	}
	h.sent[f.Kind]++
	p.out = append(p.out, f)
	if f.Kind == Announce && f.Address.Is4() {
		f.Reply = true
		p.out = append(p.out, f)
	}
}

func (p *protocol) log(h *holding, text string) {
	p.notes = append(p.notes, note{text, h.Address, h.link.Name, h.by, h.Epoch})
	p.changed = true
}

// spread returns a fraction of a duration that depends on an address.
func spread(address []byte, within time.Duration) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write(address)
	sum := h.Sum32()
	sum ^= sum >> 15
	return within * time.Duration(sum%1024) / 1024
}
