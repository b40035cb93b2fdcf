package ipam

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// hostileWords are the parts of ledgers written by hand.
var hostileWords = []string{
	"10.0.0.0/24@v4", "10.0.1.0/24@v4", "10.0.1.0/24", "10.0.0.0/8@v4", "0.0.0.0/0",
	"10.0.0.0/32@v4", "::ffff:10.0.0.0/120@v4", "::/0", "fd00::/64@v6", "fd00::/128@v6",
	"fd00::%eth0/64", "abandoned=10.0.3.0/24@v4,10.0.4.0/24", "abandoned=",
	"10.0.2.0/24@nobody", "10.0.2.0/24@", "uid=%20", "uid=", "id=hcloud://1",
	"released=2026-11-20T22:00:00Z", "released=9999-12-31T23:59:59Z",
	"released=0001-01-01T00:00:01Z", "released=1969-01-01T00:00:00Z",
}

// hostile fills a ledger's objects with random entries, in any of them.
func hostile(rng *rand.Rand) *objectStore {
	s := newObjectStore()
	for object := range 3 {
		for i := range rng.IntN(4) {
			line := []string{fmt.Sprintf("uid=u%d", rng.IntN(4))}
			for range 1 + rng.IntN(3) {
				line = append(line, hostileWords[rng.IntN(len(hostileWords))])
			}
			s.objects[object][fmt.Sprint("n", i)] = strings.Join(line, " ")
		}
	}
	return s
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
		s := hostile(rand.New(rand.NewPCG(seed, 7)))
		text := fmt.Sprintf("seed %d: %v", seed, s.objects)
		stored, damaged := ParseStored(s.objects)
		if len(damaged) > 0 {
			continue
		}
		read++
		r, err := Rebuild(Facts{Pools: pools, Stored: stored, Now: noon})
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		f := NewFiles(r.Ledger, s.objects)
		for _, h := range stored {
			f.Update(h.Node.Name, noon)
		}
		given := map[string]bool{}
		for i := range 5 {
			n := Node{Name: fmt.Sprint("x", i), UID: fmt.Sprint("x", i)}
			if _, err := r.Ledger.Assign(n, Offer{}); err == nil {
				given[n.UID] = true
				f.Update(n.Name, noon)
			}
		}
		s.settle(f)
		if s.writes > 2*Shards {
			t.Fatalf("%s: %d writes", text, s.writes)
		}
		again, damaged := ParseStored(s.objects)
		if len(damaged) > 0 {
			t.Fatalf("%s: all is written, and damaged: %v", text, damaged[0])
		}
		for _, h := range r.Holdings() {
			if !f.Recorded(h.Node.UID) {
				t.Fatalf("%s: %s is not recorded when all is written", text, h.Node.UID)
			}
			i := slices.IndexFunc(again, func(o Holding) bool { return o.Node.UID == h.Node.UID })
			if i < 0 || len(again[i].Prefixes)+len(again[i].Abandoned) != len(h.Prefixes)+len(h.Abandoned) {
				t.Fatalf("%s: of %+v there is stored %+v", text, h, again)
			}
		}
	}
	if read < 100 {
		t.Errorf("only %d ledgers were no damage", read)
	}
}
