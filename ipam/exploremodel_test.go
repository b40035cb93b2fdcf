package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// storedObject is a ConfigMap.
type storedObject struct {
	version int
	entries map[string]string
	text    string
}

// apiNode is a Node in the API server.
type apiNode struct {
	Node
	created, gone bool
	podCIDRs      []netip.Prefix
	byHand        bool // another client set them
}

func (n *apiNode) live() bool { return n.created && !n.gone }

// A patch is a PATCH of a Node that is in flight.
type patch struct {
	node     int
	prefixes []netip.Prefix
}

const (
	exploreObjects   = 4 // the first shards: all pools of the scopes lie in their blocks
	exploreProcesses = 2
)

// A situation is the state of the API server and of all processes at one moment. It is immutable.
// It leaves out requests that can have no effect any more: writes of outdated versions, and PATCHes
// that the API server rejects.
type situation struct {
	objects   [exploreObjects]storedObject
	nodes     []apiNode
	patches   []patch   // in flight
	orphans   []request // writes in flight that no process waits for
	processes [exploreProcesses]*process
	started   int
	deletes   int
	faults    int
	byHand    bool
	// busy is the number, counted from 1, of a process that did something that only its own memory
	// shows. The next step is its own: it could as well have done this just before its next step.
	busy  int
	wrong string // a violation
}

func (s *situation) clone() *situation {
	c := *s
	c.nodes = slices.Clone(s.nodes)
	c.patches = slices.Clone(s.patches)
	c.orphans = slices.Clone(s.orphans)
	return &c
}

// begin is the first situation of a scope.
func (sc *scope) begin() *situation {
	s := &situation{}
	for object := range s.objects {
		empty := map[string]string{MarkKey: Mark(object)}
		s.objects[object] = storedObject{1, empty, entriesText(empty)}
	}
	for i, n := range sc.nodes {
		s.nodes = append(s.nodes, apiNode{Node: n, created: i < sc.served})
	}
	if sc.served > 0 {
		s.processes[0] = &process{setting: sc.by, loading: true}
		s = sc.alone(s)
		for i := range sc.past {
			s.nodes[i].gone = true
		}
		s = sc.alone(s)
		s.processes[0], s.started = nil, 0
	}
	for i := range s.nodes {
		s.nodes[i].created = i < len(s.nodes)-sc.late
	}
	s.deletes, s.faults, s.byHand = sc.deletes, sc.faults, sc.hand != ""
	return s
}

// answer applies a write and gives the result to the process.
func (c *situation) answer(sc *scope, i int, p *process, r request) {
	switch {
	case c.arrive(sc, r):
		c.processes[i] = p.wrote(r.write, c.objects[r.write.Object])
	case sc.flaw == oneReload:
		after := *p.did(p.recall(), func(m *memory) {
			for object := range m.files.files {
				m.files.files[object].sent = false
			}
		})
		for object, o := range c.objects {
			after.known[object] = o.version
		}
		after.waits = nil
		c.processes[i] = &after
	default:
		for _, other := range p.waits {
			if other.write.Object != r.write.Object {
				c.orphans = append(c.orphans, other)
			}
		}
		c.processes[i] = p.reloading()
	}
}

// arrive applies a write, and reports whether the object had the expected version.
func (c *situation) arrive(sc *scope, r request) bool {
	o := &c.objects[r.write.Object]
	if o.version != r.version && sc.flaw != anyVersion {
		return false
	}
	*o = storedObject{o.version + 1, r.write.Entries, entriesText(r.write.Entries)}
	if _, damaged := ParseStored(c.stored()); len(damaged) > 0 {
		c.wrong = "what is stored is damaged: " + damaged[0].Error()
	}
	return true
}

// stored returns the entries of the objects.
func (c *situation) stored() (objects Objects) {
	for object, o := range c.objects {
		objects[object] = o.entries
	}
	return objects
}

// settle drops requests that can no longer be applied, and looks for violations.
func (c *situation) settle(sc *scope) {
	c.patches = slices.DeleteFunc(c.patches, func(m patch) bool {
		n := &c.nodes[m.node]
		return !n.live() || n.podCIDRs != nil
	})
	c.orphans = slices.DeleteFunc(c.orphans, func(r request) bool {
		return c.objects[r.write.Object].version != r.version && sc.flaw != anyVersion
	})
	for i := range c.nodes {
		given := &c.nodes[i]
		if !given.live() || given.byHand {
			continue
		}
		for j := range i {
			if o := &c.nodes[j]; o.live() && !o.byHand && anyOverlap(o.podCIDRs, given.podCIDRs) {
				c.wrong = fmt.Sprintf("%s and %s both have %v", o.UID, given.UID, given.podCIDRs)
			}
		}
	}
	for i, m := range c.patches {
		for j := range c.nodes {
			if o := &c.nodes[j]; j != m.node && o.live() && !o.byHand && anyOverlap(o.podCIDRs, m.prefixes) {
				c.wrong = fmt.Sprintf("%v is on its way to %s, and %s has it", m.prefixes, c.nodes[m.node].UID, o.UID)
			}
		}
		for _, o := range c.patches[:i] {
			if o.node != m.node && anyOverlap(o.prefixes, m.prefixes) {
				c.wrong = fmt.Sprintf("%v is on its way to %s and to %s", m.prefixes, c.nodes[m.node].UID, c.nodes[o.node].UID)
			}
		}
	}
}

// String is all the state that determines the next steps. Of a version it contains only whether it
// is the object's current one: versions never recur.
func (c *situation) String() string {
	var b strings.Builder
	for i := range c.objects {
		fmt.Fprint(&b, c.objects[i].text, "\n")
	}
	for i := range c.nodes {
		n := &c.nodes[i]
		fmt.Fprint(&b, n.created, n.gone, n.podCIDRs, n.byHand, "\n")
	}
	lines := []string{}
	for _, m := range c.patches {
		lines = append(lines, fmt.Sprint(m.node, m.prefixes))
	}
	for _, r := range c.orphans {
		lines = append(lines, fmt.Sprint(r.version == c.objects[r.write.Object].version, r.text))
	}
	slices.Sort(lines)
	fmt.Fprintln(&b, lines, c.started, c.deletes, c.faults, c.byHand, c.busy)
	for i, p := range c.processes {
		if p == nil {
			continue
		}
		fmt.Fprint(&b, i, p.setting, p.loading, "\n", p.text)
		for object := range c.objects {
			fmt.Fprint(&b, p.known[object] == c.objects[object].version)
			if object < p.read {
				fmt.Fprint(&b, "read", entriesText(p.objects[object]))
			}
		}
		for _, r := range p.waits {
			fmt.Fprint(&b, "waits", r.version == c.objects[r.write.Object].version, r.text)
		}
	}
	return b.String()
}
