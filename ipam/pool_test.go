package ipam

import (
	"net/netip"
	"strings"
	"testing"
)

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

func mustPool(t *testing.T, prefix string, nodeMask int) *Pool {
	t.Helper()
	pool, err := NewPool(PoolConfig{pfx(prefix), nodeMask})
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
		size     int    // 0: an error
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
		{prefix: pfx("fd00:10::/32"), nodeMask: 64, err: "use a node mask of /48 or shorter, or a pool of /48 or longer"},
		{prefix: pfx("::/0"), nodeMask: 64, err: "more than 65536"},
	} {
		pool, err := NewPool(PoolConfig{c.prefix, c.nodeMask})
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
	pool.Exclude(pfx("10.0.0.70/32"))
	pool.Block(pfx("10.0.0.128/25"))
	pool.Block(pfx("10.0.0.200/29"))
	pool.Block(pfx("192.168.0.0/16"))
	if want := (Counts{Pool: pfx("10.0.0.0/24"), NodeMask: 26, Free: 1, Excluded: 1, Foreign: 2}); pool.Counts() != want {
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
	// The bitmap forgets.
	if err := pool.unused.Release(toIPNet(pfx("10.0.0.0/26"))); err != nil {
		t.Fatal(err)
	}
	take(t, pool, "b", "10.0.0.64/26")
}
