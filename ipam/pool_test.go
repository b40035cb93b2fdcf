package ipam

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func mustPool(t *testing.T, prefix string, nodeMask int) *Pool {
	t.Helper()
	pool, err := NewPool(PoolConfig{Name: "p", Prefix: pfx(prefix), NodeMask: nodeMask})
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func take(t *testing.T, pool *Pool, holder, want string) {
	t.Helper()
	got, ok := pool.Take(holder)
	if !ok || got != pfx(want) {
		t.Fatalf("Take(%s) = %s, %t, want %s", holder, got, ok, want)
	}
}

func TestNewPoolSizes(t *testing.T) {
	for _, c := range []struct {
		prefix   netip.Prefix
		nodeMask int
		size     uint64 // 0: an error
		err      string // what it must name
	}{
		{prefix: pfx("10.244.0.0/16"), nodeMask: 24, size: 256},
		{prefix: pfx("10.0.0.0/8"), nodeMask: 24, size: 65536},
		{prefix: pfx("10.244.7.0/24"), nodeMask: 24, size: 1},
		{prefix: pfx("10.244.7.0/30"), nodeMask: 30, size: 1},
		{prefix: pfx("fd00:10:244::/48"), nodeMask: 64, size: 65536},
		{prefix: pfx("fd00:10:244::/56"), nodeMask: 72, size: 65536},
		{prefix: pfx("2001:db8::/64"), nodeMask: 80, size: 65536},
		{prefix: pfx("2001:db8::/126"), nodeMask: 126, size: 1},
		{nodeMask: 24, err: "not a prefix"},
		{prefix: pfx("10.244.3.0/16"), nodeMask: 24, err: "write 10.244.0.0/16"},
		{prefix: pfx("fd00::1/48"), nodeMask: 64, err: "write fd00::/48"},
		{prefix: pfx("::ffff:10.0.0.0/104"), nodeMask: 112, err: "write 10.0.0.0/8"},
		{prefix: pfx("10.244.0.0/16"), nodeMask: 15, err: "node mask /15 is larger than the pool: use one between /16 and /30"},
		{prefix: pfx("10.0.0.0/8"), nodeMask: 0, err: "use one between /8 and /24"},
		{prefix: pfx("10.244.0.0/16"), nodeMask: -1, err: "node mask /-1"},
		{prefix: pfx("10.244.0.0/16"), nodeMask: 31, err: "use /30 or shorter"},
		{prefix: pfx("10.244.0.0/16"), nodeMask: 64, err: "use /30 or shorter"},
		{prefix: pfx("10.244.0.0/31"), nodeMask: 31, err: "too small"},
		{prefix: pfx("2001:db8::/112"), nodeMask: 127, err: "use /126 or shorter"},
		{prefix: pfx("10.0.0.0/8"), nodeMask: 25, err: "use a node mask of /24 or shorter, or a pool of /9 or longer"},
		{prefix: pfx("fd00:10::/32"), nodeMask: 64, size: 1 << 32},
		{prefix: pfx("fd00::/16"), nodeMask: 64, size: 1 << 48},
		{prefix: pfx("2001:db8::/64"), nodeMask: 112, size: 1 << 48},
		{prefix: pfx("fd00::/15"), nodeMask: 64, err: "use a node mask of /63 or shorter, or a pool of /16 or longer"},
		{prefix: pfx("::/0"), nodeMask: 64, err: "more than 2^48"},
	} {
		pool, err := NewPool(PoolConfig{Name: "p", Prefix: c.prefix, NodeMask: c.nodeMask})
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), c.prefix.String()) {
				t.Errorf("NewPool(%s, /%d): error %v, want one that names the pool and says %q", c.prefix, c.nodeMask, err, c.err)
			}
		case err != nil:
			t.Errorf("NewPool(%s, /%d): %v", c.prefix, c.nodeMask, err)
		default:
			if got := pool.Counts().Free; got != c.size {
				t.Errorf("NewPool(%s, /%d) has %d node prefixes, want %d", c.prefix, c.nodeMask, got, c.size)
			}
			if pool.Prefix() != c.prefix || pool.NodeMask() != c.nodeMask {
				t.Errorf("pool is %s, /%d, want %s, /%d", pool.Prefix(), pool.NodeMask(), c.prefix, c.nodeMask)
			}
		}
	}
}

