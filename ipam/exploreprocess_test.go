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

// The clock of an exploration stands still: quarantines are over at once. What is written at once
// and what goes along with the next write differ in their order alone.
var (
	exploreNow = time.Unix(1000, 0).UTC()
	atOnce     = time.Unix(1, 0)
	unhurried  = time.Unix(2, 0)
)

// exploreCursor is what every pool's stored cursor says. Where a search goes on is tried out
// instead: everything that a cursor could say is explored.
const exploreCursor = "next=10.0.0.0/24"

// A setting is how a process is configured.
type setting struct {
	pools  []PoolConfig
	bits   int  // of blocks
	spread bool // what is handed out goes to shards; else shards are taken back
}

// A process is one that hands out podCIDRs. It never changes: every step makes another. Its
// memory isn't kept but made again for each step, from what it loaded and by all that it did
// since, in the same order: nothing of a Ledger has to be copied, and nothing can be forgotten.
type process struct {
	setting setting
	known   map[int]int // the versions of the objects, as it knows them

	// Before it has loaded: the objects that it has read of those that it has to.
	loading bool
	read    map[int]map[string]string
	before  []remembered // what it knew before

	facts   Facts
	objects map[int]map[string]string
	done    []func(*memory)
	waits   *request // a write of which it doesn't know the outcome yet

	text string // its memory in words: who has the same goes on the same
}

// memory is what a process has in mind while it runs.
type memory struct {
	ledger *Ledger
	files  *Files
	sent   map[string]bool // UIDs to which a PATCH with what is reserved was sent, maybe by others
}

// remembered is what a process knew of a holding when it began to load again.
type remembered struct {
	holding        Holding
	sent, recorded bool
}

// A request is a write of an object that arrives only if it still has that version.
type request struct {
	write   Write
	version int
	text    string
}

// recall makes the memory of a process.
func (p *process) recall() *memory {
	r, err := Rebuild(p.facts)
	if err != nil {
		panic(err)
	}
	r.blockBits = p.setting.bits
	m := &memory{ledger: r.Ledger, files: NewFiles(r.Ledger, p.objects), sent: map[string]bool{}}
	for _, h := range m.ledger.Holdings() {
		m.sent[h.Node.UID] = true
		m.files.Update(h.Node.Name, unhurried)
	}
	switch {
	case p.setting.spread:
		m.ledger.Spread()
	case len(p.facts.Stored.Shards) > 0:
		m.ledger.Gather()
	}
	for _, do := range p.done {
		do(m)
	}
	return m
}

// did is the process after one more step, whose memory is left as it is then.
func (p *process) did(m *memory, do func(*memory)) *process {
	do(m)
	after := *p
	after.done = append(slices.Clip(p.done), do)
	after.text = m.String()
	return &after
}

// reloading is the process when it begins to read everything again.
func (p *process) reloading() *process {
	after := &process{setting: p.setting, loading: true, before: p.before}
	if p.loading {
		return after
	}
	m := p.recall()
	after.before = nil
	for _, h := range m.ledger.Holdings() {
		after.before = append(after.before, remembered{h, m.sent[h.Node.UID], m.files.Recorded(h.Node.UID)})
	}
	after.text = fmt.Sprint(after.before)
	return after
}

// unread is the next object that the process has to read.
func (p *process) unread() (object int, ok bool) {
	if p.read == nil {
		return RootObject, true
	}
	for _, number := range Listed(p.read[RootObject]) {
		if _, ok := p.read[number]; !ok {
			return number, true
		}
	}
	return 0, false
}

// saw is the process after it read one object more.
func (p *process) saw(number int, o storedObject) *process {
	after := *p
	after.read, after.known = maps.Clone(p.read), maps.Clone(p.known)
	if after.read == nil {
		after.read, after.known = map[int]map[string]string{}, map[int]int{}
	}
	after.read[number], after.known[number] = o.entries, o.version
	return &after
}

