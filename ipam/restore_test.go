package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, name, line string) Holding {
	t.Helper()
	h, err := ParseRecord(name, line)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func restore(t *testing.T, l *Ledger, name, line string, want ...Warning) {
	t.Helper()
	if diff := cmp.Diff(want, l.Restore(parse(t, name, line)), comparePrefixes); diff != "" {
		t.Fatalf("Restore(%s, %s) (-want +got):\n%s", name, line, diff)
	}
}

func TestRestoredReservationsAreKept(t *testing.T) {
	l := dualStack(t)
	restore(t, l, "a", "uid=uid-a 10.0.0.0/24@v4 fd00::/64@v6 abandoned=10.0.1.0/24@v4")
	restore(t, l, "b", "uid=uid-b 10.0.2.0/24@v4 fd00:0:0:1::/64@v6 released=2026-11-20T12:00:00Z")
	wantCounts(t, l, "v4", Counts{Free: 5, Allocated: 2, Quarantined: 1})
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	assign(t, l, c, "10.0.3.0/24", "fd00:0:0:2::/64")
	if q := l.Quarantined(); len(q) != 1 || q[0].Node.Name != "b" || !q[0].Released.Equal(noon) {
		t.Errorf("Quarantined() = %+v, want b since noon", q)
	}
	// Observed podCIDRs win over abandoned ones.
	observe(t, l, a, prefixes("10.0.1.0/24", "fd00::/64"))
	wantCounts(t, l, "v4", Counts{Free: 4, Allocated: 2, Quarantined: 2})
}

func TestRestoringCollisionsTheFirstWins(t *testing.T) {
	l := dualStack(t)
	restore(t, l, "a", "uid=uid-a 10.0.0.0/24@v4 fd00::/64@v6")
	restore(t, l, "b", "uid=uid-b 10.0.0.0/25 fd00:0:0:1::/64@v6",
		Warning{Kind: DuplicateRecord, Node: b, Prefix: pfx("10.0.0.0/25"), Against: pfx("10.0.0.0/24"), Holder: a})
	restore(t, l, "c", "uid=uid-c 10.0.0.0/24@v4 fd00:0:0:2::/64@v6 released=2026-11-20T12:00:00Z")
	assign(t, l, a, "10.0.1.0/24", "fd00:0:0:3::/64")

	l = dualStack(t)
	restore(t, l, "a", "uid=uid-a 10.0.0.0/24@v4 fd00::/64@v6")
	restore(t, l, "b", "uid=uid-b 10.0.0.0/24@v4 fd00:0:0:1::/64@v6",
		Warning{Kind: DuplicateRecord, Node: b, Prefix: pfx("10.0.0.0/24"), Against: pfx("10.0.0.0/24"), Holder: a})
	assign(t, l, b, "10.0.1.0/24", "fd00:0:0:2::/64")
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	if text := recordOf(l, b.UID); text != "uid=uid-b 10.0.1.0/24@v4 fd00:0:0:2::/64@v6 abandoned=10.0.0.0/24@v4,fd00:0:0:1::/64@v6" {
		t.Errorf("Record(b) = %q", text)
	}
}

func TestRestoringAUIDTwiceKeepsAll(t *testing.T) {
	l := dualStack(t)
	restore(t, l, "a", "uid=uid-a 10.0.0.0/24@v4 fd00::/64@v6")
	restore(t, l, "z", "uid=uid-a 10.0.1.0/24@v4 fd00::/64@v6 released=2026-11-20T12:00:00Z")
	if text := recordOf(l, a.UID); text != "uid=uid-a 10.0.0.0/24@v4 fd00::/64@v6 abandoned=10.0.1.0/24@v4" {
		t.Errorf("Record(a) = %q", text)
	}
	if warnings := l.Restore(Holding{Node: b}); warnings != nil || len(l.Holdings()) != 1 {
		t.Errorf("a record without prefixes made the holdings %+v", l.Holdings())
	}
}

func TestReservationsThatThePoolsNoLongerHandOutAreReplaced(t *testing.T) {
	for _, test := range []struct {
		name, record string
		excluded     []string
		want         []string
	}{
		{"of a removed pool", "10.9.0.0/24@old fd00::/64@v6", nil, []string{"10.0.0.0/24", "fd00:0:0:1::/64"}},
		{"of another mask", "10.0.0.0/25@v4 fd00::/64@v6", nil, []string{"10.0.1.0/24", "fd00:0:0:1::/64"}},
		{"excluded", "10.0.0.0/24@v4 fd00::/64@v6", []string{"10.0.0.9/32"}, []string{"10.0.1.0/24", "fd00:0:0:1::/64"}},
		{"without IPv6", "10.0.0.0/24@v4", nil, []string{"10.0.1.0/24", "fd00::/64"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := dualStack(t, test.excluded...)
			restore(t, l, "a", "uid=uid-a "+test.record)
			assign(t, l, a, test.want...)
			assign(t, l, a, test.want...)
			h, _ := l.Lookup(a.UID)
			if diff := cmp.Diff(parse(t, "a", "uid=uid-a "+test.record).Prefixes, h.Abandoned, comparePrefixes); diff != "" {
				t.Errorf("abandoned (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAReservationThatCanNotBeReplacedStays(t *testing.T) {
	l := mustLedger(t, []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/24"), NodeMask: 24}})
	restore(t, l, "a", "uid=uid-a 10.0.0.0/24@v4")
	l.SetExclusions(prefixes("10.0.0.0/32"))
	if _, err := l.Assign(a, Offer{}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("Assign: %v, want ErrNoRoom", err)
	}
	if text := recordOf(l, a.UID); text != "uid=uid-a 10.0.0.0/24@v4" {
		t.Errorf("Record(a) = %q", text)
	}
}

func TestRemovedNamesOrphansOfPools(t *testing.T) {
	l := mustLedger(t, []PoolConfig{
		{Name: "v4", Prefix: pfx("10.0.0.0/21"), NodeMask: 24}, {Name: "own", NodeMask: 80, Own: true},
	})
	restore(t, l, "a", "uid=uid-a 10.9.0.0/24@old 2001:db8:1:2:1::/80@own")
	restore(t, l, "b", "uid=uid-b 10.0.0.0/25@v4 2001:db8:1:3:1::/80@gone released=2026-11-20T12:00:00Z")
	restore(t, l, "c", "uid=uid-c 10.0.1.0/24@renamed 192.168.0.0/24 abandoned=10.9.1.0/24@old")
	want := []Orphan{
		{"gone", b, pfx("2001:db8:1:3:1::/80")},
		{"old", a, pfx("10.9.0.0/24")},
		{"old", c, pfx("10.9.1.0/24")},
		{"v4", b, pfx("10.0.0.0/25")},
	}
	if diff := cmp.Diff(want, l.Removed(), comparePrefixes); diff != "" {
		t.Errorf("Removed (-want +got):\n%s", diff)
	}
	if h, _ := l.Lookup(c.UID); h.Pools[pfx("10.0.1.0/24")] != "v4" || !foreign(h) {
		t.Errorf("Lookup(c) = %+v, want 10.0.1.0/24 in v4, and foreign because of the other", h)
	}
	l.Observe(a, prefixes("10.9.0.0/24", "2001:db8:1:2:1::/80"), noon)
	if got := l.Removed(); len(got) != 4 || got[1].Prefix != pfx("10.9.0.0/24") {
		t.Errorf("seeing it made Removed %+v", got)
	}
	l.Observe(a, prefixes("10.0.3.0/24"), noon)
	l.Free(a.UID + RetiredSuffix)
	l.Free(b.UID)
	l.Free(c.UID)
	if got := l.Removed(); got != nil {
		t.Errorf("Removed() = %+v, want nothing", got)
	}
}

func TestSetExclusionsWarnsOfNewOverlaps(t *testing.T) {
	l := dualStack(t, "10.0.1.0/24")
	observe(t, l, a, prefixes("10.0.0.0/24", "fd00::/64"))
	observe(t, l, b, prefixes("10.0.1.0/24", "fd00:0:0:1::/64"),
		Warning{Kind: Excluded, Node: b, Prefix: pfx("10.0.1.0/24"), Against: pfx("10.0.1.0/24")})
	observe(t, l, c, prefixes("10.0.2.0/24", "fd00:0:0:2::/64"))
	release(t, l, c.UID, noon)
	want := []Warning{
		{Kind: Excluded, Node: a, Prefix: pfx("10.0.0.0/24"), Against: pfx("10.0.0.0/22")},
		{Kind: Excluded, Node: b, Prefix: pfx("fd00:0:0:1::/64"), Against: pfx("fd00:0:0:1::1/128")},
	}
	now := []netip.Prefix{pfx("fd00:0:0:1::1/128"), pfx("10.0.3.9/22"), {}}
	if diff := cmp.Diff(want, l.SetExclusions(now), comparePrefixes); diff != "" {
		t.Errorf("SetExclusions (-want +got):\n%s", diff)
	}
	wantCounts(t, l, "v4", Counts{Free: 4, Excluded: 4})
	if got := l.SetExclusions(now); got != nil {
		t.Errorf("the same exclusions again: %v", got)
	}
	assign(t, l, Node{UID: "d"}, "10.0.4.0/24", "fd00:0:0:3::/64")
	l.SetExclusions(nil)
	wantCounts(t, l, "v4", Counts{Free: 4, Allocated: 3, Quarantined: 1})
}

// The order in which holdings are restored or observed doesn't change the pools.
func TestOrderDoesNotMatter(t *testing.T) {
	build := func(order []int) *Ledger {
		l := mustLedger(t, smallPools[0])
		for _, i := range order {
			n := machine(fmt.Sprint("n", i), fmt.Sprint("u", i), fmt.Sprint(i))
			has := []netip.Prefix{l.pools[0].grid.at(uint64(i)), misfits[5+i]}
			switch i % 3 {
			case 0:
				l.Observe(n, has, noon)
			case 1:
				l.Restore(Holding{Node: n, Prefixes: has, Abandoned: prefixes("10.0.1.8/29"), Pools: map[netip.Prefix]string{has[0]: "v4"}})
			case 2:
				l.Restore(Holding{Node: n, Prefixes: has, Released: noon})
			}
		}
		return l
	}
	want := build([]int{0, 1, 2, 3, 4})
	for seed := range uint64(30) {
		got := build(rand.New(rand.NewPCG(seed, 2)).Perm(5))
		if diff := cmp.Diff(want.Holdings(), got.Holdings(), comparePrefixes); diff != "" {
			t.Fatalf("Holdings (-in order +in another):\n%s", diff)
		}
		if diff := cmp.Diff(want.Counts(), got.Counts(), comparePrefixes); diff != "" {
			t.Fatalf("Counts (-in order +in another):\n%s", diff)
		}
		next, _ := want.Assign(a, Offer{})
		also, _ := got.Assign(a, Offer{})
		if diff := cmp.Diff(next, also, comparePrefixes); diff != "" {
			t.Fatalf("Assign (-in order +in another):\n%s", diff)
		}
		want.Free(a.UID)
		want = build([]int{0, 1, 2, 3, 4})
	}
}
