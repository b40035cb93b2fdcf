package ipam

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// objectStore stores a ledger's objects as an API server without conflicts.
type objectStore struct {
	objects map[int]map[string]string
	writes  map[int]int
	bytes   int
}

// settle applies all pending writes.
func (s *objectStore) settle(f *Files) {
	for {
		w, _, ok := f.Next()
		if !ok {
			return
		}
		if w.Open {
			if s.objects[w.Object] == nil {
				s.objects[w.Object] = map[string]string{}
			}
			f.Opened(w.Object, maps.Clone(s.objects[w.Object]))
			continue
		}
		s.objects[w.Object] = maps.Clone(w.Entries)
		s.writes[w.Object]++
		for key, text := range w.Entries {
			s.bytes += len(key) + len(text)
		}
		f.Wrote(w)
	}
}

// reload reads the objects that the root lists, as a starting process does.
func (s *objectStore) reload(t *testing.T, facts Facts) (*Ledger, *Files) {
	t.Helper()
	known := map[int]map[string]string{RootObject: s.objects[RootObject]}
	for _, number := range Listed(s.objects[RootObject]) {
		known[number] = s.objects[number]
	}
	var damaged []*DamagedEntry
	facts.Stored, damaged = ParseStored(known)
	if len(damaged) > 0 {
		t.Fatal(damaged)
	}
	if lost := Lost(known); len(lost) > 0 {
		t.Fatalf("lost: %v", lost)
	}
	book, err := Rebuild(facts)
	if err != nil {
		t.Fatal(err)
	}
	return book.Ledger, NewFiles(book.Ledger, known)
}

func newObjectStore() *objectStore {
	return &objectStore{
		objects: map[int]map[string]string{RootObject: {CursorPrefix + "v4": "next=10.0.0.0/24"}},
		writes:  map[int]int{},
	}
}

// admit assigns prefixes to Nodes one after the other, and records each before the next.
func admit(t *testing.T, s *objectStore, l *Ledger, f *Files, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		n := Node{Name: fmt.Sprint("n", i), UID: fmt.Sprint("uid-", i)}
		if _, err := l.Assign(n, Offer{}); err != nil {
			t.Fatal(err)
		}
		f.Update(n.Name, noon)
		s.settle(f)
		if !f.Recorded(n.UID) {
			t.Fatalf("%s is not recorded\n%v", n.Name, s.objects)
		}
	}
}

func spreadFacts(bits int, pools ...PoolConfig) Facts {
	return Facts{Pools: pools, Now: noon, BlockBits: bits}
}

func widePools() []PoolConfig {
	return []PoolConfig{
		{Name: "v4", Prefix: pfx("10.0.0.0/16"), NodeMask: 24},
		{Name: "v6", Prefix: pfx("fd00::/56"), NodeMask: 64},
	}
}

func TestANodeIsRecordedInOneShard(t *testing.T) {
	s := newObjectStore()
	l, f := s.reload(t, spreadFacts(3, widePools()...))
	admit(t, s, l, f, 0, 4)
	if got := Listed(s.objects[RootObject]); len(got) > 0 {
		t.Fatalf("shards %v before any was asked for", got)
	}
	l.Spread()
	admit(t, s, l, f, 4, 40)
	// A block has 8 node prefixes; the first one contains those of the root's four Nodes too.
	if got, want := Listed(s.objects[RootObject]), []int{1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("shards %v, want %v", got, want)
	}
	for number := 1; number <= 5; number++ {
		lines := 0
		for key, text := range s.objects[number] {
			if isName(key) {
				lines++
				if len(strings.Fields(text)) != 3 {
					t.Errorf("shard %d has %q for %s, want a UID and both families", number, text, key)
				}
			}
		}
		if lines != 8 {
			t.Errorf("shard %d has %d Nodes, want 8", number, lines)
		}
	}
	for key := range s.objects[RootObject] {
		if isName(key) {
			t.Errorf("the root has %s still", key)
		}
	}
	if n := s.writes[RootObject]; n > 4+2*5 {
		t.Errorf("%d writes of the root: four for its Nodes and two for each shard are enough", n)
	}
}

