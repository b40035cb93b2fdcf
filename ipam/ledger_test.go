package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	a = Node{Name: "a", UID: "uid-a"}
	b = Node{Name: "b", UID: "uid-b"}
	c = Node{Name: "c", UID: "uid-c"}
)

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		out = append(out, pfx(text))
	}
	return out
}

// dualStack has room for 8 Nodes in IPv4 and 4 in IPv6.
func dualStack(t *testing.T, exclusions ...string) *Ledger {
	t.Helper()
	l, err := NewLedger([]PoolConfig{{pfx("10.0.0.0/21"), 24}, {pfx("fd00::/62"), 64}}, prefixes(exclusions...))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func assign(t *testing.T, l *Ledger, node Node, want ...string) {
	t.Helper()
	got, err := l.Assign(node)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prefixes(want...), got, comparePrefixes); diff != "" {
		t.Fatalf("Assign(%s) (-want +got):\n%s", node.Name, diff)
	}
}

func observe(t *testing.T, l *Ledger, node Node, seen []netip.Prefix, want ...Warning) {
	t.Helper()
	if diff := cmp.Diff(want, l.Observe(node, seen), comparePrefixes); diff != "" {
		t.Fatalf("Observe(%s, %v) (-want +got):\n%s", node.Name, seen, diff)
	}
}

// onlyIPv4 is what dualStack says of a Node that has no IPv6 podCIDR.
func onlyIPv4(node Node, has string) Warning {
	return Warning{Kind: MissingFamily, Node: node, Prefix: pfx(has), Against: pfx("fd00::/62")}
}

func TestNewLedgerRejects(t *testing.T) {
	for _, c := range []struct {
		name       string
		pools      []PoolConfig
		exclusions []netip.Prefix
		want       []string
	}{
		{"no pools", nil, nil, []string{"no pools"}},
		{
			"an overlap, naming both",
			[]PoolConfig{{pfx("10.0.0.0/16"), 24}, {pfx("10.0.128.0/17"), 25}},
			nil,
			[]string{"pool 10.0.128.0/17 overlaps pool 10.0.0.0/16"},
		},
		{
			"everything wrong at once",
			[]PoolConfig{{pfx("10.0.0.0/16"), 33}, {pfx("fd00::/32"), 64}, {pfx("10.1.0.0/24"), 26}},
			[]netip.Prefix{{}, pfx("10.1.0.0/16")},
			[]string{"node mask /33", "pool of /48 or longer", "exclusion \"invalid Prefix\"", "pool 10.1.0.0/24: the exclusions leave nothing"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewLedger(c.pools, c.exclusions)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
		})
	}
}

