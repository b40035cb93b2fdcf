package ipam

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func machine(name, uid, id string) Node {
	return Node{Name: name, UID: uid, ProviderID: "hcloud://" + id}
}

func release(t *testing.T, l *Ledger, uid string, now time.Time) Holding {
	t.Helper()
	h, ok := l.Release(uid, now)
	if !ok {
		t.Fatalf("Release(%s): nothing held", uid)
	}
	return h
}

func wantCounts(t *testing.T, l *Ledger, pool string, want Counts) {
	t.Helper()
	for _, c := range l.Counts() {
		if c.Name != pool {
			continue
		}
		want.Name, want.Pool, want.NodeMask, want.State = c.Name, c.Pool, c.NodeMask, c.State
		if c != want {
			t.Errorf("counts are %+v, want %+v", c, want)
		}
		return
	}
	t.Errorf("no pool %s in the counts", pool)
}

func TestQuarantineHoldsUntilItIsFreed(t *testing.T) {
	l := mustLedger(t, []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/23"), NodeMask: 24}})
	assign(t, l, a, "10.0.0.0/24")
	assign(t, l, b, "10.0.1.0/24")
	local := noon.In(time.FixedZone("here", 3600))
	h := release(t, l, a.UID, local)
	want := Holding{Node: a, Prefixes: prefixes("10.0.0.0/24"), Pools: map[netip.Prefix]string{pfx("10.0.0.0/24"): "v4"}, Released: noon}
	if diff := cmp.Diff(want, h, comparePrefixes); diff != "" {
		t.Errorf("Release (-want +got):\n%s", diff)
	}
	if h.Released != noon {
		t.Errorf("the time is %s, want it in UTC", h.Released)
	}
	if h = release(t, l, a.UID, noon.Add(time.Hour)); !h.Released.Equal(noon) {
		t.Errorf("a second Release set the time to %s", h.Released)
	}
	wantCounts(t, l, "v4", Counts{Allocated: 1, Quarantined: 1})
	if _, err := l.Assign(c, Offer{}); !errors.Is(err, ErrNoRoom) {
		t.Errorf("Assign: %v, want ErrNoRoom while the rest is in quarantine", err)
	}
	release(t, l, b.UID, noon.Add(-time.Minute))
	var order []string
	for _, h := range l.Quarantined() {
		order = append(order, h.Node.Name)
	}
	if diff := cmp.Diff([]string{"b", "a"}, order); diff != "" {
		t.Errorf("Quarantined is not in the order of the times (-want +got):\n%s", diff)
	}
	l.Free(a.UID)
	wantCounts(t, l, "v4", Counts{Free: 1, Quarantined: 1})
	assign(t, l, c, "10.0.0.0/24")
	if _, ok := l.Release("unknown", noon); ok {
		t.Error("Release of an unknown UID found something")
	}
}

func TestQuarantinedAtTheSameTimeComesByName(t *testing.T) {
	l := dualStack(t)
	for _, n := range []Node{c, a, b} {
		if _, err := l.Assign(n, Offer{}); err != nil {
			t.Fatal(err)
		}
		release(t, l, n.UID, noon)
	}
	for i, want := range []Node{a, b, c} {
		if got := l.Quarantined()[i].Node; got != want {
			t.Errorf("Quarantined()[%d] is %v, want %v", i, got, want)
		}
	}
}

func TestReleaseWithoutATimeIsStillAQuarantine(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	if h := release(t, l, a.UID, time.Time{}); h.Released.IsZero() || len(l.Quarantined()) != 1 {
		t.Errorf("Release = %+v with %d in quarantine, want 1", h, len(l.Quarantined()))
	}
}

func TestASecondHolderOutlivesTheQuarantineOfTheFirst(t *testing.T) {
	l := mustLedger(t, []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/23"), NodeMask: 24}})
	observe(t, l, a, prefixes("10.0.0.0/24"))
	observe(t, l, b, prefixes("10.0.0.0/24"),
		Warning{Kind: Duplicate, Node: b, Prefix: pfx("10.0.0.0/24"), Against: pfx("10.0.0.0/24"), Holder: a})
	release(t, l, a.UID, noon)
	// a is freed, so b has no conflict left.
	observe(t, l, b, prefixes("10.0.0.0/24"))
	wantCounts(t, l, "v4", Counts{Free: 1, Allocated: 1})
	release(t, l, b.UID, noon)
	wantCounts(t, l, "v4", Counts{Free: 1, Quarantined: 1})
	l.Free(a.UID)
	wantCounts(t, l, "v4", Counts{Free: 1, Quarantined: 1})
	l.Free(b.UID)
	wantCounts(t, l, "v4", Counts{Free: 2})
}

func TestANodeThatIsObservedAgainIsNotGone(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	release(t, l, a.UID, noon)
	observe(t, l, a, prefixes("10.0.0.0/24", "fd00::/64"))
	wantCounts(t, l, "v4", Counts{Free: 7, Allocated: 1})

	release(t, l, a.UID, noon)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	if len(l.Quarantined()) != 0 {
		t.Errorf("in quarantine: %+v", l.Quarantined())
	}
	wantCounts(t, l, "v6", Counts{Free: 3, Allocated: 1})
}

func TestAMachineThatComesBackGetsTheSame(t *testing.T) {
	for _, test := range []struct {
		name   string
		before func(t *testing.T, l *Ledger) // runs after the machine's Node went into quarantine
		back   Node
		offer  Offer
		want   []string
	}{
		{name: "the same name and machine", back: machine("a", "new", "1"), want: []string{"10.0.0.0/24", "fd00::/64"}},
		{name: "another machine", back: machine("a", "new", "2"), want: []string{"10.0.1.0/24", "fd00:0:0:1::/64"}},
		{name: "another name", back: machine("b", "new", "1"), want: []string{"10.0.1.0/24", "fd00:0:0:1::/64"}},
		{name: "a machine not known yet", back: Node{Name: "a", UID: "new"}, want: []string{"10.0.1.0/24", "fd00:0:0:1::/64"}},
		{
			name: "a pool that is not for it any more", back: machine("a", "new", "1"),
			offer: Offer{Pools: func(name string) bool { return name != "v6" }},
			want:  []string{"10.0.1.0/24", "fd00:1::/64"},
		},
		{
			name: "excluded meanwhile", back: machine("a", "new", "1"),
			before: func(_ *testing.T, l *Ledger) { l.SetExclusions(prefixes("fd00::1/128")) },
			want:   []string{"10.0.1.0/24", "fd00:0:0:1::/64"},
		},
		{
			name: "taken by another meanwhile", back: machine("a", "new", "1"),
			before: func(_ *testing.T, l *Ledger) { l.Observe(b, prefixes("10.0.0.0/25", "fd00:0:0:3::/64"), noon) },
			want:   []string{"10.0.1.0/24", "fd00:0:0:1::/64"},
		},
		{
			name: "the machine was here twice", back: machine("a", "new", "1"),
			before: func(t *testing.T, l *Ledger) {
				// The quarantine of its first Node is not over.
				second := machine("a", "second", "2")
				if _, err := l.Assign(second, Offer{}); err != nil {
					t.Fatal(err)
				}
				l.Observe(machine("a", "second", "1"), prefixes("10.0.1.0/24", "fd00:0:0:1::/64"), noon)
				release(t, l, "second", noon.Add(time.Second))
			},
			want: []string{"10.0.1.0/24", "fd00:0:0:1::/64"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := mustLedger(t, append(dualStackPools(), PoolConfig{Name: "more", Prefix: pfx("fd00:1::/63"), NodeMask: 64}))
			assign(t, l, machine("a", "old", "1"), "10.0.0.0/24", "fd00::/64")
			release(t, l, "old", noon)
			if test.before != nil {
				test.before(t, l)
			}
			got, err := l.Assign(test.back, test.offer)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(prefixes(test.want...), got, comparePrefixes); diff != "" {
				t.Errorf("Assign (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTakingOverMovesEverything(t *testing.T) {
	l := dualStack(t)
	assign(t, l, machine("a", "old", "1"), "10.0.0.0/24", "fd00::/64")
	release(t, l, "old", noon)
	assign(t, l, machine("a", "new", "1"), "10.0.0.0/24", "fd00::/64")
	if _, has := l.Lookup("old"); has {
		t.Error("the old UID still holds something")
	}
	if text := recordsOf(l, "a"); text != "uid=new id=hcloud://1 10.0.0.0/24@v4 fd00::/64@v6" {
		t.Errorf("Records(a) = %q", text)
	}
	wantCounts(t, l, "v4", Counts{Free: 7, Allocated: 1})
	claims, _ := l.claims.Get(pfx("10.0.0.0/24"))
	if len(claims) != 1 || claims[0].holder.Node.UID != "new" {
		t.Errorf("the claims are %+v, want that of the new holder alone", claims)
	}
	l.Free("new")
	wantCounts(t, l, "v4", Counts{Free: 8})
	if recordsOf(l, "a") != "" {
		t.Error("there is a record of a Node that holds nothing")
	}
}

func TestAMachineComesBackToADrainingPool(t *testing.T) {
	pools := dualStackPools()
	old := mustLedger(t, pools)
	assign(t, old, machine("a", "old", "1"), "10.0.0.0/24", "fd00::/64")
	stored := release(t, old, "old", noon)

	pools[0].State = Draining
	l := mustLedger(t, append(pools, PoolConfig{Name: "new", Prefix: pfx("10.1.0.0/24"), NodeMask: 25}))
	l.Restore(stored)
	assign(t, l, machine("a", "new", "1"), "10.0.0.0/24", "fd00::/64")
	assign(t, l, b, "10.1.0.0/25", "fd00:0:0:1::/64")
	if l.Room() != 1 {
		t.Errorf("Room() = %d, want 1: what is free in a draining pool does not count", l.Room())
	}
}

func TestThePrefixesOfAMachineThatComesBackAreInTheOrderOfTheFamilies(t *testing.T) {
	l := mustLedger(t, []PoolConfig{dualStackPools()[1], dualStackPools()[0]})
	l.Observe(machine("a", "old", "1"), prefixes("10.0.3.0/24", "fd00:0:0:2::/64"), noon)
	release(t, l, "old", noon)
	assign(t, l, machine("a", "new", "1"), "fd00:0:0:2::/64", "10.0.3.0/24")
}

func TestAProviderIDIsNotForgotten(t *testing.T) {
	l := dualStack(t)
	assign(t, l, Node{Name: "a", UID: "1"}, "10.0.0.0/24", "fd00::/64")
	observe(t, l, machine("a", "1", "7"), prefixes("10.0.0.0/24", "fd00::/64"))
	observe(t, l, Node{Name: "a", UID: "1"}, prefixes("10.0.0.0/24", "fd00::/64"))
	if h, _ := l.Lookup("1"); h.Node.ProviderID != "hcloud://7" {
		t.Errorf("the provider ID is %q", h.Node.ProviderID)
	}
	if text := recordOf(l, "1"); text != "uid=1 id=hcloud://7 10.0.0.0/24@v4 fd00::/64@v6" {
		t.Errorf("Record = %q", text)
	}
}

func TestOfTwoThatWentAtOnceTheFirstUIDComesBack(t *testing.T) {
	for _, order := range [][]string{{"1", "2"}, {"2", "1"}} {
		l := dualStack(t)
		for _, uid := range order {
			has := prefixes("10.0."+uid+".0/24", "fd00:0:0:"+uid+"::/64")
			l.Restore(Holding{Node: machine("a", uid, "7"), Prefixes: has, Released: noon})
		}
		assign(t, l, machine("a", "new", "7"), "10.0.1.0/24", "fd00:0:0:1::/64")
	}
}

func TestAUIDUnderAnotherName(t *testing.T) {
	l := dualStack(t)
	assign(t, l, Node{Name: "a", UID: "1"}, "10.0.0.0/24", "fd00::/64")
	assign(t, l, Node{Name: "b", UID: "1"}, "10.0.0.0/24", "fd00::/64")
	old := recordsOf(l, "a")
	if lines := recordsOf(l, "b"); old != "" || lines == "" {
		t.Errorf("Records: %q under the old name, %q under the new", old, lines)
	}
}

// A Node that was recorded as deleted exists, and has no podCIDRs yet.
func TestARevivedNodeHasItsReservation(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	release(t, l, a.UID, noon)
	l.Revive(a.UID)
	l.Revive("unknown")
	wantCounts(t, l, "v4", Counts{Free: 7, Allocated: 1})
	if left := l.Quarantined(); len(left) > 0 {
		t.Errorf("in quarantine: %v", left)
	}
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
}

// The machine may have had the abandoned prefixes instead of its last reservation, and a route to
// them may exist.
func TestAReturningMachineWithAbandonedPrefixesGetsOthers(t *testing.T) {
	l := dualStack(t)
	assign(t, l, machine("a", "1", "7"), "10.0.0.0/24", "fd00::/64")
	l.Observe(b, prefixes("10.0.0.0/24", "fd00:0:0:3::/64"), noon)
	assign(t, l, machine("a", "1", "7"), "10.0.1.0/24", "fd00:0:0:1::/64")
	release(t, l, "1", noon)
	assign(t, l, machine("a", "2", "7"), "10.0.2.0/24", "fd00:0:0:2::/64")
}
