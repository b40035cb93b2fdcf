package ipam

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ownPools(more ...PoolConfig) []PoolConfig {
	return append([]PoolConfig{
		{Name: "v4", Prefix: pfx("10.0.0.0/21"), NodeMask: 24},
		{Name: "own", NodeMask: 80, Own: true},
	}, more...)
}

func offer(own string, avoid ...string) Offer {
	o := Offer{Own: pfx(own)}
	for _, text := range avoid {
		o.Avoid = append(o.Avoid, netip.MustParseAddr(text))
	}
	return o
}

func assignFrom(t *testing.T, l *Ledger, node Node, o Offer, want ...string) {
	t.Helper()
	got, err := l.Assign(node, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prefixes(want...), got, comparePrefixes); diff != "" {
		t.Fatalf("Assign(%s) (-want +got):\n%s", node.Name, diff)
	}
}

func TestNodePrefixesAreCutFromTheServersOwn(t *testing.T) {
	for _, test := range []struct {
		name     string
		mask     int
		offer    Offer
		excluded []string
		want     string
	}{
		{"the first block holds the server", 80, offer("2001:db8:1:2::/64"), nil, "2001:db8:1:2:1::/80"},
		{"written with host bits", 80, offer("2001:db8:1:2::1/64"), nil, "2001:db8:1:2:1::/80"},
		{"a gateway in the second", 80, offer("2001:db8:1:2::/64", "2001:db8:1:2:1::9", "fe80::1%eth0", "10.0.0.1"), nil, "2001:db8:1:2:2::/80"},
		{"an exclusion over many", 80, offer("2001:db8:1:2::/64", "2001:db8:1:2:8000::"), []string{"2001:db8:1:2::/65"}, "2001:db8:1:2:8001::/80"},
		{"an exclusion smaller than a block", 80, offer("2001:db8:1:2::/64"), []string{"2001:db8:1:2:1:2::/112"}, "2001:db8:1:2:2::/80"},
		{"halves", 65, offer("2001:db8:1:2::/64"), nil, "2001:db8:1:2:8000::/65"},
		{"2^48 blocks, half of them excluded", 112, offer("2001:db8:1:2::/64"), []string{"2001:db8:1:2::/65"}, "2001:db8:1:2:8000::/112"},
		{"2^62 blocks", 126, offer("2001:db8:1:2::/64", "2001:db8:1:2::4"), nil, "2001:db8:1:2::8/126"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := mustLedger(t, []PoolConfig{{Name: "own", NodeMask: test.mask, Own: true}}, test.excluded...)
			assignFrom(t, l, a, test.offer, test.want)
			assignFrom(t, l, a, Offer{}, test.want)
			wantCounts(t, l, "own", Counts{Allocated: 1})
		})
	}
}

func TestServersWithoutAUsableOwnPrefix(t *testing.T) {
	for _, test := range []struct {
		name  string
		offer Offer
		want  error
		says  string
	}{
		{"none", Offer{}, ErrNoOwn, "configure another IPv6 pool"},
		{"IPv4", offer("192.0.2.0/24"), ErrNoOwn, "192.0.2.0/24"},
		{"too small", offer("2001:db8::/80"), ErrNoOwn, "2001:db8::/80"},
		{"too large", offer("2001::/16"), ErrNoOwn, "2001::/16"},
		{"all excluded", offer("2001:db8:7::/64"), ErrNoOwn, "no free node prefix of /80 is left in 2001:db8:7::/64"},
		{"another Node's", offer("2001:db8:1:2::/64"), ErrSharedOwn, "Node a has 2001:db8:1:2:1::/80"},
		{"a part of another Node's", offer("2001:db8:1:2:1::/79"), ErrSharedOwn, "Node a"},
		{"within another Node's", offer("2001:db8:1:2::/64"), ErrSharedOwn, "Node a"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := mustLedger(t, ownPools(), "2001:db8:7::/48")
			assignFrom(t, l, a, offer("2001:db8:1:2::/64"), "10.0.0.0/24", "2001:db8:1:2:1::/80")
			before := l.Counts()
			_, err := l.Assign(b, test.offer)
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), "Node b") {
				t.Errorf("Assign: %v, want %v that says %q", err, test.want, test.says)
			}
			if got := roomFor(l, test.offer); !errors.Is(got, test.want) {
				t.Errorf("roomFor: %v, want %v", got, test.want)
			}
			if diff := cmp.Diff(before, l.Counts(), comparePrefixes); diff != "" {
				t.Errorf("a failed Assign took something (-before +after):\n%s", diff)
			}
		})
	}
}

