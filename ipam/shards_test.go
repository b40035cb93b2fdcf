package ipam

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// objectStore stores a ledger's objects as an API server without conflicts.
type objectStore struct {
	objects Objects
	writes  int
	bytes   int
}

// settle applies all pending writes.
func (s *objectStore) settle(f *Files) {
	for object, _, ok := f.Due(); ok; object, _, ok = f.Due() {
		w := f.Write(object)
		s.objects[object] = maps.Clone(w.Entries)
		s.writes++
		for key, text := range w.Entries {
			s.bytes += len(key) + len(text)
		}
		f.Wrote(w)
	}
}

// reload reads the objects, as a starting process does.
func (s *objectStore) reload(t *testing.T, facts Facts) (*Ledger, *Files) {
	t.Helper()
	var damaged []*DamagedEntry
	facts.Stored, damaged = ParseStored(s.objects)
	if len(damaged) > 0 {
		t.Fatal(damaged)
	}
	if lost := s.objects.Lost(); len(lost) > 0 {
		t.Fatalf("lost: %v", lost)
	}
	book, err := Rebuild(facts)
	if err != nil {
		t.Fatal(err)
	}
	return book.Ledger, NewFiles(book.Ledger, s.objects)
}

func newObjectStore() *objectStore {
	s := &objectStore{}
	for object := range s.objects {
		s.objects[object] = map[string]string{MarkKey: Mark(object)}
	}
	return s
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
		if f.Recorded(n.UID) {
			t.Fatalf("%s is recorded before it is written", n.Name)
		}
		s.settle(f)
		if !f.Recorded(n.UID) {
			t.Fatalf("%s is not recorded\n%v", n.Name, s.objects)
		}
	}
}

func factsOf(pools ...PoolConfig) Facts { return Facts{Pools: pools, Now: noon} }

func widePools() []PoolConfig {
	return []PoolConfig{
		{Name: "v4", Prefix: pfx("10.0.0.0/16"), NodeMask: 24},
		{Name: "v6", Prefix: pfx("fd00::/56"), NodeMask: 64},
	}
}

// Two prefixes that overlap have a shard in common, whatever their lengths. This is what keeps
// two processes with other pools apart.
func TestOverlappingPrefixesShareAShard(t *testing.T) {
	for seed := range uint64(20_000) {
		draw := rand.New(rand.NewPCG(seed, 9))
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{
			10, byte(draw.Uint32()), byte(draw.Uint32()), byte(draw.Uint32()),
		}), draw.IntN(33)).Masked()
		if draw.IntN(2) == 0 {
			var b [16]byte
			for i := range b {
				b[i] = byte(draw.Uint32())
			}
			p = netip.PrefixFrom(netip.AddrFrom16(b), draw.IntN(129)).Masked()
		}
		inside := p.Addr().AsSlice()
		for i := range inside { // any address of the prefix
			host := byte(0xff)
			if left := p.Bits() - 8*i; left > 0 {
				host >>= min(left, 8)
			}
			inside[i] |= byte(draw.Uint32()) & host
		}
		a, _ := netip.AddrFromSlice(inside)
		q := netip.PrefixFrom(a, p.Bits()+draw.IntN(p.Addr().BitLen()-p.Bits()+1)).Masked()
		of := shardsOf(p)
		if !slices.IsSorted(of) || of[0] != shardOf(p) || of[0] < 0 || of[len(of)-1] >= Shards {
			t.Fatalf("shards of %s: %v", p, of)
		}
		for _, shard := range shardsOf(q) {
			if !slices.Contains(of, shard) {
				t.Fatalf("%s has shard %d, and %s, which contains it, %v", q, shard, p, of)
			}
		}
	}
}

func TestWhichShards(t *testing.T) {
	for prefix, want := range map[string][]int{
		"10.0.0.0/24": {0}, "10.0.15.0/24": {0}, "10.0.16.0/24": {1}, "10.1.0.0/24": {0}, "10.0.240.0/20": {15},
		"10.0.32.0/19": {2, 3}, "10.0.64.0/18": {4, 5, 6, 7}, "fd00::/64": {0}, "fd00:0:0:10::/64": {1},
		"fd00:0:0:20::/59": {2, 3}, "2001:db8:0:5::1:0:0/80": {0},
	} {
		if got := shardsOf(pfx(prefix)); !slices.Equal(got, want) {
			t.Errorf("shards of %s: %v, want %v", prefix, got, want)
		}
	}
	for _, all := range prefixes("10.0.0.0/16", "0.0.0.0/0", "::/0", "fd00::/56") {
		if got := shardsOf(all); len(got) != Shards {
			t.Errorf("shards of %s: %v, want all", all, got)
		}
	}
}