func TestNewPoolNeedsARange(t *testing.T) {
	_, err := NewPool(PoolConfig{Name: "own", NodeMask: 80, Own: true})
	if err == nil || !strings.Contains(err.Error(), "pool own (the servers' own prefixes)") {
		t.Errorf("NewPool of the servers' own prefixes: %v, want an error that names it", err)
	}
}

func TestStatesAreWrittenAsInTheConfiguration(t *testing.T) {
	for state, want := range map[State]string{Active: "active", Draining: "draining", 7: "State(7)"} {
		if got := state.String(); got != want {
			t.Errorf("State %d is %q, want %q", int(state), got, want)
		}
	}
}

func TestTakeCarvesInAscendingOrder(t *testing.T) {
	for _, c := range []struct {
		prefix   string
		nodeMask int
		want     []string
	}{
		{"10.1.2.0/24", 26, []string{"10.1.2.0/26", "10.1.2.64/26", "10.1.2.128/26", "10.1.2.192/26"}},
		{"10.244.0.0/15", 17, []string{"10.244.0.0/17", "10.244.128.0/17", "10.245.0.0/17", "10.245.128.0/17"}},
		{"fd00:0:0:fffc::/62", 64, []string{"fd00:0:0:fffc::/64", "fd00:0:0:fffd::/64", "fd00:0:0:fffe::/64", "fd00:0:0:ffff::/64"}},
		// The cut lies across the two halves of an IPv6 address.
		{"2001:db8:0:a::/63", 65, []string{"2001:db8:0:a::/65", "2001:db8:0:a:8000::/65", "2001:db8:0:b::/65", "2001:db8:0:b:8000::/65"}},
	} {
		pool := mustPool(t, c.prefix, c.nodeMask)
		for _, want := range c.want {
			take(t, pool, "a", want)
		}
		if got, ok := pool.Take("a"); ok {
			t.Errorf("%s is full, but Take() = %s", c.prefix, got)
		}
	}
}

func TestJustReleasedIsUsedLast(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/24", 27)
	take(t, pool, "a", "10.0.0.0/27")
	take(t, pool, "b", "10.0.0.32/27")
	take(t, pool, "c", "10.0.0.64/27")
	for _, held := range []struct{ holder, prefix string }{{"b", "10.0.0.32/27"}, {"a", "10.0.0.0/27"}} {
		if err := pool.Release(pfx(held.prefix), held.holder); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"10.0.0.96/27", "10.0.0.128/27", "10.0.0.160/27", "10.0.0.192/27", "10.0.0.224/27"} {
		take(t, pool, "d", want)
	}
	take(t, pool, "d", "10.0.0.32/27")
	take(t, pool, "d", "10.0.0.0/27")
}

func TestClaimAndReleaseTakeWholeNodePrefixesOnly(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/16", 24)
	if err := pool.Claim(pfx("10.0.5.0/24"), "a"); err != nil {
		t.Fatal(err)
	}
	if err := pool.Claim(pfx("10.0.5.0/24"), "a"); err != nil {
		t.Errorf("claiming again for the same holder: %v", err)
	}
	if err := pool.Claim(pfx("10.0.5.0/24"), "b"); err == nil || !strings.Contains(err.Error(), `held by "a"`) {
		t.Errorf("claiming another's node prefix: error %v, want one that names the holder", err)
	}
	for _, wrong := range []string{"10.0.5.0/25", "10.0.4.0/23", "10.0.0.0/16", "10.0.0.0/8", "10.1.5.0/24", "10.0.5.1/24", "::ffff:10.0.5.0/120", "fd00::/64"} {
		if pool.Carves(pfx(wrong)) {
			t.Errorf("Carves(%s) = true", wrong)
		}
		if err := pool.Claim(pfx(wrong), "b"); err == nil {
			t.Errorf("Claim(%s): no error", wrong)
		}
		if err := pool.Release(pfx(wrong), "a"); err == nil {
			t.Errorf("Release(%s): no error", wrong)
		}
	}
	for _, c := range []struct{ prefix, holder string }{{"10.0.5.0/24", "b"}, {"10.0.6.0/24", "a"}} {
		if err := pool.Release(pfx(c.prefix), c.holder); err == nil {
			t.Errorf("Release(%s, %s): no error, though %s does not hold it", c.prefix, c.holder, c.holder)
		}
	}
	if c := pool.Counts(); c.Allocated != 1 || c.Free != 255 {
		t.Errorf("after refused calls: %+v, want 1 allocated and 255 free", c)
	}
	if err := pool.Release(pfx("10.0.5.0/24"), "a"); err != nil {
		t.Error(err)
	}
	if c := pool.Counts(); c.Allocated != 0 || c.Free != 256 {
		t.Errorf("after the release: %+v, want all free", c)
	}
}