// A restart restores the same state from every form in which it is stored.
func TestShardsComeAndGoAndNobodyNotices(t *testing.T) {
	s := newObjectStore()
	facts := spreadFacts(3, widePools()...)
	l, f := s.reload(t, facts)
	admit(t, s, l, f, 0, 30)
	before := l.Holdings()
	same := func(when string) {
		t.Helper()
		l, f = s.reload(t, facts)
		if got := l.Holdings(); fmt.Sprint(got) != fmt.Sprint(before) {
			t.Fatalf("%s:\n%v\nwant\n%v", when, got, before)
		}
		for i := range 30 {
			if !f.Recorded(fmt.Sprint("uid-", i)) {
				t.Fatalf("%s: uid-%d is not recorded", when, i)
			}
		}
		s.settle(f)
	}
	same("in one object")
	l.Spread()
	for f.Relieve() {
		s.settle(f)
	}
	if got := Listed(s.objects[RootObject]); len(got) != 4 {
		t.Errorf("shards %v, want four of 8 Nodes", got)
	}
	same("in shards")
	l.Gather()
	s.settle(f)
	if got := Listed(s.objects[RootObject]); len(got) > 0 {
		t.Errorf("shards %v after all was gathered", got)
	}
	same("in one object again")
	l.Spread()
	for f.Relieve() {
		s.settle(f)
	}
	same("in shards again")
}

// If the blocks of the two families are in different shards, a Node is recorded in both, and only
// both records together count.
func TestANodeOfTwoShards(t *testing.T) {
	s := newObjectStore()
	pools := []PoolConfig{
		{Name: "v4", Prefix: pfx("10.0.0.0/21"), NodeMask: 24},
		{Name: "v6", Prefix: pfx("fd00::/61"), NodeMask: 64},
	}
	l, f := s.reload(t, spreadFacts(1, pools...))
	l.Spread()
	admit(t, s, l, f, 0, 4)
	// Now the free blocks of the families are in different shards.
	l.Observe(Node{Name: "x", UID: "uid-x"}, prefixes("10.0.6.0/24", "10.0.7.0/24", "fd00:0:0:4::/64", "fd00:0:0:5::/64"), noon)
	f.Update("x", noon)
	s.settle(f)
	n := Node{Name: "n4", UID: "uid-4"}
	got, err := l.Assign(n, Offer{})
	if err != nil || !slices.Equal(got, prefixes("10.0.4.0/24", "fd00:0:0:6::/64")) {
		t.Fatalf("Assign = %v, %v", got, err)
	}
	f.Update(n.Name, noon)
	s.settle(f)
	first := Node{Name: "n5", UID: "uid-5"}
	if _, err := l.Assign(first, Offer{}); err != nil {
		t.Fatal(err)
	}
	f.Update(first.Name, noon)
	s.settle(f)
	where := map[int]bool{}
	for object, entries := range s.objects {
		if entries["n4"] != "" {
			where[object] = true
		}
	}
	if !f.Recorded("uid-4") {
		t.Error("n4 is not recorded")
	}
	again, _ := s.reload(t, spreadFacts(1, pools...))
	if h, _ := again.Lookup("uid-4"); !slices.Equal(h.Prefixes, got) {
		t.Errorf("n4 has %v after a start, want %v (it is in %v)", h.Prefixes, got, where)
	}
}