func TestANodeIsRecordedInOneShard(t *testing.T) {
	s := newObjectStore()
	pools := widePools()
	pools[1].Prefix = pfx("fd00:0:0:100::/56")
	l, f := s.reload(t, factsOf(pools...))
	admit(t, s, l, f, 0, 160)
	if s.writes != 160 {
		t.Errorf("%d writes for 160 Nodes, one after the other", s.writes)
	}
	for object, entries := range s.objects {
		if want := map[bool]int{true: 17, false: 1}[object < 10]; len(entries) != want {
			t.Errorf("shard %d has %d entries, want %d", object, len(entries), want)
		}
		for key, text := range entries {
			if isName(key) && len(strings.Fields(text)) != 3 {
				t.Errorf("shard %d has %q for %s, want a UID and both families", object, text, key)
			}
		}
	}
}

// A Node whose families are in different shards is recorded in both, and only both records
// together count.
func TestANodeOfTwoShards(t *testing.T) {
	s := newObjectStore()
	facts := factsOf(widePools()[0], PoolConfig{Name: "v6", Prefix: pfx("fd00:0:0:10::/60"), NodeMask: 64})
	l, f := s.reload(t, facts)
	n := Node{Name: "n", UID: "uid-n", ProviderID: "m"}
	given, err := l.Assign(n, Offer{})
	if err != nil {
		t.Fatal(err)
	}
	f.Update(n.Name, noon)
	for i, text := range []string{"uid=uid-n id=m 10.0.0.0/24@v4", "uid=uid-n id=m fd00:0:0:10::/64@v6"} {
		if f.Recorded(n.UID) {
			t.Errorf("the Node is recorded after %d of two writes", i)
		}
		object, _, ok := f.Due()
		w := f.Write(object)
		if !ok || object != i || w.Entries["n"] != text {
			t.Errorf("write %d is %+v, want %q", i, w, text)
		}
		s.objects[object] = w.Entries
		f.Wrote(w)
	}
	if _, _, more := f.Due(); more || !f.Recorded(n.UID) {
		t.Errorf("after two writes: recorded %t, more to write %t", f.Recorded(n.UID), more)
	}
	again, f := s.reload(t, facts)
	if h, _ := again.Lookup(n.UID); !slices.Equal(h.Prefixes, given) || !f.Recorded(n.UID) {
		t.Errorf("after a start the Node has %v, want %v", h.Prefixes, given)
	}
}

// A prefix that is larger than a block is recorded in every shard that has a part of it.
func TestALargePrefixIsRecordedInAllItsShards(t *testing.T) {
	s := newObjectStore()
	l, f := s.reload(t, factsOf(PoolConfig{Name: "v4", Prefix: pfx("10.0.0.0/16"), NodeMask: 18}))
	admit(t, s, l, f, 0, 2)
	for object, entries := range s.objects {
		want := map[int]string{0: "n0", 1: "n1"}[object/4]
		if _, has := entries[want]; want != "" && !has || want == "" && len(entries) != 1 {
			t.Errorf("shard %d has %v", object, entries)
		}
	}
}

// While a write is in flight, other objects are written, and changes of the same one wait.
func TestWritesOfOneObjectAreSerial(t *testing.T) {
	s := newObjectStore()
	l, f := s.reload(t, factsOf(widePools()[0]))
	have := func(name, prefix string, by time.Time) {
		l.Observe(Node{Name: name, UID: name}, prefixes(prefix), noon)
		f.Update(name, by)
	}
	have("a", "10.0.0.0/24", noon.Add(time.Minute))
	have("b", "10.0.1.0/24", noon)
	have("c", "10.0.16.0/24", noon.Add(time.Second))
	object, due, _ := f.Due()
	first := f.Write(object)
	if object != 0 || !due.Equal(noon) || !slices.Equal(first.Names, []string{"a", "b"}) {
		t.Fatalf("first is %+v at %s, want both of shard 0", first, due)
	}
	have("d", "10.0.2.0/24", noon)
	l.Free("a")
	f.Update("a", noon)
	object, due, _ = f.Due()
	if second := f.Write(object); object != 1 || !due.Equal(noon.Add(time.Second)) || !slices.Equal(second.Names, []string{"c"}) {
		t.Fatalf("second is %+v at %s, want that of shard 1", second, due)
	}
	if object, _, ok := f.Due(); ok {
		t.Fatalf("shard %d is to be written, and a write of it is in flight", object)
	}
	f.Wrote(first)
	object, _, ok := f.Due()
	third := f.Write(object)
	if !ok || object != 0 || !slices.Equal(third.Names, []string{"a", "d"}) || third.Entries["a"] != "" || third.Entries["b"] == "" {
		t.Fatalf("third is %+v, want that a is gone and d is there", third)
	}
	f.Wrote(third)
	if _, _, ok := f.Due(); ok || f.Recorded("a") || !f.Recorded("d") || f.Recorded("c") {
		t.Error("want a unknown, d recorded, and c in flight")
	}
	if want := len("b") + len("d") + len(f.files[0].stored["b"]) + len(f.files[0].stored["d"]); f.files[0].bytes != want {
		t.Errorf("shard 0 has %d bytes, want %d", f.files[0].bytes, want)
	}
}