func TestExcludedAndBlockedAreNotHandedOut(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/24", 26)
	pool.SetExclusions(prefixes("10.0.0.70/32", "172.16.0.0/12"))
	pool.Block(pfx("10.0.0.128/25"))
	pool.Block(pfx("10.0.0.200/29"))
	pool.Block(pfx("192.168.0.0/16"))
	if want := (Counts{Name: "p", Pool: pfx("10.0.0.0/24"), NodeMask: 26, Free: 1, Excluded: 1, Foreign: 2}); pool.Counts() != want {
		t.Errorf("Counts() = %+v, want %+v", pool.Counts(), want)
	}
	take(t, pool, "a", "10.0.0.0/26")
	if got, ok := pool.Take("a"); ok {
		t.Fatalf("Take() = %s, which is excluded or blocked", got)
	}
	pool.Unblock(pfx("10.0.0.128/25"))
	take(t, pool, "b", "10.0.0.128/26")
	pool.Unblock(pfx("10.0.0.200/29"))
	take(t, pool, "c", "10.0.0.192/26")
	if err := pool.Claim(pfx("10.0.0.64/26"), "d"); err != nil {
		t.Errorf("claiming an excluded node prefix that a Node already has: %v", err)
	}
	if c := pool.Counts(); c.Excluded != 1 || c.Allocated != 3 {
		t.Errorf("Counts() = %+v, want the excluded one to stay excluded", c)
	}
}

func TestTheMapDecidesNotTheBitmap(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/24", 26)
	if err := pool.Claim(pfx("10.0.0.0/26"), "a"); err != nil {
		t.Fatal(err)
	}
	if err := pool.Claim(pfx("10.0.0.64/26"), "a"); err != nil {
		t.Fatal(err)
	}
	// The bitmap is made, and then forgets.
	if err := pool.set(0).Release(toIPNet(pfx("10.0.0.0/25"))); err != nil {
		t.Fatal(err)
	}
	take(t, pool, "b", "10.0.0.128/26")
}

func TestExclusionsCanBeTakenBack(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/22", 24)
	pool.SetExclusions(prefixes("10.0.0.0/23"))
	take(t, pool, "a", "10.0.2.0/24")
	pool.SetExclusions(prefixes("10.0.3.0/24"))
	if want := (Counts{Name: "p", Pool: pfx("10.0.0.0/22"), NodeMask: 24, Free: 2, Allocated: 1, Excluded: 1}); pool.Counts() != want {
		t.Errorf("Counts() = %+v, want %+v", pool.Counts(), want)
	}
	take(t, pool, "b", "10.0.0.0/24")
	take(t, pool, "c", "10.0.1.0/24")
	if got, ok := pool.Take("d"); ok {
		t.Errorf("Take() = %s from a full pool", got)
	}
}

