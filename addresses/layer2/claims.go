package layer2

import "time"

// receive handles a received message.
//
//	phase     claimant                             next phase
//	Probing   newer member                         Yielded
//	Probing   member, not older, ledger in doubt   Yielded
//	Probing   member                               Holding: the former holder releases it
//	Probing   external host                        Refused
//	Holding   newer member                         Yielded
//	Holding   any but older, ledger in doubt       Yielded
//	Holding   external host, address is young      Refused
//	Holding   any                                  Holding: announce, report a repeated claim
//	Leaving   any but older                        removed
//	Yielded   older member, no newer observed      Holding
//
// The first matching row applies. The epoch in frames of the cluster makes a member newer or older.
func (p *protocol) receive(now time.Time, link string, m Message) {
	if p.own(m.From) || m.Claimant != (MAC{}) && p.own(m.Claimant) {
		return // reflected
	}
	if h, mine := p.holdings[m.Claim]; mine && h.linked && h.link.Name == link && p.replyOn == "" {
		p.sooner = true
		p.claim(now, h, m)
	}
	if h, mine := p.holdings[m.Target]; mine && h.linked && h.link.Name == link {
		p.handleRequest(now, h, m)
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

func (p *protocol) tagged(m Message) bool { return p.cluster != 0 && m.Tag.Cluster == p.cluster }

// trusted reports whether a claim comes from a cluster member.
func (p *protocol) trusted(m Message) bool {
	return p.tagged(m) || p.friend != nil && p.friend(m.Claimant[:])
}

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
	}
	p.sooner = true
	p.announceIfDue(now, h)
}

// suspectOf records a claim of a held address; a repeated claim is a conflict.
func (p *protocol) suspectOf(now time.Time, h *holding, m Message) {
	switch since := now.Sub(h.suspectAt); {
	case h.by == m.Claimant:
		h.byAt = now
	case h.suspect == m.Claimant && since >= confirmWait && since <= rivalWait:
		p.claimed(now, h, m)
		p.log(h, "Another machine goes on claiming an address that is held here")
	case h.suspect != m.Claimant || since > rivalWait:
		h.suspect, h.suspectAt = m.Claimant, now
		if sooner := now.Add(settleWait); sooner.Before(h.checkAt) {
			h.checkAt = sooner
		}
	}
}

func (p *protocol) handleRequest(now time.Time, h *holding, m Message) {
	if h.phase != Holding && h.phase != Leaving {
		return
	}
	p.send(h, Frame{Kind: Reply, To: m.ReplyTo, Requester: m.Requester})
	if probe := !m.Requester.IsValid(); probe && h.phase == Holding && p.tagged(m) &&
		m.Tag.Epoch < h.Epoch {
		// The sender held the address where this node was unreachable. Its neighbors still have its
		// entry in their cache, and the answer does not reach them.
		p.defend(now, h)
	}
}