// Entries of two objects about one Node make one holding, in the order of the families, and a
// prefix of a family that one of them has twice is kept.
func TestPartsOfAHoldingAreReadTogether(t *testing.T) {
	root := map[string]string{
		"_pool.v4": "next=10.0.0.0/24", "_shard.1": "generation=1 10.0.2.0/23", "_shard.2": "generation=4 fd00::/63",
		"b": "uid=b 10.0.0.0/24@v4",
	}
	objects := map[int]map[string]string{
		RootObject: root,
		1:          {"_shard": "generation=1", "a": "uid=a 10.0.2.0/24@v4", "b": "uid=b 10.0.3.0/24@v4 released=2026-11-20T12:00:00Z", "_pool.v4": "next=10.0.9.0/24 turn=3"},
		2:          {"_shard": "generation=4", "a": "uid=a id=hcloud://1 fd00::/64@v6", "_pool.v4": "next=10.0.8.0/24 turn=2"},
		3:          {"_shard": "generation=1", "z": "uid=z 10.0.2.0/24@v4"},
	}
	stored, damaged := ParseStored(objects)
	if len(damaged) > 0 {
		t.Fatal(damaged)
	}
	var got []string
	for _, h := range stored.Holdings {
		got = append(got, h.Node.Name+": "+h.Record())
	}
	want := []string{
		"a: uid=a id=hcloud://1 10.0.2.0/24@v4 fd00::/64@v6",
		"b: uid=b 10.0.0.0/24@v4 abandoned=10.0.3.0/24@v4 released=2026-11-20T12:00:00Z",
	}
	if !slices.Equal(got, want) {
		t.Errorf("holdings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if c := stored.Cursors["v4"]; c.Next != pfx("10.0.9.0/24") {
		t.Errorf("the cursor is %v, want that of the latest turn", c)
	}
	if lost := Lost(objects); len(lost) > 0 {
		t.Errorf("lost: %v", lost)
	}
	for _, emptied := range []map[string]string{nil, {}} {
		objects[2] = emptied
		if lost := Lost(objects); !slices.Equal(lost, []int{2}) {
			t.Errorf("lost: %v, want shard 2", lost)
		}
	}
}

func TestDamagedShards(t *testing.T) {
	for _, c := range []struct{ root, key, text, says string }{
		{"", "_shard.1", "", "lists nothing"},
		{"", "_shard.1", "generation=1", "lists no block"},
		{"", "_shard.1", "gen=1", "no generation"},
		{"", "_shard.1", "generation=0 10.0.0.0/23", "no generation"},
		{"", "_shard.1", "generation=1 10.0.0.1/23", "not the first address"},
		{"generation=1 10.0.0.0/22", "_shard.2", "generation=1 10.0.1.0/24", "overlaps 10.0.0.0/22"},
	} {
		root := map[string]string{"_pool.v4": "next=10.0.0.0/24", c.key: c.text}
		if c.root != "" {
			root["_shard.1"] = c.root
		}
		_, damaged := ParseStored(map[int]map[string]string{RootObject: root})
		if len(damaged) != 1 || damaged[0].Key != c.key || !strings.Contains(damaged[0].Error(), c.says) {
			t.Errorf("%s %q: %v, want an error that says %q", c.key, c.text, damaged, c.says)
		}
	}
	objects := map[int]map[string]string{
		RootObject: {"_shard.7": "generation=1 10.0.0.0/23"},
		7:          {"a": "uid=a 10.0.0.0/24@v4", "b": "uid=b nonsense"},
	}
	_, damaged := ParseStored(objects)
	if len(damaged) != 2 || !strings.Contains(damaged[0].Error(), `key "_shard" of shard 7`) || !strings.Contains(damaged[1].Error(), `key "b" of shard 7`) {
		t.Errorf("damaged: %v, want the missing generation and the line of b", damaged)
	}
}

// With 50,000 dual-stack Nodes, this limits the bytes written and the size of an object.
func TestFiftyThousandNodes(t *testing.T) {
	if testing.Short() || slowdown > 1 {
		t.Skip("takes a minute with the race detector, which has nothing to find here")
	}
	s := newObjectStore()
	facts := spreadFacts(0,
		PoolConfig{Name: "v4", Prefix: pfx("10.0.0.0/8"), NodeMask: 24},
		PoolConfig{Name: "v6", Prefix: pfx("fd00::/48"), NodeMask: 64})
	l, f := s.reload(t, facts)
	const nodes, batch = 50_000, 100
	begin := time.Now()
	for i := range nodes {
		if _, names := f.Size(RootObject); names >= 512 {
			l.Spread()
		}
		n := Node{Name: fmt.Sprint("worker-", i), UID: fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), ProviderID: fmt.Sprint("hcloud://", 100_000_000+i)}
		if _, err := l.Assign(n, Offer{}); err != nil {
			t.Fatal(err)
		}
		f.Update(n.Name, noon)
		if i%batch == batch-1 {
			s.settle(f)
		}
	}
	s.settle(f)
	largest := 0
	for _, entries := range s.objects {
		size := 0
		for key, text := range entries {
			size += len(key) + len(text)
		}
		largest = max(largest, size)
	}
	shards := len(s.objects) - 1
	t.Logf("%d Nodes in %d shards, at most %d bytes each, %d bytes written a Node with %d Nodes a write, %s",
		nodes, shards, largest, s.bytes/nodes, batch, time.Since(begin).Round(time.Millisecond))
	if shards < nodes/512-2 || shards > nodes/512+2 || largest > 90_000 || s.bytes/nodes > 1000 {
		t.Error("more shards, larger objects or more bytes than there should be")
	}
	again, _ := s.reload(t, facts)
	if got := len(again.Holdings()); got != nodes {
		t.Errorf("%d holdings after a start, want %d", got, nodes)
	}
	seen := map[netip.Prefix]bool{}
	for _, h := range again.Holdings() {
		for _, p := range h.Prefixes {
			if seen[p] {
				t.Fatalf("%s is held twice", p)
			}
			seen[p] = true
		}
	}
}

