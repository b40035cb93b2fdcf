package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

type step struct {
	kind string
	who  string
	then func() *situation
}

func (s step) String() string { return s.kind + " " + s.who }

// steps returns all possible next steps.
func (sc *scope) steps(s *situation) (all []step) {
	add := func(kind string, who any, then func(*situation)) {
		all = append(all, step{kind, fmt.Sprint(who), func() *situation {
			c := s.clone()
			c.busy = 0
			then(c)
			c.settle(sc)
			return c
		}})
	}
	for i, p := range s.processes {
		if s.busy > 0 && s.busy != i+1 {
			continue
		}
		if p != nil && p.loading {
			sc.loads(s, i, p, add)
		} else if p != nil {
			sc.runs(s, i, p, add)
		}
	}
	sc.ends(s, add)
	if s.busy > 0 {
		return all
	}
	for i := range s.processes {
		// Processes are interchangeable, so the first one to start is number 0.
		if s.started < len(sc.starts) && (i == 0 || s.started > 0) {
			add("start", i, func(c *situation) {
				if old := c.processes[i]; old != nil {
					c.orphans = append(c.orphans, old.waits...)
				}
				c.processes[i] = &process{setting: sc.starts[c.started], loading: true}
				c.started++
			})
		}
	}
	for i, r := range s.orphans {
		add("late write", r.write.Object, func(c *situation) {
			c.orphans = slices.Delete(c.orphans, i, i+1)
			c.arrive(sc, r)
		})
	}
	for i, m := range s.patches {
		add("PATCH arrives", s.nodes[m.node].UID, func(c *situation) {
			c.patches = slices.Delete(c.patches, i, i+1)
			c.nodes[m.node].podCIDRs = m.prefixes
		})
	}
	sc.happens(s, add)
	return all
}

type adder = func(kind string, who any, then func(*situation))

// happens adds what users and other controllers do to Nodes.
func (sc *scope) happens(s *situation, add adder) {
	for i, n := range s.nodes {
		named := func(o apiNode) bool { return o.live() && o.Name == n.Name }
		if !n.created && !slices.ContainsFunc(s.nodes, named) && (i == 0 || s.nodes[i-1].created) {
			add("Node is created", n.UID, func(c *situation) { c.nodes[i].created = true })
		}
		if s.byHand && n.live() && n.podCIDRs == nil {
			add("Node is set by hand", n.UID, func(c *situation) {
				c.byHand, c.nodes[i].byHand = false, true
				c.nodes[i].podCIDRs = prefixes(strings.Fields(sc.hand)...)
			})
		}
	}
}

// ends adds the deletion of Nodes. It is possible while a process is busy, too: after it, the
// process could not have taken its last step any more.
func (sc *scope) ends(s *situation, add adder) {
	for i, n := range s.nodes {
		if n.live() && s.deletes > 0 {
			add("Node is deleted", n.UID, func(c *situation) { c.nodes[i].gone = true; c.deletes-- })
		}
	}
}

// act applies a step that changes only the memory of a process.
func (c *situation) act(before *situation, i int, m *memory, do func(*memory)) {
	p := c.processes[i]
	if after := p.did(m, do); after.text != p.text {
		c.processes[i], c.busy = after, i+1
	} else {
		c.busy = before.busy
	}
}

// loads adds the loading of a process: all at once; or one object at a time, with an old list of
// Nodes.
func (sc *scope) loads(s *situation, i int, p *process, add adder) {
	if p.read == 0 {
		add("load", i, func(c *situation) {
			reading := p
			for reading.read < exploreObjects {
				reading = reading.saw(c)
			}
			c.load(i, reading, nil)
		})
		if s.faults > 0 {
			add("load bit by bit", i, func(c *situation) { c.processes[i] = p.saw(c); c.faults-- })
		}
		return
	}
	if p.read < exploreObjects {
		add("read", fmt.Sprint(i, " ", p.read), func(c *situation) { c.processes[i] = p.saw(c) })
		return
	}
	add("loaded", i, func(c *situation) { c.load(i, p, nil) })
	for j, n := range s.nodes {
		if s.faults > 0 && n.podCIDRs != nil {
			add("loaded with an old list", fmt.Sprint(i, " ", n.UID), func(c *situation) {
				c.load(i, p, func(node int) bool { return node == j })
				c.faults--
			})
			add("loaded with the oldest list", i, func(c *situation) {
				c.load(i, p, func(int) bool { return true })
				c.faults--
			})
		}
	}
}

