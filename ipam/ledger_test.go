package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var (
	a = Node{Name: "a", UID: "uid-a"}
	b = Node{Name: "b", UID: "uid-b"}
	c = Node{Name: "c", UID: "uid-c"}
)

func dualStackPools() []PoolConfig {
	return []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/21"), NodeMask: 24}, {Name: "v6", Prefix: pfx("fd00::/62"), NodeMask: 64}}
}

func mustLedger(t *testing.T, pools []PoolConfig, exclusions ...string) *Ledger {
	t.Helper()
	l, err := NewLedger(pools, prefixes(exclusions...))
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dualStack(t *testing.T, exclusions ...string) *Ledger {
	t.Helper()
	return mustLedger(t, dualStackPools(), exclusions...)
}

func assign(t *testing.T, l *Ledger, node Node, want ...string) {
	t.Helper()
	got, err := l.Assign(node, Offer{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prefixes(want...), got, comparePrefixes); diff != "" {
		t.Fatalf("Assign(%s) (-want +got):\n%s", node.Name, diff)
	}
}

func observe(t *testing.T, l *Ledger, node Node, seen []netip.Prefix, want ...Warning) {
	t.Helper()
	if diff := cmp.Diff(want, l.Observe(node, seen, noon), comparePrefixes); diff != "" {
		t.Fatalf("Observe(%s, %v) (-want +got):\n%s", node.Name, seen, diff)
	}
}

// onlyIPv4 is the warning of dualStack about a Node without an IPv6 podCIDR.
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
			[]PoolConfig{{Name: "p1", Prefix: pfx("10.0.0.0/16"), NodeMask: 24}, {Name: "p2", Prefix: pfx("10.0.128.0/17"), NodeMask: 25}},
			nil,
			[]string{"pool p2 (10.0.128.0/17) overlaps pool p1 (10.0.0.0/16)"},
		},
		{
			"everything wrong at once",
			[]PoolConfig{{Name: "p3", Prefix: pfx("10.0.0.0/16"), NodeMask: 33}, {Name: "p4", Prefix: pfx("fd00::/15"), NodeMask: 64}, {Name: "p5", Prefix: pfx("10.1.0.0/24"), NodeMask: 26}},
			[]netip.Prefix{{}, pfx("10.1.0.0/16")},
			[]string{"node mask /33", "pool of /16 or longer", "exclusion \"invalid Prefix\"", "pool p5 (10.1.0.0/24): the exclusions leave nothing"},
		},
		{
			"two pools of one name",
			[]PoolConfig{{Name: "own", NodeMask: 80, Own: true}, {Name: "own", Prefix: pfx("10.0.0.0/16"), NodeMask: 24}},
			nil,
			[]string{"pool own (10.0.0.0/16): another pool has that name too (pool own (the servers' own prefixes))"},
		},
		{"a nameless pool", []PoolConfig{{Prefix: pfx("10.0.0.0/16"), NodeMask: 24}}, nil, []string{`pool name "" of 10.0.0.0/16`, "a-z, 0-9"}},
		{"a name in capitals", []PoolConfig{{Name: "Pods", Prefix: pfx("10.0.0.0/16"), NodeMask: 24}}, nil, []string{`pool name "Pods"`}},
		{"a name with a space", []PoolConfig{{Name: "my pods", Prefix: pfx("10.0.0.0/16"), NodeMask: 24}}, nil, []string{`pool name "my pods"`}},
		{"a long name", []PoolConfig{{Name: strings.Repeat("a", 64), Prefix: pfx("10.0.0.0/16"), NodeMask: 24}}, nil, []string{"1 to 63"}},
		{"an unknown state", []PoolConfig{{Name: "v4", Prefix: pfx("10.0.0.0/16"), NodeMask: 24, State: 2}}, nil, []string{"unknown state 2: use active or draining"}},
		{"an own pool with a range", []PoolConfig{{Name: "own", Prefix: pfx("fd00::/64"), NodeMask: 80, Own: true}}, nil, []string{"has the prefix fd00::/64 as well"}},
		{"an own pool of /64", []PoolConfig{{Name: "own", NodeMask: 64, Own: true}}, nil, []string{"node mask /64", "use one between /65 and /126"}},
		{"an own pool of /127", []PoolConfig{{Name: "own", NodeMask: 127, Own: true}}, nil, []string{"node mask /127"}},
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

func TestADrainingPoolMayBeExcluded(t *testing.T) {
	pools := append(dualStackPools(), PoolConfig{Name: "old", Prefix: pfx("10.9.0.0/24"), NodeMask: 25, State: Draining})
	l := mustLedger(t, pools, "10.9.0.0/16")
	wantCounts(t, l, "old", Counts{Excluded: 2})
}

func TestAssignIsIdempotentAndKeepsTheOrderOfFamilies(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	assign(t, l, b, "10.0.1.0/24", "fd00:0:0:1::/64")
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")

	sixFirst, err := NewLedger([]PoolConfig{{Name: "p6", Prefix: pfx("fd00::/62"), NodeMask: 64}, {Name: "p7", Prefix: pfx("10.0.0.0/21"), NodeMask: 24}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	assign(t, sixFirst, a, "fd00::/64", "10.0.0.0/24")
}

func TestAssignTakesAllFamiliesOrNone(t *testing.T) {
	l := dualStack(t)
	for i := range 4 {
		if _, err := l.Assign(Node{UID: fmt.Sprint(i)}, Offer{}); err != nil {
			t.Fatal(err)
		}
	}
	before := l.Counts()
	for range 3 {
		_, err := l.Assign(a, Offer{})
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
	l.Free("2")
	assign(t, l, a, "10.0.4.0/24", "fd00:0:0:2::/64")
}

func TestAssignFallsBackToTheNextPoolOfAFamily(t *testing.T) {
	l, err := NewLedger([]PoolConfig{{Name: "p8", Prefix: pfx("10.0.0.0/24"), NodeMask: 24}, {Name: "p9", Prefix: pfx("fd00::/62"), NodeMask: 64}, {Name: "p10", Prefix: pfx("10.9.0.0/24"), NodeMask: 25}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	assign(t, l, b, "10.9.0.0/25", "fd00:0:0:1::/64")
	if l.Room() != 1 {
		t.Errorf("Room() = %d, want 1: one IPv4 node prefix is left", l.Room())
	}
}

func TestObserveTakesObservedPrefixesOutOfCirculation(t *testing.T) {
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
		{Name: "v4", Pool: pfx("10.0.0.0/21"), NodeMask: 24, Free: 3, Allocated: 3, Excluded: 1, Foreign: 1},
		{Name: "v6", Pool: pfx("fd00::/62"), NodeMask: 64, Free: 0, Allocated: 3, Excluded: 1},
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

	if diff := cmp.Diff(prefixes("10.0.0.0/24"), l.Free(a.UID), comparePrefixes); diff != "" {
		t.Errorf("Free(a) (-want +got):\n%s", diff)
	}
	observe(t, l, b, prefixes("10.0.0.0/24"), onlyIPv4(b, "10.0.0.0/24"))
	if got := l.Counts()[0]; got.Allocated != 1 || got.Foreign != 3 || got.Free != 4 {
		t.Errorf("b and c still hold theirs, but the counts are %+v", got)
	}
	l.Free(b.UID)
	if got := l.Counts()[0]; got.Foreign != 4 || got.Free != 4 {
		t.Errorf("c still holds 10.0.0.0/22, but the counts are %+v", got)
	}
	l.Free(c.UID)
	if got := l.Counts()[0]; got.Free != 8 {
		t.Errorf("nobody holds anything, but the counts are %+v", got)
	}
}

func TestReleasingASecondHolderChangesNothingForTheFirst(t *testing.T) {
	l := dualStack(t)
	observe(t, l, a, prefixes("10.0.0.0/24"), onlyIPv4(a, "10.0.0.0/24"))
	l.Observe(b, prefixes("10.0.0.0/24"), noon)
	l.Free(b.UID)
	if l.Free("unknown") != nil {
		t.Error("Free of an unknown UID returned prefixes")
	}
	assign(t, l, c, "10.0.1.0/24", "fd00::/64")
}

func TestObservedReplacesReserved(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	observe(t, l, a, prefixes("10.0.0.0/24"), onlyIPv4(a, "10.0.0.0/24"))
	if got := l.Counts()[1]; got.Free != 3 || got.Quarantined != 1 {
		t.Errorf("fd00::/62 is %+v, want what the Node was observed without in quarantine", got)
	}
	l.Free(a.UID + RetiredSuffix)
	if got := l.Counts()[1].Free; got != 4 {
		t.Errorf("%d free in fd00::/62 after the quarantine, want 4", got)
	}
	assign(t, l, a, "10.0.0.0/24")
}

func TestTwoUIDsOfOneNameAreTwoOwners(t *testing.T) {
	l := dualStack(t)
	assign(t, l, Node{Name: "a", UID: "old"}, "10.0.0.0/24", "fd00::/64")
	assign(t, l, Node{Name: "a", UID: "new"}, "10.0.1.0/24", "fd00:0:0:1::/64")
	l.Free("old")
	assign(t, l, Node{Name: "a", UID: "new"}, "10.0.1.0/24", "fd00:0:0:1::/64")
	if h, has := l.Lookup("old"); has {
		t.Errorf("the old one still holds %v", h.Prefixes)
	}
	got, _ := l.Lookup("new")
	want := Holding{Node: Node{Name: "a", UID: "new"}, Prefixes: prefixes("10.0.1.0/24", "fd00:0:0:1::/64"), Pools: map[netip.Prefix]string{pfx("10.0.1.0/24"): "v4", pfx("fd00:0:0:1::/64"): "v6"}}
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

	// The first request was applied after all, and determines the Node's podCIDRs.
	l.Observe(a, prefixes("10.0.0.0/24", "fd00::/64"), noon)
	if got := l.Counts(); got[0].Quarantined != 1 || got[1].Quarantined != 1 {
		t.Errorf("the second reservation is not in quarantine: %+v", got)
	}
	// An observed Node never gets other prefixes.
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
}

func TestAContestedReservationWaitsForRoom(t *testing.T) {
	l := dualStack(t)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
	l.Observe(b, prefixes("10.0.0.0/16", "fd00::/48"), noon)
	if _, err := l.Assign(a, Offer{}); !errors.Is(err, ErrNoRoom) {
		t.Fatalf("Assign: %v, want ErrNoRoom", err)
	}
	l.Free(b.UID)
	assign(t, l, a, "10.0.0.0/24", "fd00::/64")
}

func TestWarningsNameNodePrefixAndRemedy(t *testing.T) {
	for kind, want := range map[WarningKind]string{
		OutsidePools:    "add a pool",
		WrongSize:       "node mask",
		Excluded:        "exclusion",
		Duplicate:       "Node b had 10.0.0.0/16 before",
		MissingFamily:   "delete this Node and let it join again",
		DuplicateRecord: "10.0.0.0/16 for Node b too: recreate one of them, or correct the record",
		0:               "unknown",
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
	// podCIDRs are immutable, so b gets no IPv4 prefix.
	assign(t, l, b, "fd00:0:0:1::/64")

	single, err := NewLedger([]PoolConfig{{Name: "p11", Prefix: pfx("10.0.0.0/24"), NodeMask: 26}, {Name: "p12", Prefix: pfx("10.0.1.0/24"), NodeMask: 26}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	observe(t, single, a, prefixes("10.0.1.0/26"))
	observe(t, single, b, prefixes("fd00::/64"),
		Warning{Kind: OutsidePools, Node: b, Prefix: pfx("fd00::/64")},
		Warning{Kind: MissingFamily, Node: b, Prefix: pfx("fd00::/64"), Against: pfx("10.0.0.0/24")})
}

func TestPoolsAreForTheNodesThatTheyMatch(t *testing.T) {
	l := mustLedger(t, []PoolConfig{
		{Name: "edge", Prefix: pfx("10.1.0.0/24"), NodeMask: 25},
		{Name: "old", Prefix: pfx("10.2.0.0/24"), NodeMask: 25, State: Draining},
		{Name: "rest", Prefix: pfx("10.3.0.0/24"), NodeMask: 25},
	})
	only := func(names ...string) Offer {
		return Offer{Pools: func(name string) bool { return slices.Contains(names, name) }}
	}
	assignFrom(t, l, Node{UID: "1"}, only("old", "rest"), "10.3.0.0/25")
	assignFrom(t, l, Node{UID: "2"}, only("edge", "rest"), "10.1.0.0/25")
	assignFrom(t, l, Node{UID: "3"}, only("edge"), "10.1.0.128/25")
	for _, refused := range []struct {
		offer Offer
		want  error
		says  string
	}{
		{only("edge"), ErrNoRoom, "no free node prefix left in 10.1.0.0/24: delete Nodes"},
		{only("old"), ErrNoPool, "for IPv4: set another pool active, or give one a selector that this Node has (pools: edge active, old draining, rest active)"},
		{only(), ErrNoPool, "for IPv4"},
	} {
		if _, err := l.Assign(a, refused.offer); !errors.Is(err, refused.want) ||
			!strings.Contains(err.Error(), refused.says) {
			t.Errorf("Assign: %v, want %v that says %q", err, refused.want, refused.says)
		}
		if err := roomFor(l, refused.offer); !errors.Is(err, refused.want) {
			t.Errorf("RoomFor: %v, want %v", err, refused.want)
		}
	}
	if err := roomFor(l, only("rest")); err != nil || l.Room() != 1 {
		t.Errorf("RoomFor: %v, Room() = %d, want room for one", err, l.Room())
	}
	assignFrom(t, l, a, Offer{}, "10.3.0.128/25")
}

func TestHoldingsComeByNameAndUID(t *testing.T) {
	l := dualStack(t)
	for _, n := range []Node{c, {Name: "a", UID: "2"}, b, {Name: "a", UID: "1"}} {
		if _, err := l.Assign(n, Offer{}); err != nil {
			t.Fatal(err)
		}
	}
	var order []string
	for _, h := range l.Holdings() {
		order = append(order, h.Node.Name+h.Node.UID)
	}
	if diff := cmp.Diff([]string{"a1", "a2", "buid-b", "cuid-c"}, order); diff != "" {
		t.Errorf("Holdings (-want +got):\n%s", diff)
	}
}

// Returned slices belong to the caller.
func TestCallersCanNotChangeTheLedger(t *testing.T) {
	l := dualStack(t)
	given, err := l.Assign(a, Offer{})
	if err != nil {
		t.Fatal(err)
	}
	given[0] = netip.Prefix{}
	seen := prefixes("10.0.7.0/24", "fd00:0:0:3::/64")
	l.Observe(b, seen, noon)
	seen[0] = netip.Prefix{}
	for _, h := range l.Holdings() {
		h.Prefixes[0] = netip.Prefix{}
		clear(h.Pools)
	}
	if text := recordOf(l, a.UID); text != "uid=uid-a 10.0.0.0/24@v4 fd00::/64@v6" {
		t.Errorf("Record(a) = %q", text)
	}
	if text := recordOf(l, b.UID); text != "uid=uid-b 10.0.7.0/24@v4 fd00:0:0:3::/64@v6" {
		t.Errorf("Record(b) = %q", text)
	}
}
