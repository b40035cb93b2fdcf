package ipam

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// These are the parts of ledgers written by hand.
var (
	hostileWords = []string{
		"10.0.0.0/24@v4", "10.0.1.0/24@v4", "10.0.1.0/24", "10.0.0.0/8@v4", "0.0.0.0/0",
		"10.0.0.0/32@v4", "::ffff:10.0.0.0/120@v4", "::/0", "fd00::/64@v6", "fd00::/128@v6",
		"fd00::%eth0/64", "abandoned=10.0.3.0/24@v4,10.0.4.0/24", "abandoned=",
		"10.0.2.0/24@nobody", "10.0.2.0/24@", "uid=%20", "uid=", "id=hcloud://1",
		"released=2026-11-20T22:00:00Z", "released=9999-12-31T23:59:59Z",
		"released=0001-01-01T00:00:01Z", "released=1969-01-01T00:00:00Z",
	}
	hostileGenerations = []string{
		"generation=1", "generation=3", "generation=7", "generation=0", "generation=-1",
		"generation=", fmt.Sprint("generation=", maxGeneration), fmt.Sprint("generation=", math.MaxInt),
	}
	hostileBlocks = []string{
		"10.0.0.0/22", "10.0.0.0/8", "0.0.0.0/0", "10.0.4.0/22", "fd00::/55", "::/0",
		"10.0.0.0/32", "192.0.2.0/24",
	}
	hostileCursors = []string{
		"next=10.0.0.0/24", "next=1.2.3.4/24", "next=fd00::/64", "next=",
		"released=10.0.0.0/24,10.0.0.0/24", "released=::/0", "turn=9223372036854775807", "turn=-5",
	}
)

// hostile returns random objects of a ledger.
func hostile(rng *rand.Rand) map[int]map[string]string {
	some := func(from []string, n int) string {
		var line []string
		for range 1 + rng.IntN(n) {
			line = append(line, from[rng.IntN(len(from))])
		}
		return strings.Join(line, " ")
	}
	objects := map[int]map[string]string{}
	for object := range 1 + rng.IntN(3) {
		entries := map[string]string{}
		for i := range rng.IntN(4) {
			entries[fmt.Sprint("n", i)] = fmt.Sprintf("uid=u%d %s", rng.IntN(4), some(hostileWords, 3))
		}
		generation := hostileGenerations[rng.IntN(len(hostileGenerations))]
		switch {
		case object == 0 && rng.IntN(2) == 0:
			entries[shardKey(1+rng.IntN(3))] = generation + " " + some(hostileBlocks, 2)
		case object > 0 && rng.IntN(6) > 0:
			entries[MarkKey] = generation
		}
		if rng.IntN(2) == 0 {
			entries[CursorPrefix+"v4"] = some(hostileCursors, 3)
		}
		objects[object] = entries
	}
	return objects
}

// Every stored ledger that isn't damaged can be read; a limited number of writes follows and causes
// no damage; and then the prefixes of new Nodes are recorded.
func TestAnyStoredLedgerIsGoneOnWith(t *testing.T) {
	pools := []PoolConfig{
		{Name: "v4", Prefix: pfx("10.0.0.0/20"), NodeMask: 24},
		{Name: "v6", Prefix: pfx("fd00::/60"), NodeMask: 64},
	}
	read := 0
	for seed := range uint64(20_000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		objects := hostile(rng)
		text := fmt.Sprintf("seed %d: %v", seed, objects)
		stored, damaged := ParseStored(objects)
		if len(damaged) > 0 || len(Lost(objects)) > 0 {
			continue
		}
		read++
		r, err := Rebuild(Facts{Pools: pools, Stored: stored, Now: noon, BlockBits: 2})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		known := maps.Clone(objects)
		maps.DeleteFunc(known, func(object int, _ map[string]string) bool {
			return object != RootObject && !slices.Contains(Listed(objects[RootObject]), object)
		})
		f := NewFiles(r.Ledger, known)
		if rng.IntN(2) == 0 {
			r.Ledger.Spread()
		}
		given := map[string]bool{}
		for i := range 5 {
			n := Node{Name: fmt.Sprint("x", i), UID: fmt.Sprint("x", i)}
			if _, err := r.Ledger.Assign(n, Offer{}); err == nil {
				given[n.UID] = true
				f.Update(n.Name, noon)
			}
		}
		writeAll(t, f, objects, text)
		for uid := range given {
			if !f.Recorded(uid) {
				t.Fatalf("%s: %s is not recorded when all is written", text, uid)
			}
		}
	}
	if read < 100 {
		t.Errorf("only %d ledgers were no damage", read)
	}
}

// writeAll applies all writes, and fails if the stored objects are damaged then.
func writeAll(t *testing.T, f *Files, objects map[int]map[string]string, text string) {
	t.Helper()
	for range 200 {
		w, _, ok := f.Next()
		switch {
		case !ok:
			_, damaged := ParseStored(objects)
			if len(damaged) > 0 && !strings.Contains(text, fmt.Sprint(maxGeneration)) {
				t.Fatalf("%s: all is written, and damaged: %v", text, damaged[0])
			}
			return
		case w.Open:
			f.Opened(w.Object, objects[w.Object])
			continue
		}
		f.Sent(w)
		f.Wrote(w)
		objects[w.Object] = maps.Clone(w.Entries)
	}
	t.Fatalf("%s: no end of writes", text)
}

// A generation close to the largest one is damage, in the root and in a shard.
func TestAGenerationThatIsTooHigh(t *testing.T) {
	for _, generation := range []int{maxGeneration + 1, math.MaxInt} {
		root := map[string]string{"a": "uid=a 10.0.8.0/24@v4", shardKey(1): listing(3, prefixes("10.0.0.0/22"))}
		shard := map[string]string{"b": "uid=b 10.0.0.0/24@v4", MarkKey: mark(generation)}
		_, damaged := ParseStored(map[int]map[string]string{RootObject: root, 1: shard})
		if len(damaged) != 1 || damaged[0].Object != 1 || damaged[0].Key != MarkKey {
			t.Errorf("generation %d of a shard's object: damaged %v", generation, damaged)
		}
		root[shardKey(1)], shard[MarkKey] = listing(generation, prefixes("10.0.0.0/22")), mark(3)
		_, damaged = ParseStored(map[int]map[string]string{RootObject: root, 1: shard})
		if len(damaged) != 1 || damaged[0].Object != RootObject || damaged[0].Key != shardKey(1) {
			t.Errorf("generation %d in the root: damaged %v", generation, damaged)
		}
	}
}
