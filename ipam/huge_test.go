package ipam

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hugePool has 2^48 node prefixes: code that counts them one by one never ends.
func hugePool(t *testing.T) *onePool {
	t.Helper()
	return mustPool(t, "fd00::/16", 64)
}

func TestHugePoolsAreCountedByArithmetic(t *testing.T) {
	pool := hugePool(t)
	pool.SetExclusions(prefixes("fd00:4000::/18", "fd00::/17", "fd00:8000:0:7::1/128", "fe80::/10"))
	pool.route(pfx("fd00::/16"))
	pool.route(pfx("fd00:f000::/20"))
	for _, p := range prefixes("fd00:1:2:3::/64", "fd00:c000:2:3::/64") {
		pool.have(p)
	}
	const all, half, block = 1 << 48, 1 << 47, 1 << 44
	same := func(when string, want Counts) {
		t.Helper()
		want.Name, want.Pool, want.NodeMask = "p", pfx("fd00::/16"), 64
		if got := pool.counts(); got != want {
			t.Errorf("%s: %+v, want %+v", when, got, want)
		}
	}
	same("all blocked", Counts{Excluded: half + 1, Allocated: 1, Foreign: half - 2})
	if got, ok := pool.take(); ok {
		t.Errorf("Assign() = %s from what is blocked", got)
	}
	pool.unroute(pfx("fd00::/16"))
	same("one block left", Counts{Excluded: half + 1, Allocated: 1, Foreign: block, Free: half - 2 - block})
	take(t, pool, "fd00:8000::/64")
	pool.SetExclusions(nil)
	same("no exclusions", Counts{Allocated: 3, Foreign: block, Free: all - block - 3})
	take(t, pool, "fd00:8000:0:1::/64")
}

func TestHugePoolsHandOutThousands(t *testing.T) {
	pool := mustPool(t, "fd00::/40", 64)
	for i := range 3000 {
		want := netip.PrefixFrom(numberOf(pool.pools[0].Prefix.Addr()).plus(uint64(i), 64).addr(128), 64)
		if got, ok := pool.take(); !ok || got != want {
			t.Fatalf("Assign() = %s, %t, want %s", got, ok, want)
		}
	}
	pool.pools[0].next = 0
	take(t, pool, "fd00:0:0:bb8::/64")
	// After the last node prefix the search wraps around.
	pool.pools[0].next = pool.grid().size() - 1
	take(t, pool, "fd00:0:ff:ffff::/64")
	take(t, pool, "fd00:0:0:bb9::/64")
}

func TestTheLastFreeOneOfManyIsFound(t *testing.T) {
	for _, c := range []struct{ prefix, last string }{
		{"10.0.0.0/8", "10.200.77.0/24"}, {"fd00::/48", "fd00:0:0:c84d::/64"},
	} {
		mask := pfx(c.last).Bits()
		pool := mustPool(t, c.prefix, mask)
		for p := range fill(pool) {
			if p != pfx(c.last) {
				pool.have(p)
			}
		}
		pool.pools[0].next = pool.grid().index(pfx(c.last).Addr()) + 1
		take(t, pool, c.last)
		if p, ok := pool.take(); ok {
			t.Errorf("Assign() = %s from a full pool", p)
		}
	}
}

// fill yields every node prefix of a pool.
func fill(pool *onePool) func(yield func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for i := range pool.grid().size() {
			if !yield(pool.grid().at(i)) {
				return
			}
		}
	}
}

func TestALedgerOverAHugePool(t *testing.T) {
	l := mustLedger(t, []PoolConfig{{Name: "v6", Prefix: pfx("2001:db8::/32"), NodeMask: 80}}, "2001:db8::/33")
	assign(t, l, a, "2001:db8:8000::/80")
	observe(t, l, b, prefixes("2001:db8:8000::/34"),
		Warning{Kind: WrongSize, Node: b, Prefix: pfx("2001:db8:8000::/34"), Against: pfx("2001:db8::/32")},
		Warning{Kind: Duplicate, Node: b, Prefix: pfx("2001:db8:8000::/34"), Against: pfx("2001:db8:8000::/80"), Holder: a})
	assign(t, l, c, "2001:db8:c000::/80")
	wantCounts(t, l, "v6", Counts{Excluded: 1 << 47, Foreign: 1<<46 - 1, Allocated: 2, Free: 1<<46 - 1})
	l.Free(b.UID)
	assign(t, l, b, "2001:db8:c000:0:1::/80")
}