// loaded is the process when it has read everything, with a list of Nodes. It is nil where the
// configuration contradicts what is stored.
func (p *process) loaded(nodes []LiveNode) (after *process, wrong string) {
	stored, damaged := ParseStored(p.read)
	switch {
	case len(damaged) > 0:
		return nil, "what was read is damaged: " + damaged[0].Error()
	case len(Lost(p.read)) > 0:
		return nil, fmt.Sprintf("shards that the root lists are lost: %v", Lost(p.read))
	}
	unstored := remember(stored.Holdings, p.before)
	for _, r := range p.before {
		uid := r.holding.Node.UID
		if r.holding.Observed && r.holding.Released.IsZero() && !slices.ContainsFunc(nodes, func(n LiveNode) bool { return n.UID == uid && len(n.PodCIDRs) > 0 }) {
			nodes = slices.DeleteFunc(nodes, func(n LiveNode) bool { return n.UID == uid })
			nodes = append(nodes, LiveNode{Node: r.holding.Node, PodCIDRs: r.holding.Prefixes})
		}
	}
	after = &process{setting: p.setting, known: p.known, objects: p.read}
	after.facts = Facts{Pools: p.setting.pools, Stored: stored, Unstored: unstored, Nodes: nodes, Now: exploreNow}
	m := after.recall()
	if len(m.ledger.Removed()) > 0 {
		return nil, ""
	}
	after.text = m.String()
	return after, ""
}

// remember is what the controller does of that name when it loads again.
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

// String is all that what a process does next follows from.
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
					say(o.prefix.String(), o.holder.node.UID)
				}
			}
		}
	}
	f, y := m.files, m.ledger.layout
	say("\n", strconv.FormatBool(m.ledger.spread), strconv.FormatBool(f.settled == y.grown))
	for _, number := range y.numbers() {
		say("\n", strconv.Itoa(number), join(y.shards[number], " "))
	}
	for _, number := range slices.Sorted(maps.Keys(f.objects)) {
		o := f.objects[number]
		say("\n", strconv.Itoa(number), strconv.FormatBool(o.stored != nil), entriesText(o.stored),
			"\npending", entriesText(o.pending), strconv.FormatInt(o.due.Unix(), 10),
			"filled", f.filled[number])
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

// steady is a write with cursors that always say the same.
func steady(w Write) Write {
	w.Entries = maps.Clone(w.Entries)
	for key := range w.Entries {
		if strings.HasPrefix(key, CursorPrefix) {
			w.Entries[key] = exploreCursor
		}
	}
	return w
}

// searchFrom sets where the search for free node prefixes goes on, by the pools' order.
func (m *memory) searchFrom(slots []int) {
	for i, p := range m.ledger.pools {
		at := uint64(slots[i%len(slots)]) % p.grid.size()
		if err := m.ledger.SetCursor(p.Name, Cursor{Next: p.grid.at(at)}); err != nil {
			panic(err)
		}
	}
}

// next is what the process writes next.
func (p *process) next(m *memory) (w Write, after *process, ok bool) {
	after = p.did(m, func(m *memory) { w, _, ok = m.files.Next() })
	if !ok {
		return Write{}, nil, false
	}
	return steady(w), after, true
}

// wrote is the process when it knows that a write was carried out.
func (p *process) wrote(w Write, o storedObject) *process {
	after := p.did(p.recall(), func(m *memory) {
		if !w.Open {
			m.files.Wrote(w)
			return
		}
		m.files.Opened(w.Object, o.entries)
	})
	after.known = maps.Clone(p.known)
	after.known[w.Object], after.waits = o.version, nil
	return after
}

// overlap reports whether any two prefixes of the lists overlap.
func anyOverlap(a, b []netip.Prefix) bool {
	return slices.ContainsFunc(a, func(p netip.Prefix) bool { return slices.ContainsFunc(b, p.Overlaps) })
}