func TestFallbackFromTheServersOwnPrefix(t *testing.T) {
	l := mustLedger(t, ownPools(PoolConfig{Name: "v6", Prefix: pfx("fd00::/64"), NodeMask: 64}))
	assignFrom(t, l, a, offer("2001:db8:1:2::/64"), "10.0.0.0/24", "2001:db8:1:2:1::/80")
	assignFrom(t, l, b, offer("2001:db8:1:2::/64"), "10.0.1.0/24", "fd00::/64")
	_, err := l.Assign(c, Offer{})
	if !errors.Is(err, ErrNoOwn) || !errors.Is(err, ErrNoRoom) {
		t.Errorf("Assign: %v, want ErrNoOwn and ErrNoRoom", err)
	}
	if l.Room() != 6 {
		t.Errorf("Room() = %d, want 6: IPv6 is without limit", l.Room())
	}
}

func TestAServersOwnPrefixInQuarantine(t *testing.T) {
	l := mustLedger(t, ownPools())
	o := offer("2001:db8:1:2::/64")
	assignFrom(t, l, machine("a", "1", "7"), o, "10.0.0.0/24", "2001:db8:1:2:1::/80")
	release(t, l, "1", noon)
	wantCounts(t, l, "own", Counts{Quarantined: 1})

	// The provider has assigned the prefix to another machine.
	if _, err := l.Assign(machine("b", "2", "8"), o); !errors.Is(err, ErrSharedOwn) {
		t.Errorf("Assign: %v, want ErrSharedOwn", err)
	}
	// The same machine under another name has no conflict.
	assignFrom(t, l, machine("c", "3", "7"), o, "10.0.1.0/24", "2001:db8:1:2:2::/80")
	l.Free("3")
	// After a return under its name with another prefix, the machine can't reuse the old one.
	assignFrom(t, l, machine("a", "4", "7"), offer("2001:db8:1:3::/64"), "10.0.2.0/24", "2001:db8:1:3:1::/80")
	l.Free("4")
	// Nor can it if the prefix contains another address in use.
	assignFrom(t, l, machine("a", "5", "7"), offer("2001:db8:1:2::/64", "2001:db8:1:2:1::5"), "10.0.3.0/24", "2001:db8:1:2:2::/80")
	l.Free("5")
	assignFrom(t, l, machine("a", "6", "7"), o, "10.0.0.0/24", "2001:db8:1:2:1::/80")
	wantCounts(t, l, "own", Counts{Allocated: 1})
}

func TestAnOwnPrefixThatIsSeenIsLikelyOne(t *testing.T) {
	l := mustLedger(t, ownPools(PoolConfig{Name: "v6", Prefix: pfx("2001:db8:ffff::/60"), NodeMask: 64}))
	observe(t, l, a, prefixes("10.0.0.0/24", "2001:db8:1:2:7::/80"))
	wantCounts(t, l, "own", Counts{Allocated: 1})
	if h, _ := l.Lookup(a.UID); foreign(h) || h.Pools[pfx("2001:db8:1:2:7::/80")] != "own" {
		t.Errorf("Lookup = %+v, want it in the pool own", h)
	}
	for _, seen := range []string{"fd00:1::/80", "2001:db8:1:3::/79"} {
		observe(t, l, b, prefixes("10.0.1.0/24", seen), Warning{Kind: OutsidePools, Node: b, Prefix: pfx(seen)})
	}
	inRange := pfx("2001:db8:ffff:0:1::/80")
	observe(t, l, b, prefixes("10.0.1.0/24", inRange.String()),
		Warning{Kind: WrongSize, Node: b, Prefix: inRange, Against: pfx("2001:db8:ffff::/60")})
	if h, _ := l.Lookup(b.UID); !foreign(h) {
		t.Errorf("Lookup = %+v, want it to be foreign", h)
	}
	l.Free(a.UID)
	wantCounts(t, l, "own", Counts{})
	observe(t, l, c, prefixes("10.0.5.0/24"), Warning{Kind: MissingFamily, Node: c, Prefix: pfx("10.0.5.0/24")})
}