// Entries of two objects about one Node make one holding, and a prefix of a family that one of
// them has twice is kept.
func TestPartsOfAHoldingAreReadTogether(t *testing.T) {
	s := newObjectStore()
	s.objects[0]["b"] = "uid=b 10.0.0.0/24@v4"
	s.objects[1]["a"] = "uid=a 10.0.16.0/24@v4"
	s.objects[1]["b"] = "uid=b 10.0.17.0/24@v4 released=2026-11-20T12:00:00Z"
	s.objects[2]["a"] = "uid=a id=hcloud://1 fd00:0:0:20::/64@v6"
	stored, damaged := ParseStored(s.objects)
	if len(damaged) > 0 {
		t.Fatal(damaged)
	}
	var got []string
	for _, h := range stored {
		got = append(got, h.Node.Name+": "+h.Record())
	}
	want := []string{
		"a: uid=a id=hcloud://1 10.0.16.0/24@v4 fd00:0:0:20::/64@v6",
		"b: uid=b 10.0.0.0/24@v4 abandoned=10.0.17.0/24@v4 released=2026-11-20T12:00:00Z",
	}
	if !slices.Equal(got, want) {
		t.Errorf("holdings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, emptied := range []map[string]string{nil, {}} {
		s.objects[2] = emptied
		if lost := s.objects.Lost(); !slices.Equal(lost, []int{2}) {
			t.Errorf("lost: %v, want shard 2", lost)
		}
	}
}

// An object that another version made, or that was restored under another name, is damage.
func TestTheMarkOfAnotherObject(t *testing.T) {
	for _, mark := range []string{"", "7 of 32", "6 of 16", "generation=1"} {
		s := newObjectStore()
		s.objects[7]["a"] = "uid=a 10.0.112.0/24@v4"
		s.objects[7][MarkKey] = mark
		_, damaged := ParseStored(s.objects)
		if len(damaged) != 1 || damaged[0].Object != 7 || damaged[0].Key != MarkKey || !strings.Contains(damaged[0].Error(), `"7 of 16"`) {
			t.Errorf("mark %q: %v, want damage of shard 7", mark, damaged)
		}
	}
}

// A prefix of several shards that one of them lacks was never given to its Node. Otherwise two
// processes could each complete the record of another Node.
func TestAPrefixThatNotAllOfItsShardsRecord(t *testing.T) {
	s := newObjectStore()
	s.objects[0]["m"] = "uid=m 10.0.0.0/19@v4"
	s.objects[1]["n"] = "uid=n 10.0.0.0/19@v4"
	s.objects[2]["o"], s.objects[3]["o"] = "uid=o 10.0.32.0/19@v4", "uid=o 10.0.32.0/19@v4"
	found, damaged := ParseStored(s.objects)
	if len(damaged) > 0 || len(found) != 3 {
		t.Fatalf("%v, %v", found, damaged)
	}
	for _, h := range found {
		whole := h.Node.Name == "o"
		if got := len(h.Prefixes) == 1 && len(h.Abandoned) == 0; got != whole ||
			len(h.Prefixes)+len(h.Abandoned) != 1 {
			t.Errorf("%s: %v, abandoned %v", h.Node.Name, h.Prefixes, h.Abandoned)
		}
	}
}

// With 50,000 dual-stack Nodes, this limits the bytes written and the size of an object.
func TestFiftyThousandNodes(t *testing.T) {
	if testing.Short() || slowdown > 1 {
		t.Skip("takes a minute with the race detector, which has nothing to find here")
	}
	s := newObjectStore()
	facts := factsOf(
		PoolConfig{Name: "v4", Prefix: pfx("10.0.0.0/8"), NodeMask: 24},
		PoolConfig{Name: "v6", Prefix: pfx("fd00::/48"), NodeMask: 64})
	l, f := s.reload(t, facts)
	const nodes, batch = 50_000, 100
	for i := range nodes {
		n := Node{Name: fmt.Sprint("worker-", i), UID: fmt.Sprintf("%08d-0000-4000-8000-000000000000", i), ProviderID: fmt.Sprint("hcloud://", 100_000_000+i)}
		if _, err := l.Assign(n, Offer{}); err != nil {
			t.Fatal(err)
		}
		f.Update(n.Name, noon)
		if i%batch == batch-1 {
			s.settle(f)
		}
	}
	largest := f.Largest()
	t.Logf("%d Nodes, at most %d bytes an object, %d bytes written a Node with %d Nodes at once", nodes, largest, s.bytes/nodes, batch)
	if largest > 450_000 || s.bytes/nodes > 20_000 {
		t.Error("larger objects or more bytes than there should be")
	}
	again, _ := s.reload(t, facts)
	once(t, again, nodes)
}
