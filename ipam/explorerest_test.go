package ipam

import (
	"fmt"
	"slices"
)

// faultless are the kinds of steps of a process that runs alone.
var faultless = []string{"load", "read", "loaded", "observe", "release", "free", "serve", "write", "write arrives", "PATCH arrives"}

// alone runs the only process, without faults, until no step changes the situation.
func (sc *scope) alone(s *situation) *situation {
	s.deletes, s.faults, s.byHand, s.started = 0, 0, false, len(sc.starts)
	for range 1000 {
		before := s.digest()
		rests := true
		for _, next := range sc.steps(s) {
			if !slices.Contains(faultless, next.kind) {
				continue
			}
			c := next.then()
			if c.busy = 0; c.wrong != "" {
				return c
			}
			if c.digest() != before {
				s, rests = c, false
				break
			}
		}
		if rests {
			return s
		}
	}
	s.wrong = "a process alone doesn't come to rest"
	return s
}

// rest runs the only process to a rest, makes it read everything again, and runs it to a rest
// again: it observes writes of other processes only when it reads.
func (sc *scope) rest(s *situation) *situation {
	if s = sc.alone(s); s.wrong != "" {
		return s
	}
	s = s.clone()
	for i, p := range s.processes {
		if p != nil {
			s.processes[i] = p.reloading()
		}
	}
	return sc.alone(s)
}

// atRest returns the violation that remains when faults end and one process continues alone: each
// running one, and a new one of each setting.
func (sc *scope) atRest(s *situation) string {
	var ways []*situation
	for i := range s.processes {
		if s.processes[i] != nil {
			c := s.clone()
			c.processes[1-i] = nil
			ways = append(ways, c)
		}
	}
	for i := range sc.starts {
		c := s.clone()
		c.processes = [exploreProcesses]*process{{setting: sc.starts[i], loading: true}}
		ways = append(ways, c)
	}
	for _, c := range ways {
		c.orphans, c.patches, c.busy = nil, nil, 0
		if c = sc.rest(c); c.wrong == "" {
			c.wrong = sc.complete(c)
		}
		if c.wrong != "" {
			return "in the end: " + c.wrong
		}
	}
	return ""
}

// complete returns the violation that remains when a process has nothing left to do, and after
// that, when all Nodes are deleted.
func (sc *scope) complete(s *situation) string {
	p := s.processes[0]
	if p == nil {
		p = s.processes[1]
	}
	if p == nil {
		return "" // its configuration contradicts the stored ledger
	}
	stored, _ := ParseStored(s.stored())
	var want, without []string
	for _, n := range s.nodes {
		switch {
		case !n.live():
		case n.podCIDRs == nil:
			without = append(without, n.UID)
		default:
			want = append(want, fmt.Sprint(n.UID, n.podCIDRs))
		}
	}
	// A replaced reservation still belongs to its Node until the Node has podCIDRs, and may fill
	// pools as small as these.
	replaced := slices.ContainsFunc(stored, func(h Holding) bool { return len(h.Abandoned) > 0 })
	full := roomFor(p.recall().ledger, Offer{})
	room := full == nil || len(want)+len(without) <= sc.room && !replaced
	if len(without) > 0 && room {
		return fmt.Sprintf("%v have no podCIDRs", without)
	}
	if len(without) > 0 {
		return sc.emptied(s)
	}
	var got []string
	for _, h := range stored {
		held := p.recall().ledger.inOrder(slices.Clone(h.Prefixes))
		line := fmt.Sprint(h.Node.UID, held)
		if len(h.Abandoned) > 0 || !h.Released.IsZero() {
			line += fmt.Sprint(" abandoned ", h.Abandoned, " released ", h.Released)
		}
		got = append(got, line)
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Sprintf("stored is %v, Nodes have %v", got, want)
	}
	if len(want) == 0 {
		for _, c := range p.recall().ledger.Counts() {
			if c.Free != newGrid(c).size() {
				return fmt.Sprintf("all Nodes are gone, and not everything is free: %+v", c)
			}
		}
		return ""
	}
	return sc.emptied(s)
}

// emptied returns the violation that remains when all Nodes are deleted.
func (sc *scope) emptied(s *situation) string {
	c := s.clone()
	for i := range c.nodes {
		c.nodes[i].gone = true
	}
	if c = sc.rest(c); c.wrong != "" {
		return c.wrong
	}
	return sc.complete(c)
}

func newGrid(c Counts) grid { return grid{c.Pool, c.NodeMask} }
