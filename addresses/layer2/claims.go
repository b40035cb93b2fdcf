package layer2

import "time"

// hear takes what came in on a link.
//
//	phase     claimed by             then
//	Probing   a newer one of ours    Yielded
//	Probing   one of ours, in doubt  Yielded, unless it is an older one
//	Probing   one of ours            Holding: the former holder goes
//	Probing   a stranger             Refused
//	Holding   a newer one of ours    Yielded
//	Holding   an older one of ours   announce again
//	Holding   anybody, in doubt      Yielded
//	Holding   a stranger, soon after an address that nobody of ours held was taken: Refused
//	Holding   anybody                announce again; if it goes on, say who it is
//	Leaving   anybody                gone
//	Yielded   an older one of ours   Holding, unless there is a newer one
//
// "Newer" and "older" are said by epochs of the ledger that frames of the same cluster carry.
func (p *protocol) hear(now time.Time, link string, m Message) {
	if p.own(m.From) || m.Claimant != (MAC{}) && p.own(m.Claimant) {
		return // it came back
	}
	if h, mine := p.holdings[m.Claim]; mine && h.linked && h.link.Name == link && h.AnswerOn == "" {
		p.claim(now, h, m)
	}
	if h, mine := p.holdings[m.Ask]; mine && h.linked && h.link.Name == link {
		p.asked(now, h, m)
	}
}

func (p *protocol) own(m MAC) bool {
	for _, l := range p.links {
		if macOf(l.MAC) == m {
			return true
		}
	}
	return false
}

// tagged reports whether a message comes from a machine of the cluster by its own word.
func (p *protocol) tagged(m Message) bool { return p.cluster != 0 && m.Tag.Cluster == p.cluster }

// trusted reports whether a claim comes from a machine of the cluster.
func (p *protocol) trusted(m Message) bool {
	return p.tagged(m) || p.friend != nil && p.friend(m.Claimant[:])
}

// claim is what somebody else's claim leads to.
func (p *protocol) claim(now time.Time, h *holding, m Message) {
	newer := p.tagged(m) && m.Tag.Epoch > h.Epoch
	older := p.tagged(m) && m.Tag.Epoch < h.Epoch
	switch h.phase {
	case Probing:
		p.claimWhileProbing(now, h, m, newer, older)
	case Holding:
		switch {
		case newer, p.doubt && !older:
			p.yield(now, h, m)
		case now.Before(h.youngUntil) && !p.trusted(m):
			p.refuse(now, h, m)
		default:
			p.defend(now, h)
			if !older {
				p.suspectOf(now, h, m)
			}
		}
	case Leaving:
		if !older {
			p.drop(h, "Stopped answering for an address that another machine holds now")
		}
	case Yielded:
		if older && h.newer == 0 {
			p.take(now, h)
			return
		}
		p.claimed(now, h, m)
		if newer {
			h.newer = max(h.newer, m.Tag.Epoch)
		}
	case Refused:
		p.claimed(now, h, m)
	}
}

func (p *protocol) claimWhileProbing(now time.Time, h *holding, m Message, newer, older bool) {
	if !p.ready(h) {
		return
	}
	switch trusted := p.trusted(m); {
	case newer, trusted && p.doubt && !older:
		p.yield(now, h, m)
	case trusted:
		p.take(now, h)
	default:
		p.refuse(now, h, m)
	}
}

// defend announces the address again, at most once a second.
func (p *protocol) defend(now time.Time, h *holding) {
	at := h.announcedAt.Add(defenceWait)
	if at.Before(now) {
		at = now
	}
	if h.announceAt.IsZero() || h.announceAt.After(at) {
		h.announceAt = at
		h.announced = min(h.announced, announcementsAll-1)
		p.sooner = true
	}
	p.announceIfDue(now, h)
}

// suspectOf remembers who claims an address that is held here. Whoever goes on although the address
// was announced again is said to have it.
func (p *protocol) suspectOf(now time.Time, h *holding, m Message) {
	switch since := now.Sub(h.suspectAt); {
	case h.by == m.Claimant:
		h.byAt = now
	case h.suspect == m.Claimant && since >= confirmWait && since <= rivalWait:
		p.totals.Conflicts++
		p.claimed(now, h, m)
		p.tell(h, "Another machine goes on claiming an address that is held here")
	case h.suspect != m.Claimant || since > rivalWait:
		h.suspect, h.suspectAt = m.Claimant, now
		if sooner := now.Add(settleWait); sooner.Before(h.checkAt) {
			h.checkAt, p.sooner = sooner, true
		}
	}
}

// asked answers, where there is something to answer for.
func (p *protocol) asked(now time.Time, h *holding, m Message) {
	switch {
	case h.phase == Holding || h.phase == Leaving:
		p.send(h, Frame{Kind: Answer, To: m.ReplyTo, Asker: m.Asker})
		if probe := !m.Asker.IsValid(); probe && h.phase == Holding && p.tagged(m) && m.Tag.Epoch < h.Epoch {
			// It held the address where this machine was not heard: who was there with it knows it
			// behind that one still, and is not told by the answer.
			p.defend(now, h)
		}
	case h.phase == Probing && !m.Asker.IsValid() && p.ready(h):
		// Somebody else asks whether it is free. Whoever takes it answers the next probe.
		m.Claimant = m.From
		if h.restarts < probingRestarts && !p.trusted(m) {
			h.restarts++
			p.probeFromNow(now.Add(firstProbeWait), h)
		}
	}
}