// load completes the loading of a process. In an old list of Nodes podCIDRs are missing.
func (c *situation) load(i int, p *process, old func(node int) bool) {
	var nodes []LiveNode
	for j, n := range c.nodes {
		live := LiveNode{Node: n.Node, Created: exploreNow.AddDate(0, 0, j-len(c.nodes))}
		if old == nil || !old(j) {
			live.PodCIDRs = n.podCIDRs
		}
		if n.live() {
			nodes = append(nodes, live)
		}
	}
	c.processes[i], c.wrong = p.loaded(nodes)
}

// runs adds the steps of a process that has loaded.
func (sc *scope) runs(s *situation, i int, p *process, add adder) {
	m := p.recall()
	act := func(c *situation, do func(*memory)) { c.act(s, i, p.recall(), do) }
	for j, n := range s.nodes {
		h, held := m.ledger.Lookup(n.UID)
		who := fmt.Sprint(i, " ", n.UID)
		switch {
		case !n.created || held && !h.Released.IsZero():
		case n.gone && held, held && sc.flaw == freedAlive:
			add("release", who, func(c *situation) {
				act(c, func(m *memory) {
					m.ledger.Release(n.UID, exploreNow)
					m.files.Update(n.Name, unhurried)
				})
			})
		}
		if !n.live() || held && (!h.Released.IsZero() || h.Observed) {
			continue
		}
		if n.podCIDRs != nil {
			add("observe", who, func(c *situation) {
				act(c, func(m *memory) {
					m.ledger.Observe(n.Node, n.podCIDRs, exploreNow)
					m.files.Update(n.Name, unhurried)
				})
			})
		}
		sc.serves(s, i, j, n, p, held, add)
	}
	for _, h := range m.ledger.Quarantined() {
		add("free", fmt.Sprint(i, " ", h.Node.UID), func(c *situation) {
			act(c, func(m *memory) {
				m.ledger.Free(h.Node.UID)
				delete(m.sent, h.Node.UID)
				m.files.Update(h.Node.Name, unhurried)
			})
		})
	}
	sc.writes(s, i, p, m, add)
}

// serves adds that a process reserves prefixes for a Node, from each slot at which its search may
// begin, or sends the reservation.
func (sc *scope) serves(s *situation, i, j int, n apiNode, p *process, held bool, add adder) {
	searches := sc.searches
	if held || len(searches) == 0 {
		searches = [][]int{{0}}
	}
	for _, slots := range searches {
		add("serve", fmt.Sprint(i, " ", n.UID, " ", slots), func(c *situation) {
			m := p.recall()
			before, _ := m.ledger.Lookup(n.UID)
			reserved, err := m.assign(n.Node, slots)
			if err != nil {
				c.busy = s.busy
				return
			}
			send := sc.recorded(m, n.UID) &&
				(slices.Equal(before.Prefixes, reserved) || sc.flaw == unrecorded)
			c.act(s, i, m, func(m *memory) {
				// The same call succeeded above.
				_, _ = m.assign(n.Node, slots)
				if send {
					m.sent[n.UID] = true
				} else {
					m.files.Update(n.Name, atOnce)
				}
			})
			if send {
				c.send(patch{j, reserved})
				c.busy = 0
			}
		})
	}
}

func (m *memory) assign(n Node, slots []int) ([]netip.Prefix, error) {
	m.searchFrom(slots)
	return m.ledger.Assign(n, Offer{})
}

func (c *situation) send(m patch) {
	if !slices.ContainsFunc(c.patches, func(o patch) bool {
		return o.node == m.node && slices.Equal(o.prefixes, m.prefixes)
	}) {
		c.patches = append(c.patches, m)
	}
}

// writes adds the next write of a process: it is applied at once and the process gets the result;
// or it is in flight while the process continues, and then is applied, or counts as failed, with
// all others in flight, and is applied later or never.
func (sc *scope) writes(s *situation, i int, p *process, m *memory, add adder) {
	for _, r := range p.waits {
		add("write arrives", fmt.Sprint(i, " ", r.write.Object), func(c *situation) { c.answer(sc, i, p, r) })
	}
	if len(p.waits) > 0 {
		add("write fails", i, func(c *situation) {
			c.orphans = append(c.orphans, p.waits...)
			c.processes[i] = p.reloading()
		})
	}
	w, sending, ok := p.next(m)
	if !ok {
		return
	}
	r := request{w, p.known[w.Object], fmt.Sprint(w.Object, entriesText(w.Entries))}
	add("write", fmt.Sprint(i, " ", w.Object), func(c *situation) { c.answer(sc, i, sending, r) })
	if s.faults > 0 {
		add("slow write", fmt.Sprint(i, " ", w.Object), func(c *situation) {
			waiting := *sending
			waiting.waits = append(slices.Clone(p.waits), r)
			c.processes[i] = &waiting
			c.faults--
		})
	}
}
