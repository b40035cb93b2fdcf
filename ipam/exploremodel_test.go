package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// storedObject is a ConfigMap. It doesn't exist if version is 0.
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
	exploreObjects   = 6 // the root and the shards
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
	relieves  int
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
	root := map[string]string{}
	for _, p := range sc.starts[0].pools {
		root[CursorPrefix+p.Name] = exploreCursor
	}
	s.objects[RootObject] = storedObject{1, root, entriesText(root)}
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
	s.deletes, s.faults, s.relieves, s.byHand = sc.deletes, sc.faults, sc.relieves, sc.hand != ""
	return s
}

// answer applies a write and gives the result to the process.
func (c *situation) answer(sc *scope, i int, p *process, r request) {
	switch {
	case c.arrive(sc, r):
		c.processes[i] = p.wrote(r.write, c.objects[r.write.Object])
	case sc.flaw == oneReload:
		after := *p
		after.known = map[int]int{}
		for object, o := range c.objects {
			after.known[object] = o.version
		}
		after.waits = nil
		c.processes[i] = &after
	default:
		c.processes[i] = p.reloading()
	}
}

// arrive applies a write, and reports whether the object had the expected version.
func (c *situation) arrive(sc *scope, r request) bool {
	o := &c.objects[r.write.Object]
	if r.write.Open {
		if o.version == 0 {
			*o = storedObject{version: 1, entries: map[string]string{}}
		}
		return true
	}
	if o.version != r.version && sc.flaw != anyVersion {
		return false
	}
	*o = storedObject{o.version + 1, r.write.Entries, entriesText(r.write.Entries)}
	_, damaged := ParseStored(c.stored())
	switch {
	case len(damaged) > 0:
		c.wrong = "what is stored is damaged: " + damaged[0].Error()
	case len(Lost(c.stored())) > 0:
		c.wrong = fmt.Sprintf("shards that the root lists are lost: %v", Lost(c.stored()))
	}
	return true
}

// stored returns the entries of the objects.
func (c *situation) stored() map[int]map[string]string {
	objects := map[int]map[string]string{}
	for object, o := range c.objects {
		if o.version > 0 {
			objects[object] = o.entries
		}
	}
	return objects
}

// settle drops requests that can no longer be applied, and looks for violations.
func (c *situation) settle(sc *scope) {
	c.patches = slices.DeleteFunc(c.patches, func(m patch) bool { n := &c.nodes[m.node]; return !n.live() || n.podCIDRs != nil })
	c.orphans = slices.DeleteFunc(c.orphans, func(r request) bool {
		if r.write.Open {
			return c.objects[r.write.Object].version > 0
		}
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
		fmt.Fprint(&b, c.objects[i].version > 0, c.objects[i].text, "\n")
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
	fmt.Fprintln(&b, lines, c.started, c.deletes, c.faults, c.relieves, c.byHand, c.busy)
	for i, p := range c.processes {
		if p == nil {
			continue
		}
		fmt.Fprint(&b, i, p.setting, p.loading, "\n", p.text)
		for object := range c.objects {
			version, known := p.known[object]
			fmt.Fprint(&b, known, version == c.objects[object].version)
			if entries, ok := p.read[object]; ok {
				fmt.Fprint(&b, "read", entriesText(entries))
			}
		}
		if p.waits != nil {
			fmt.Fprint(&b, "waits", p.waits.version == c.objects[p.waits.write.Object].version, p.waits.text)
		}
	}
	return b.String()
}