func TestDrainingOwnPoolsHandOutNothing(t *testing.T) {
	pools := ownPools()
	pools[1].State = Draining
	l := mustLedger(t, pools)
	_, err := l.Assign(a, offer("2001:db8:1:2::/64"))
	if !errors.Is(err, ErrNoPool) || !strings.Contains(err.Error(), "IPv6") || !strings.Contains(err.Error(), "own draining") {
		t.Errorf("Assign: %v, want ErrNoPool that names the family and the pool's state", err)
	}
	if l.Room() != 0 {
		t.Errorf("Room() = %d, want 0", l.Room())
	}
}

// Two Nodes have the same prefix, and only one's record names the pool.
func TestAnOwnPrefixCountsForWhomItStands(t *testing.T) {
	l := mustLedger(t, ownPools())
	restore(t, l, "a", "uid=uid-a 2001:db8:1:2:1::/80@own")
	restore(t, l, "b", "uid=uid-b 2001:db8:1:2:1::/80",
		Warning{Kind: DuplicateRecord, Node: b, Prefix: pfx("2001:db8:1:2:1::/80"), Against: pfx("2001:db8:1:2:1::/80"), Holder: a})
	wantCounts(t, l, "own", Counts{Allocated: 1})
	release(t, l, a.UID, noon)
	wantCounts(t, l, "own", Counts{})
	l.Free(b.UID)
	wantCounts(t, l, "own", Counts{Quarantined: 1})
	restore(t, l, "c", "uid=uid-c 2001:db8:1:2:1::/80@own")
	wantCounts(t, l, "own", Counts{Allocated: 1})
	l.Free(c.UID)
	l.Free(a.UID)
	wantCounts(t, l, "own", Counts{})
}

func TestTheRecordOfAnOwnPrefixStands(t *testing.T) {
	l := mustLedger(t, ownPools(PoolConfig{Name: "own2", NodeMask: 80, Own: true}))
	observe(t, l, a, prefixes("10.0.0.0/24", "2001:db8:1:2:1::/80"))
	wantCounts(t, l, "own", Counts{Allocated: 1})
	restore(t, l, "b", "uid=uid-b 10.0.1.0/24@v4 2001:db8:1:3:1::/80@own2")
	restore(t, l, "c", "uid=uid-c 10.0.2.0/24@v4 2001:db8:1:4:1::/80@gone")
	observe(t, l, b, prefixes("10.0.1.0/24", "2001:db8:1:3:1::/80"))
	observe(t, l, c, prefixes("10.0.2.0/24", "2001:db8:1:4:1::/80"),
		Warning{Kind: OutsidePools, Node: c, Prefix: pfx("2001:db8:1:4:1::/80")})
	wantCounts(t, l, "own2", Counts{Allocated: 1})
	if got := l.Removed(); len(got) != 1 || got[0].Pool != "gone" {
		t.Errorf("Removed() = %+v, want the one of the pool gone", got)
	}
	// Pools of prefixes that the Node no longer has are dropped.
	observe(t, l, c, prefixes("10.0.2.0/24", "2001:db8:1:5:1::/80"))
	if h, _ := l.Lookup(c.UID); len(h.Pools) != 2 {
		t.Errorf("Lookup(c) = %+v, want two prefixes with their pools", h)
	}
}