func TestOnlyTheHolderPassesOnAndGoesIntoQuarantine(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/22", 24)
	take(t, pool, "a", "10.0.0.0/24")
	held := pfx("10.0.0.0/24")
	for _, refused := range []struct {
		what string
		err  error
	}{
		{"Pass by another", pool.Pass(held, "b", "c")},
		{"Pass of what is free", pool.Pass(pfx("10.0.1.0/24"), "a", "c")},
		{"Quarantine of another's", pool.Quarantine(held, "b", true)},
		{"Quarantine of a part", pool.Quarantine(pfx("10.0.0.0/25"), "a", true)},
	} {
		if refused.err == nil {
			t.Errorf("%s: no error", refused.what)
		}
	}
	if err := pool.Quarantine(held, "a", true); err != nil {
		t.Fatal(err)
	}
	if c := pool.Counts(); c.Quarantined != 1 || c.Allocated != 0 || c.Free != 3 {
		t.Errorf("in quarantine: %+v", c)
	}
	if err := pool.Pass(held, "a", "b"); err != nil {
		t.Fatal(err)
	}
	if c := pool.Counts(); c.Quarantined != 1 {
		t.Errorf("passing on ended the quarantine: %+v", c)
	}
	if err := pool.Quarantine(held, "b", false); err != nil {
		t.Fatal(err)
	}
	if c := pool.Counts(); c.Quarantined != 0 || c.Allocated != 1 {
		t.Errorf("back from quarantine: %+v", c)
	}
	if err := pool.Release(held, "b"); err != nil {
		t.Errorf("the new holder can't release: %v", err)
	}
}

func TestBlockedTwiceIsUnblockedTwice(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/23", 24)
	foreign := pfx("10.0.0.0/25")
	pool.Block(foreign)
	pool.Block(foreign)
	pool.Unblock(foreign)
	take(t, pool, "a", "10.0.1.0/24")
	if got, ok := pool.Take("a"); ok {
		t.Errorf("Take() = %s, which is still blocked", got)
	}
	pool.Unblock(foreign)
	take(t, pool, "a", "10.0.0.0/24")
}

// checkIndex holds the index and the counts against the slots, one after the other.
func checkIndex(t *testing.T, pool *Pool) {
	t.Helper()
	var want Counts
	for i := range pool.grid.size() {
		*want.of(pool.state(i))++
		set, made := pool.sets[pool.setOf(i).first]
		if !made {
			continue
		}
		marked, err := set.IsAllocated(toIPNet(pool.grid.at(i)))
		if err != nil || marked == pool.offered(i) {
			t.Fatalf("%s is marked: %t, and on offer: %t (%v)", pool.grid.at(i), marked, pool.offered(i), err)
		}
	}
	got := pool.Counts()
	want.Name, want.Pool, want.NodeMask = got.Name, got.Pool, got.NodeMask
	if got != want {
		t.Fatalf("counts are %+v, want %+v", got, want)
	}
}

func TestTheIndexFollowsTheSlots(t *testing.T) {
	for seed := range uint64(4) {
		draw := rand.New(rand.NewPCG(seed, 4))
		pool := mustPool(t, "fd00::/53", 64) // two sets
		var held, blocked []netip.Prefix
		pick := func(longest int) netip.Prefix {
			return netip.PrefixFrom(pool.grid.at(draw.Uint64N(2048)).Addr(), 54+draw.IntN(longest-53)).Masked()
		}
		for range 3000 {
			switch at := draw.IntN(40); {
			case at == 0:
				pool.SetExclusions([]netip.Prefix{pick(66), pick(66)})
			case at == 1:
				blocked = append(blocked, pick(66))
				pool.Block(blocked[len(blocked)-1])
			case at <= 3 && len(blocked) > 0:
				i := draw.IntN(len(blocked))
				pool.Unblock(blocked[i])
				blocked = slices.Delete(blocked, i, i+1)
			case at == 4:
				pool.SetCursor(Cursor{Next: pool.grid.at(draw.Uint64N(2048)), Released: []netip.Prefix{pick(64)}})
			case at <= 20 && len(held) > 0:
				i := draw.IntN(len(held))
				if err := pool.Release(held[i], "a"); err != nil {
					t.Fatal(err)
				}
				held = slices.Delete(held, i, i+1)
			default:
				if p, ok := pool.Take("a"); ok {
					held = append(held, p)
				} else if pool.Counts().Free > 0 {
					t.Fatalf("Take() found nothing, though the pool counts %+v", pool.Counts())
				}
			}
			if draw.IntN(25) == 0 {
				pool.set(draw.Uint64N(2048))
				checkIndex(t, pool)
			}
		}
	}
}