func FuzzPool(f *testing.F) {
	f.Add("10.244.0.0/16", 24, "10.244.3.0/22", "10.244.0.0/18")
	f.Add("fd00:10:244::/48", 64, "fd00:10:244:8000::/49", "::/0")
	f.Add("::ffff:10.0.0.0/112", 120, "::/0", "")
	f.Add("2001:db8::/56", 72, "2001:db8::1:0:0:0/70", "2001:db8::/128")
	f.Add("fd00::/16", 64, "fd00::/17", "fd80::/64")
	f.Add("10.0.0.5/24", 20, "10.0.0.0/8", "::ffff:10.0.0.0/112")
	f.Fuzz(func(t *testing.T, text string, nodeMask int, blocked, excluded string) {
		prefix, _ := netip.ParsePrefix(text)
		pool, err := newOnePool(prefix, nodeMask)
		if err != nil {
			if !strings.Contains(err.Error(), prefix.String()) {
				t.Fatalf("the error does not name %s: %v", prefix, err)
			}
			return
		}
		block, _ := netip.ParsePrefix(blocked)
		exclude, _ := netip.ParsePrefix(excluded)
		block, exclude = canonical(block), canonical(exclude)
		pool.route(block)
		pool.SetExclusions([]netip.Prefix{exclude})
		size := uint64(1) << (nodeMask - prefix.Bits())
		c := pool.counts()
		if sum := c.Free + c.Excluded + c.Foreign; sum != size {
			t.Fatalf("%s has %d node prefixes of /%d, the pool counts %+v", prefix, size, nodeMask, c)
		}
		for i := range min(c.Free, 1500) {
			got, ok := pool.take()
			if !ok || got.Bits() != nodeMask || got != got.Masked() || !prefix.Overlaps(got) ||
				got.Overlaps(block) || got.Overlaps(exclude) {
				t.Fatalf("the %d-th Assign() = %s, %t", i, got, ok)
			}
			if at := pool.counts(); at.Free != c.Free-i-1 || at.Allocated != i+1 {
				t.Fatalf("after %d: %+v, before: %+v", i+1, at, c)
			}
		}
		if got, ok := pool.take(); ok != (c.Free > 1500) {
			t.Fatalf("Assign() = %s, %t with %d free", got, ok, c.Free)
		}
	})
}

func FuzzPoolConfig(f *testing.F) {
	f.Add("v4", "10.244.0.0/16", 24, 0, false)
	f.Add("own", "", 80, 1, true)
	f.Add("a b", "fd00::/8", 64, 7, true)
	f.Fuzz(func(t *testing.T, name, text string, nodeMask, state int, own bool) {
		prefix, _ := netip.ParsePrefix(text)
		config := PoolConfig{
			Name: name, Prefix: prefix, NodeMask: nodeMask, State: State(state), Own: own,
		}
		l, err := NewLedger([]PoolConfig{config}, nil)
		if err != nil {
			if msg := err.Error(); !strings.Contains(msg, "pool ") || !strings.Contains(msg, ": ") {
				t.Fatalf("%+v is refused without a remedy: %v", config, err)
			}
			return
		}
		given, err := l.Assign(a, offer("2001:db8:1:2::/64"))
		if (err == nil) != (config.State == Active) {
			t.Fatalf("%+v: Assign = %v, %v", config, given, err)
		}
		if err != nil {
			return
		}
		// An assigned prefix can be stored and read again.
		text = recordOf(l, a.UID)
		h, err := ParseRecord(a.Name, text)
		if err != nil || h.Pools[given[0]] != name || foreign(h) {
			t.Fatalf("%q is read as %+v, %v", text, h, err)
		}
	})
}

// FuzzPrefixes compares the arithmetic on addresses with a direct computation.
func FuzzPrefixes(f *testing.F) {
	f.Add("10.244.0.0/16", "10.244.7.0/24", 24)
	f.Add("fd00::/16", "fd12:3456:789a:bcde::/64", 64)
	f.Add("2001:db8::/60", "2001:db8:0:5:8000::/65", 100)
	f.Add("::ffff:1.2.3.0/120", "1.2.3.4/32", 30)
	f.Fuzz(func(t *testing.T, text, other string, mask int) {
		p, err := netip.ParsePrefix(text)
		q, _ := netip.ParsePrefix(other)
		if err != nil || !q.IsValid() {
			return
		}
		p, q = canonical(p), canonical(q)
		if back := numberOf(q.Addr()).addr(q.Addr().BitLen()); back != q.Addr() {
			t.Fatalf("%s becomes %s", q.Addr(), back)
		}
		if mask < p.Bits() || mask > p.Addr().BitLen() || mask-p.Bits() > 63 {
			return
		}
		g := grid{p, mask}
		s, ok := g.span(q)
		if ok != p.Overlaps(q) {
			t.Fatalf("the span of %s in %s is %v, %t", q, p, s, ok)
		}
		if !ok {
			return
		}
		for _, i := range []uint64{0, s.first, s.last, g.size() - 1} {
			part := g.at(i)
			inside := i >= s.first && i <= s.last
			if !g.carves(part) || g.index(part.Addr()) != i || part.Overlaps(q) != inside {
				t.Fatalf("the %d-th /%d of %s is %s; %s covers %v", i, mask, p, part, q, s)
			}
		}
		if s.first > 0 && g.at(s.first-1).Overlaps(q) ||
			s.last < g.size()-1 && g.at(s.last+1).Overlaps(q) {
			t.Fatalf("%s reaches beyond %v", q, s)
		}
	})
}

func TestSpans(t *testing.T) {
	merged := union(spans{{8, 9}, {0, 3}, {2, 5}, {20, 20}, {2, 2}})
	if diff := cmp.Diff("[{0 5} {8 9} {20 20}]", fmt.Sprint(merged)); diff != "" {
		t.Errorf("union (-want +got):\n%s", diff)
	}
	if merged.total() != 9 {
		t.Errorf("total %d", merged.total())
	}
}
