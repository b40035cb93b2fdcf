package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The clock of an exploration doesn't advance, and quarantines are over at once. Urgent writes
// differ from batched ones in their order only.
var (
	exploreNow = time.Unix(1000, 0).UTC()
	atOnce     = time.Unix(1, 0)
	unhurried  = time.Unix(2, 0)
)

// A setting is how a process is configured.
type setting struct{ pools []PoolConfig }

// A process is one that allocates podCIDRs. It is immutable: every step returns another one. Its
// memory isn't kept but rebuilt for each step, from the objects that it loaded and from all its
// steps since, in the same order, so a Ledger needs no copies and no state can be missed.
type process struct {
	setting setting
	known   [exploreObjects]int // the versions of the objects that it last read or wrote
	objects Objects             // as it read them

	// Before it has loaded, it reads the objects in order.
	loading bool
	read    int          // the number of objects that it has read
	before  []remembered // its holdings before it began to load again

	facts Facts
	done  []func(*memory)
	waits []request // writes with an unknown outcome, of different objects

	text string // its memory as text: processes with the same text behave the same
}

// memory is the state of a running process.
type memory struct {
	ledger *Ledger
	files  *Files
	sent   map[string]bool // UIDs with a sent PATCH of the reservation, maybe by another process
}

// remembered is a holding of a process that began to load again.
type remembered struct {
	holding        Holding
	sent, recorded bool
}

// A request is a write that is applied only if the object still has that version.
type request struct {
	write   Write
	version int
	text    string
}

// recall rebuilds the memory of a process.
func (p *process) recall() *memory {
	r, err := Rebuild(p.facts)
	if err != nil {
		panic(err)
	}
	m := &memory{ledger: r.Ledger, files: NewFiles(r.Ledger, p.objects), sent: map[string]bool{}}
	for _, h := range m.ledger.Holdings() {
		m.sent[h.Node.UID] = true
		m.files.Update(h.Node.Name, unhurried)
	}
	for _, do := range p.done {
		do(m)
	}
	return m
}

// did returns the process after one more step, with m as its memory.
func (p *process) did(m *memory, do func(*memory)) *process {
	do(m)
	after := *p
	after.done = append(slices.Clip(p.done), do)
	after.text = m.String()
	return &after
}

// reloading returns the process at the start of reading everything again.
func (p *process) reloading() *process {
	after := &process{setting: p.setting, loading: true, before: p.before}
	if p.loading {
		return after
	}
	m := p.recall()
	after.before = nil
	for _, h := range m.ledger.Holdings() {
		after.before = append(after.before, remembered{
			h, m.sent[h.Node.UID], m.files.Recorded(h.Node.UID),
		})
	}
	after.text = fmt.Sprint(after.before)
	return after
}

// saw returns the process after it read one more object.
func (p *process) saw(c *situation) *process {
	after := *p
	o := c.objects[p.read]
	after.objects[p.read], after.known[p.read] = o.entries, o.version
	after.read++
	return &after
}

// loaded returns the process after it read everything and listed the Nodes. It returns nil if the
// configuration contradicts the stored ledger.
func (p *process) loaded(nodes []LiveNode) (after *process, wrong string) {
	stored, damaged := ParseStored(p.objects)
	if len(damaged) > 0 {
		return nil, "what was read is damaged: " + damaged[0].Error()
	}
	unstored := remember(stored, p.before)
	for _, r := range p.before {
		uid := r.holding.Node.UID
		if r.holding.Observed && r.holding.Released.IsZero() &&
			!slices.ContainsFunc(nodes, func(n LiveNode) bool {
				return n.UID == uid && len(n.PodCIDRs) > 0
			}) {
			nodes = slices.DeleteFunc(nodes, func(n LiveNode) bool { return n.UID == uid })
			nodes = append(nodes, LiveNode{Node: r.holding.Node, PodCIDRs: r.holding.Prefixes})
		}
	}
	after = &process{setting: p.setting, known: p.known, objects: p.objects}
	after.facts = Facts{
		Pools: p.setting.pools, Stored: stored, Unstored: unstored, Nodes: nodes, Now: exploreNow,
	}
	m := after.recall()
	if len(m.ledger.Removed()) > 0 {
		return nil, ""
	}
	after.text = m.String()
	return after, ""
}

// remember corresponds to the controller's function of that name, when it loads again.
func remember(stored []Holding, before []remembered) (unstored []Holding) {
	byUID := map[string]*Holding{}
	for i := range stored {
		byUID[stored[i].Node.UID] = &stored[i]
	}
	for _, r := range before {
		h := r.holding
		written, known := byUID[h.Node.UID]
		switch {
		case known && !h.Released.IsZero():
			if written.Released.IsZero() {
				written.Released = h.Released
			}
		case known && (h.Observed || !r.sent || slices.Equal(written.Prefixes, h.Prefixes)):
		case known:
			written.Abandoned = append(written.Abandoned, h.Prefixes...)
		case !h.Released.IsZero():
			if !r.recorded {
				unstored = append(unstored, h)
			}
		case r.sent && !h.Observed:
			unstored = append(unstored, h)
		}
	}
	return unstored
}

// String is all the state that determines the next steps of a process.
func (m *memory) String() string {
	var b strings.Builder
	say := func(words ...string) {
		for _, w := range words {
			b.WriteString(w)
			b.WriteByte(' ')
		}
	}
	for _, h := range m.ledger.Holdings() {
		say("\n", h.Node.Name, h.Record(), strconv.FormatBool(h.Observed), strconv.FormatBool(m.sent[h.Node.UID]))
		for _, p := range slices.Concat(h.Prefixes, h.Abandoned) {
			if others := m.ledger.overlaps(nil, p); len(others) > 1 {
				for _, o := range others {
					say(o.prefix.String(), o.holder.Node.UID)
				}
			}
		}
	}
	for object := range exploreObjects {
		f := &m.files.files[object]
		say("\n", entriesText(f.stored), "\npending", entriesText(f.pending), strconv.FormatInt(f.due.Unix(), 10), strconv.FormatBool(f.sent))
	}
	return b.String()
}

func entriesText(entries map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		b.WriteString(key)
		b.WriteString("=")
		b.WriteString(entries[key])
		b.WriteString(";")
	}
	return b.String()
}

// searchFrom sets the slots, in the order of the pools, at which the search for free node prefixes
// begins.
func (m *memory) searchFrom(slots []int) {
	for i, p := range m.ledger.pools {
		p.next = uint64(slots[i%len(slots)]) % p.grid.size()
	}
}

// next returns the next write of the process.
func (p *process) next(m *memory) (w Write, after *process, ok bool) {
	after = p.did(m, func(m *memory) {
		var object int
		if object, _, ok = m.files.Due(); ok {
			w = m.files.Write(object)
		}
	})
	return w, after, ok
}

// wrote returns the process after it learned that a write was applied.
func (p *process) wrote(w Write, o storedObject) *process {
	after := p.did(p.recall(), func(m *memory) { m.files.Wrote(w) })
	after.known[w.Object] = o.version
	after.waits = slices.DeleteFunc(slices.Clone(p.waits), func(r request) bool {
		return r.write.Object == w.Object
	})
	return after
}

// anyOverlap reports whether any two prefixes of the lists overlap.
func anyOverlap(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool {
		return slices.ContainsFunc(b, p.Overlaps)
	})
}
