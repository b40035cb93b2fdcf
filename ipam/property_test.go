package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	comparePrefixes = cmp.Options{
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmpopts.EquateEmpty(),
	}
	smallPools = []PoolConfig{
		{netip.MustParsePrefix("10.0.0.0/25"), 28},
		{netip.MustParsePrefix("fd00:0:0:10::/61"), 64},
		{netip.MustParsePrefix("10.0.1.0/27"), 29},
	}
	smallExclusions = []netip.Prefix{
		netip.MustParsePrefix("10.0.0.20/30"),
		netip.MustParsePrefix("10.0.1.8/29"),
		netip.MustParsePrefix("fd00:0:0:12::/63"),
	}
	misfits = []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/26"),
		netip.MustParsePrefix("10.0.0.64/27"),
		netip.MustParsePrefix("10.0.0.0/23"),
		netip.MustParsePrefix("10.0.0.100/32"),
		netip.MustParsePrefix("10.0.1.0/30"),
		netip.MustParsePrefix("192.168.7.0/24"),
		netip.MustParsePrefix("fd00:0:0:10::/60"),
		netip.MustParsePrefix("fd00:0:0:14::/63"),
		netip.MustParsePrefix("fd00:0:0:16:8000::/65"),
		netip.MustParsePrefix("2001:db8::/64"),
	}
)

// drive makes the same random calls on a Ledger and on the model, and compares all that can be
// seen after each. draw(n) gives a number below n.
func drive(t *testing.T, steps int, draw func(n int) int) {
	t.Helper()
	ledger, err := NewLedger(smallPools, smallExclusions)
	if err != nil {
		t.Fatal(err)
	}
	m := newModel(smallPools, ledger.exclusions)
	var everything []netip.Prefix
	for _, pool := range smallPools {
		everything = append(everything, slots(pool)...)
	}
	pick := func() netip.Prefix {
		if draw(4) == 0 {
			return misfits[draw(len(misfits))]
		}
		return everything[draw(len(everything))]
	}
	for step := range steps {
		id := draw(14)
		node := Node{Name: fmt.Sprint("n", id/2), UID: fmt.Sprint("u", id)}
		switch draw(8) {
		case 0, 1:
			prefixes := canonicalAll([]netip.Prefix{pick(), pick(), pick()}[:1+draw(3)])
			if diff := cmp.Diff(m.observe(node, prefixes), ledger.Observe(node, prefixes), comparePrefixes); diff != "" {
				t.Fatalf("step %d: Observe(%v, %v) (-model +ledger):\n%s\n%s", step, node, prefixes, diff, m)
			}
		case 2, 3:
			if diff := cmp.Diff(m.release(node.UID), ledger.Release(node.UID), comparePrefixes); diff != "" {
				t.Fatalf("step %d: Release(%v) (-model +ledger):\n%s\n%s", step, node, diff, m)
			}
		default:
			_, known := ledger.Lookup(node.UID)
			others := m.claimed()
			want, room := m.assign(node)
			got, err := ledger.Assign(node)
			if room != (err == nil) || err != nil && !errors.Is(err, ErrNoRoom) {
				t.Fatalf("step %d: Assign(%v): %v, but the model has room: %t\n%s", step, node, err, room, m)
			}
			if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
				t.Fatalf("step %d: Assign(%v) (-model +ledger):\n%s\n%s", step, node, diff, m)
			}
			for _, p := range got {
				if !known && (overlapsAny(p, others) || overlapsAny(p, smallExclusions)) {
					t.Fatalf("step %d: Assign(%v) handed out %s, which is not free\n%s", step, node, p, m)
				}
			}
		}
		checkState(t, step, ledger, m)
	}
}

func checkState(t *testing.T, step int, ledger *Ledger, m *model) {
	t.Helper()
	counts := ledger.Counts()
	if diff := cmp.Diff(m.counts(), counts, comparePrefixes); diff != "" {
		t.Fatalf("step %d: Counts (-model +ledger):\n%s\n%s", step, diff, m)
	}
	for i, c := range counts {
		if sum := c.Free + c.Allocated + c.Excluded + c.Foreign; sum != len(slots(smallPools[i])) {
			t.Fatalf("step %d: pool %s has %d node prefixes, not %d", step, c.Pool, sum, len(slots(smallPools[i])))
		}
	}
	if ledger.Room() != m.room() {
		t.Fatalf("step %d: Room() = %d, want %d\n%s", step, ledger.Room(), m.room(), m)
	}
	for uid, a := range ledger.holdings {
		for other, b := range ledger.holdings {
			if uid < other && !a.observed && !b.observed && overlap(a.prefixes, b.prefixes) {
				t.Fatalf("step %d: two Nodes were assigned overlapping prefixes: %v and %v\n%s", step, a.node, b.node, m)
			}
		}
	}
}

func overlap(a, b []netip.Prefix) bool {
	for _, p := range a {
		if overlapsAny(p, b) {
			return true
		}
	}
	return false
}

func TestLedgerAgreesWithModel(t *testing.T) {
	for seed := range uint64(150) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			drive(t, 120, rand.New(rand.NewPCG(seed, 1)).IntN)
		})
	}
}

func FuzzLedger(f *testing.F) {
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Add([]byte{1, 7, 2, 7, 3, 7, 4, 7, 5, 7, 6, 7, 7, 7, 8, 7, 9, 7, 1, 2, 1, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		drive(t, min(len(data)/2, 200), func(n int) int {
			if at >= len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		})
	})
}

func FuzzPool(f *testing.F) {
	f.Add("10.244.0.0/16", 24, "10.244.3.0/22")
	f.Add("fd00:10:244::/48", 64, "fd00:10:244:8000::/49")
	f.Add("::ffff:10.0.0.0/112", 120, "::/0")
	f.Add("2001:db8::/56", 72, "2001:db8::1:0:0:0/70")
	f.Add("10.0.0.5/24", 20, "10.0.0.0/8")
	f.Fuzz(func(t *testing.T, text string, nodeMask int, blocked string) {
		prefix, _ := netip.ParsePrefix(text)
		pool, err := NewPool(PoolConfig{prefix, nodeMask})
		if err != nil {
			return
		}
		all := slots(PoolConfig{prefix, nodeMask})
		if got := pool.Counts().Free; got != len(all) {
			t.Fatalf("%s has %d node prefixes of /%d, the pool counts %d", prefix, len(all), nodeMask, got)
		}
		block, _ := netip.ParsePrefix(blocked)
		pool.Block(block)
		for _, want := range all {
			if want.Overlaps(block) {
				continue
			}
			if got, ok := pool.Take("holder"); !ok || got != want {
				t.Fatalf("Take() = %s, %t, want %s", got, ok, want)
			}
		}
		if got, ok := pool.Take("holder"); ok {
			t.Fatalf("Take() = %s from a pool without free node prefixes", got)
		}
	})
}