func TestAssignIsIdempotentAndKeepsTheOrderOfFamilies(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	assign(t, l, b, "10.0.1.0/24", "fd00:0:0:1::/64")
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")

	sixFirst, err := NewLedger([]PoolConfig{{pfx("fd00::/62"), 64}, {pfx("10.0.0.0/21"), 24}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	assign(t, sixFirst, a, "fd00::/64", "10.0.0.0/24")
}

func TestAssignTakesAllFamiliesOrNone(t *testing.T) {
	l := dualStack(t)
	for i := range 4 {
		if _, err := l.Assign(Node{UID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
	before := l.Counts()
	for range 3 {
		_, err := l.Assign(a)
		if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), "fd00::/62") || strings.Contains(err.Error(), "10.0.0.0/21") {
			t.Fatalf("Assign: error %v, want ErrNoRoom that names fd00::/62 only", err)
		}
	}
	if diff := cmp.Diff(before, l.Counts(), comparePrefixes); diff != "" {
		t.Errorf("a failed Assign took something (-before +after):\n%s", diff)
	}
	if l.Room() != 0 {
		t.Errorf("Room() = %d, want 0", l.Room())
	}
	l.Release("2")
	assign(t, l, a, "10.0.4.0/24", "fd00:0:0:2::/64")
}

func TestAssignFallsBackToTheNextPoolOfAFamily(t *testing.T) {
	l, err := NewLedger([]PoolConfig{{pfx("10.0.0.0/24"), 24}, {pfx("fd00::/62"), 64}, {pfx("10.9.0.0/24"), 25}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	assign(t, l, b, "10.9.0.0/25", "fd00:0:0:1::/64")
	if l.Room() != 1 {
		t.Errorf("Room() = %d, want 1: one IPv4 node prefix is left", l.Room())
	}
}

func TestObserveTakesWhatItSeesOutOfCirculation(t *testing.T) {
	l := dualStack(t, "10.0.3.0/24", "fd00::/64")
	observe(t, l, a, prefixes("10.0.0.7/24", "fd00:0:0:1::/64"))
	observe(t, l, b, prefixes("10.0.1.128/25"),
		Warning{Kind: WrongSize, Node: b, Prefix: pfx("10.0.1.128/25"), Against: pfx("10.0.0.0/21")}, onlyIPv4(b, "10.0.1.128/25"))
	observe(t, l, c, prefixes("172.20.0.0/24", "fd00::/64"),
		Warning{Kind: OutsidePools, Node: c, Prefix: pfx("172.20.0.0/24")},
		Warning{Kind: Excluded, Node: c, Prefix: pfx("fd00::/64"), Against: pfx("fd00::/64")})
	observe(t, l, c, nil)
	assign(t, l, Node{UID: "d"}, "10.0.2.0/24", "fd00:0:0:2::/64")
	assign(t, l, Node{UID: "e"}, "10.0.4.0/24", "fd00:0:0:3::/64")

	want := []Counts{
		{Pool: pfx("10.0.0.0/21"), NodeMask: 24, Free: 3, Allocated: 3, Excluded: 1, Foreign: 1},
		{Pool: pfx("fd00::/62"), NodeMask: 64, Free: 0, Allocated: 3, Excluded: 1},
	}
	if diff := cmp.Diff(want, l.Counts(), comparePrefixes); diff != "" {
		t.Errorf("Counts (-want +got):\n%s", diff)
	}
	assign(t, l, a, "10.0.0.0/24", "fd00:0:0:1::/64")
}

func TestObserveReadsMappedAddressesAsIPv4(t *testing.T) {
	l := dualStack(t)
	observe(t, l, a, []netip.Prefix{pfx("::ffff:10.0.0.0/120"), {}, pfx("10.0.0.0/24")}, onlyIPv4(a, "10.0.0.0/24"))
	if h, _ := l.Lookup(a.UID); len(h.Prefixes) != 1 || h.Prefixes[0] != pfx("10.0.0.0/24") || !h.Observed {
		t.Errorf("Lookup = %+v, want 10.0.0.0/24 observed", h)
	}
}

func TestTheFirstHolderKeepsAndTheLastOneFrees(t *testing.T) {
	l := dualStack(t)
	observe(t, l, a, prefixes("10.0.0.0/24"), onlyIPv4(a, "10.0.0.0/24"))
	duplicate := Warning{Kind: Duplicate, Node: b, Prefix: pfx("10.0.0.0/24"), Against: pfx("10.0.0.0/24"), Holder: a}
	observe(t, l, b, prefixes("10.0.0.0/24"), duplicate, onlyIPv4(b, "10.0.0.0/24"))
	observe(t, l, b, prefixes("10.0.0.0/24"), duplicate, onlyIPv4(b, "10.0.0.0/24"))
	observe(t, l, a, prefixes("10.0.0.0/24"), onlyIPv4(a, "10.0.0.0/24"))
	covering := prefixes("10.0.0.0/22")
	observe(t, l, c, covering,
		Warning{Kind: WrongSize, Node: c, Prefix: covering[0], Against: pfx("10.0.0.0/21")},
		Warning{Kind: Duplicate, Node: c, Prefix: covering[0], Against: pfx("10.0.0.0/24"), Holder: a}, onlyIPv4(c, "10.0.0.0/22"))

	if diff := cmp.Diff(prefixes("10.0.0.0/24"), l.Release(a.UID), comparePrefixes); diff != "" {
		t.Errorf("Release(a) (-want +got):\n%s", diff)
	}
	observe(t, l, b, prefixes("10.0.0.0/24"), onlyIPv4(b, "10.0.0.0/24"))
	if got := l.Counts()[0]; got.Allocated != 1 || got.Foreign != 3 || got.Free != 4 {
		t.Errorf("b and c still hold theirs, but the counts are %+v", got)
	}
	l.Release(b.UID)
	if got := l.Counts()[0]; got.Foreign != 4 || got.Free != 4 {
		t.Errorf("c still holds 10.0.0.0/22, but the counts are %+v", got)
	}
	l.Release(c.UID)
	if got := l.Counts()[0]; got.Free != 8 {
		t.Errorf("nobody holds anything, but the counts are %+v", got)
	}
}

func TestReleasingASecondHolderChangesNothingForTheFirst(t *testing.T) {
	l := dualStack(t)
	observe(t, l, a, prefixes("10.0.0.0/24"), onlyIPv4(a, "10.0.0.0/24"))
	l.Observe(b, prefixes("10.0.0.0/24"))
	l.Release(b.UID)
	if l.Release("unknown") != nil {
		t.Error("Release of an unknown UID returned prefixes")
	}
	assign(t, l, c, "10.0.1.0/24", "fd00::/64")
}

func TestObservedReplacesReserved(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	observe(t, l, a, prefixes("10.0.0.0/24"), onlyIPv4(a, "10.0.0.0/24"))
	if got := l.Counts()[1].Free; got != 4 {
		t.Errorf("%d free in fd00::/62, want 4: the Node was observed without it", got)
	}
	assign(t, l, a, "10.0.0.0/24")
}

func TestTwoUIDsOfOneNameAreTwoOwners(t *testing.T) {
	l := dualStack(t)
	assign(t, l, Node{"a", "old"}, "10.0.0.0/24", "fd00::/64")
	assign(t, l, Node{"a", "new"}, "10.0.1.0/24", "fd00:0:0:1::/64")
	l.Release("old")
	assign(t, l, Node{"a", "new"}, "10.0.1.0/24", "fd00:0:0:1::/64")
	if h, has := l.Lookup("old"); has {
		t.Errorf("the old one still holds %v", h.Prefixes)
	}
	got, _ := l.Lookup("new")
	want := Holding{Node: Node{"a", "new"}, Prefixes: prefixes("10.0.1.0/24", "fd00:0:0:1::/64")}
	if diff := cmp.Diff(want, got, comparePrefixes); diff != "" {
		t.Errorf("Lookup (-want +got):\n%s", diff)
	}
}

func TestAReservationThatAnotherNodeHasIsReplacedButKept(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	observe(t, l, b, prefixes("10.0.0.0/24"),
		Warning{Kind: Duplicate, Node: b, Prefix: pfx("10.0.0.0/24"), Against: pfx("10.0.0.0/24"), Holder: a}, onlyIPv4(b, "10.0.0.0/24"))
	assign(t, l, a, "10.0.1.0/24", "fd00:0:0:1::/64")
	assign(t, l, a, "10.0.1.0/24", "fd00:0:0:1::/64")
	assign(t, l, c, "10.0.2.0/24", "fd00:0:0:2::/64")

	// The first request arrived after all: that is what the Node has now.
	l.Observe(a, prefixes("10.0.0.0/24", "fd00::/64"))
	if got := l.Counts(); got[0].Free != 6 || got[1].Free != 2 {
		t.Errorf("the second reservation was not given back: %+v", got)
	}
	// A Node that holds what it was observed with never gets anything else.
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
}

func TestAContestedReservationWaitsForRoom(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	l.Observe(b, prefixes("10.0.0.0/16", "fd00::/48"))
	if _, err := l.Assign(a); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("Assign: %v, want ErrNoRoom", err)
	}
	l.Release(b.UID)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
}

func TestADisagreementStopsEverything(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	if err := l.pools[0].Release(pfx("10.0.0.0/24"), a.UID); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if recover() == nil {
			t.Error("Release went on with a pool that disagrees")
		}
	}()
	l.Release(a.UID)
}

func TestWarningsNameNodePrefixAndRemedy(t *testing.T) {
	for kind, want := range map[WarningKind]string{
		OutsidePools:  "add a pool",
		WrongSize:     "node mask",
		Excluded:      "exclusion",
		Duplicate:     "Node b had 10.0.0.0/16 before",
		MissingFamily: "delete this Node and let it join again",
		0:             "unknown",
	} {
		text := Warning{Kind: kind, Node: a, Prefix: pfx("10.0.1.0/24"), Against: pfx("10.0.0.0/16"), Holder: b}.String()
		if !strings.Contains(text, "Node a") || !strings.Contains(text, "10.0.1.0/24") || !strings.Contains(text, want) {
			t.Errorf("warning %d says %q, want Node a, 10.0.1.0/24 and %q", kind, text, want)
		}
	}
}

func TestANodeOfOneFamilyIsPointedOut(t *testing.T) {
	l := dualStack(t)
	observe(t, l, a, prefixes("10.0.0.0/24", "fd00::/64"))
	observe(t, l, b, prefixes("fd00:0:0:1::/64"),
		Warning{Kind: MissingFamily, Node: b, Prefix: pfx("fd00:0:0:1::/64"), Against: pfx("10.0.0.0/21")})
	// podCIDRs never change, so nothing is added to it.
	assign(t, l, b, "fd00:0:0:1::/64")

	single, err := NewLedger([]PoolConfig{{pfx("10.0.0.0/24"), 26}, {pfx("10.0.1.0/24"), 26}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	observe(t, single, a, prefixes("10.0.1.0/26"))
	observe(t, single, b, prefixes("fd00::/64"),
		Warning{Kind: OutsidePools, Node: b, Prefix: pfx("fd00::/64")},
		Warning{Kind: MissingFamily, Node: b, Prefix: pfx("fd00::/64"), Against: pfx("10.0.0.0/24")})
}