// An entry stays in its object until its new guard has it, also after the root was lost and the
// shards are laid out again, and after another client removed a block from the root's list.
func TestNoLineLeavesBeforeItIsElsewhere(t *testing.T) {
	facts := spreadFacts(3, widePools()...)
	s := newObjectStore()
	l, f := s.reload(t, facts)
	l.Spread()
	admit(t, s, l, f, 0, 8)
	l.Release("uid-0", noon)
	f.Update("n0", noon)
	s.settle(f)
	check := func(f *Files, next func() Write) {
		t.Helper()
		for range 20 {
			w := next()
			if w.Open {
				f.Opened(w.Object, s.objects[w.Object])
				continue
			}
			s.objects[w.Object] = maps.Clone(w.Entries)
			f.Wrote(w)
			there := ""
			for _, entries := range s.objects {
				there += " " + entries["n0"]
			}
			if !strings.Contains(there, "10.0.0.0/24") || !strings.Contains(there, "fd00::/64") {
				t.Fatalf("after a write of %d n0 has only%s", w.Object, there)
			}
			if w.Object == RootObject && s.objects[RootObject]["n0"] != "" {
				return
			}
		}
	}
	s.objects[RootObject][shardKey(1)] = "generation=9 fd00::/61"
	_, f = s.reload(t, facts)
	f.Update("n0", noon)
	check(f, func() Write {
		w, _, _ := f.Next()
		return w
	})

	delete(s.objects, RootObject)
	facts.Stored, _ = ParseStored(s.objects)
	book, err := Rebuild(facts)
	if err != nil {
		t.Fatal(err)
	}
	l, f = book.Ledger, NewFiles(book.Ledger, s.objects)
	for _, h := range l.Holdings() {
		f.Update(h.Node.Name, noon)
	}
	l.layout.add(1, pfx("10.0.24.0/21"))
	check(f, f.Anew)
}

// Shards never give blocks back, so years of changes use up all shards. Then new Nodes get free
// prefixes of their blocks.
func TestAllShardsAreInUse(t *testing.T) {
	s := newObjectStore()
	l, f := s.reload(t, spreadFacts(1, PoolConfig{Name: "v4", Prefix: pfx("10.0.0.0/14"), NodeMask: 24}))
	l.Spread()
	for i := range 2*MaxShards + 100 {
		admit(t, s, l, f, i, i+1)
		if i >= 16 {
			l.Free(fmt.Sprint("uid-", i-16))
			f.Update(fmt.Sprint("n", i-16), noon)
		}
	}
	s.settle(f)
	if _, names := f.Size(RootObject); f.Guarding() != MaxShards || names > 0 {
		t.Errorf("%d shards, and %d Nodes in the root; want them all in shards", f.Guarding(), names)
	}
}

// Entries that must be in the root aren't moved to shards.
func TestOwnPrefixesStayWithTheRoot(t *testing.T) {
	s := newObjectStore()
	l, f := s.reload(t, spreadFacts(3, PoolConfig{Name: "v4", Prefix: pfx("10.0.0.0/16"), NodeMask: 24}, PoolConfig{Name: "own", Own: true, NodeMask: 80}))
	l.Spread()
	for i := range 20 {
		n := Node{Name: fmt.Sprint("n", i), UID: fmt.Sprint("uid-", i)}
		if _, err := l.Assign(n, Offer{Own: pfx(fmt.Sprintf("2001:db8:0:%x::/64", i))}); err != nil {
			t.Fatal(err)
		}
		f.Update(n.Name, noon)
	}
	if f.Relieve() || f.Guarding() > 0 {
		t.Errorf("%d shards", f.Guarding())
	}
}

// A shard doesn't get more blocks of the other family than it has space for.
func TestAShardHasRoomForItsBlocks(t *testing.T) {
	pools := []PoolConfig{{Name: "v6", Prefix: pfx("fd00::/48"), NodeMask: 64}}
	for i := range 20 {
		pools = append(pools, PoolConfig{Name: fmt.Sprint("v4-", i), Prefix: pfx(fmt.Sprintf("10.%d.0.0/16", i)), NodeMask: 24})
	}
	s := newObjectStore()
	l, f := s.reload(t, spreadFacts(3, pools...))
	for i := range 160 {
		n := Node{Name: fmt.Sprintf("n%03d", i), UID: fmt.Sprint("uid-", i)}
		if _, err := l.Assign(n, Offer{Pools: func(name string) bool { return name == "v6" || name == fmt.Sprint("v4-", i%20) }}); err != nil {
			t.Fatal(err)
		}
		f.Update(n.Name, noon)
	}
	s.settle(f)
	l.Spread()
	for f.Relieve() {
		s.settle(f)
	}
	for number, entries := range s.objects {
		if number != RootObject && len(entries) > 8+16+len(pools)+1 {
			t.Errorf("shard %d has %d entries, with blocks of 8", number, len(entries))
		}
	}
	for i := range 160 {
		if !f.Recorded(fmt.Sprint("uid-", i)) {
			t.Errorf("uid-%d is not recorded", i)
		}
	}
}
