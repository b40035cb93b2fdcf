package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// onePool is a Ledger with one pool, in which every node prefix goes to a Node of its own.
type onePool struct {
	*Ledger
	holders map[netip.Prefix]Node
	nodes   int
	routed  []netip.Prefix
}

func newOnePool(prefix netip.Prefix, nodeMask int) (*onePool, error) {
	l, err := NewLedger([]PoolConfig{{Name: "p", Prefix: prefix, NodeMask: nodeMask}}, nil)
	return &onePool{Ledger: l, holders: map[netip.Prefix]Node{}}, err
}

func mustPool(t *testing.T, prefix string, nodeMask int) *onePool {
	t.Helper()
	pool, err := newOnePool(pfx(prefix), nodeMask)
	if err != nil {
		t.Fatal(err)
	}
	return pool
}

func (o *onePool) node() Node {
	o.nodes++
	return Node{Name: "n", UID: fmt.Sprint("u", o.nodes)}
}

// take assigns the next node prefix to a new Node.
func (o *onePool) take() (netip.Prefix, bool) {
	node := o.node()
	given, err := o.Assign(node, Offer{})
	if err != nil {
		return netip.Prefix{}, false
	}
	o.holders[given[0]] = node
	return given[0], true
}

// have observes a new Node with a prefix.
func (o *onePool) have(p netip.Prefix) {
	o.holders[p] = o.node()
	o.Observe(o.holders[p], []netip.Prefix{p}, time.Time{})
}

func (o *onePool) free(p netip.Prefix) {
	o.Free(o.holders[p].UID)
	delete(o.holders, p)
}

// route adds a route; unroute removes it.
func (o *onePool) route(p netip.Prefix) {
	o.routed = append(o.routed, p)
	o.SetRoutes(o.routed)
}

func (o *onePool) unroute(p netip.Prefix) {
	i := slices.Index(o.routed, p)
	o.routed = slices.Delete(o.routed, i, i+1)
	o.SetRoutes(o.routed)
}

func (o *onePool) counts() Counts { return o.Counts()[0] }
func (o *onePool) grid() grid     { return o.pools[0].grid }

func take(t *testing.T, pool *onePool, want string) {
	t.Helper()
	got, ok := pool.take()
	if !ok || got != pfx(want) {
		t.Fatalf("Assign() = %s, %t, want %s", got, ok, want)
	}
}

func TestNewPoolSizes(t *testing.T) {
	for _, c := range []struct {
		prefix   netip.Prefix
		nodeMask int
		size     uint64 // 0: an error
		err      string // a part of the message
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
		pool, err := newOnePool(c.prefix, c.nodeMask)
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) ||
				!strings.Contains(err.Error(), c.prefix.String()) {
				t.Errorf("NewLedger(%s, /%d): error %v, want one that names the pool and says %q", c.prefix, c.nodeMask, err, c.err)
			}
		case err != nil:
			t.Errorf("NewLedger(%s, /%d): %v", c.prefix, c.nodeMask, err)
		default:
			if got := pool.counts().Free; got != c.size {
				t.Errorf("NewLedger(%s, /%d) has %d node prefixes, want %d", c.prefix, c.nodeMask, got, c.size)
			}
			if got := pool.counts(); got.Pool != c.prefix || got.NodeMask != c.nodeMask {
				t.Errorf("pool is %s, /%d, want %s, /%d", got.Pool, got.NodeMask, c.prefix, c.nodeMask)
			}
		}
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
		// The node prefixes differ on both sides of the middle of an IPv6 address.
		{"2001:db8:0:a::/63", 65, []string{"2001:db8:0:a::/65", "2001:db8:0:a:8000::/65", "2001:db8:0:b::/65", "2001:db8:0:b:8000::/65"}},
	} {
		pool := mustPool(t, c.prefix, c.nodeMask)
		for _, want := range c.want {
			take(t, pool, want)
		}
		if got, ok := pool.take(); ok {
			t.Errorf("%s is full, but Assign() = %s", c.prefix, got)
		}
	}
}

func TestJustReleasedIsNotUsedNext(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/24", 27)
	take(t, pool, "10.0.0.0/27")
	take(t, pool, "10.0.0.32/27")
	take(t, pool, "10.0.0.64/27")
	pool.free(pfx("10.0.0.32/27"))
	pool.free(pfx("10.0.0.0/27"))
	for _, want := range []string{"10.0.0.96/27", "10.0.0.128/27", "10.0.0.160/27", "10.0.0.192/27", "10.0.0.224/27"} {
		take(t, pool, want)
	}
	take(t, pool, "10.0.0.0/27")
	take(t, pool, "10.0.0.32/27")
}

func TestOnlyWholeNodePrefixesAreCarved(t *testing.T) {
	for _, wrong := range []string{"10.0.5.0/25", "10.0.4.0/23", "10.0.0.0/16", "10.0.0.0/8", "10.1.5.0/24", "10.0.5.1/24", "::ffff:10.0.5.0/120", "fd00::/64"} {
		pool := mustPool(t, "10.0.0.0/16", 24)
		pool.have(pfx("10.0.5.0/24"))
		if pool.carver(pfx(wrong)) != nil {
			t.Errorf("carver(%s) is the pool", wrong)
		}
		// A podCIDR that contains or overlaps it doesn't release the node prefix.
		pool.have(pfx(wrong))
		pool.free(pfx(wrong))
		if c := pool.counts(); c.Allocated != 1 || c.Free != 255 {
			t.Errorf("after %s came and went: %+v, want 1 allocated and 255 free", wrong, c)
		}
		pool.free(pfx("10.0.5.0/24"))
		if c := pool.counts(); c.Allocated != 0 || c.Free != 256 {
			t.Errorf("after the release: %+v, want all free", c)
		}
	}
}

func TestExcludedAndRoutedAreNotHandedOut(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/24", 26)
	pool.SetExclusions(prefixes("10.0.0.70/32", "172.16.0.0/12"))
	pool.route(pfx("10.0.0.128/25"))
	pool.route(pfx("10.0.0.200/29"))
	pool.route(pfx("192.168.0.0/16"))
	if want := (Counts{Name: "p", Pool: pfx("10.0.0.0/24"), NodeMask: 26, Free: 1, Excluded: 1, Foreign: 2}); pool.counts() != want {
		t.Errorf("Counts() = %+v, want %+v", pool.counts(), want)
	}
	take(t, pool, "10.0.0.0/26")
	if got, ok := pool.take(); ok {
		t.Fatalf("Assign() = %s, which is excluded or routed", got)
	}
	pool.unroute(pfx("10.0.0.128/25"))
	take(t, pool, "10.0.0.128/26")
	pool.unroute(pfx("10.0.0.200/29"))
	take(t, pool, "10.0.0.192/26")
	pool.have(pfx("10.0.0.64/26")) // an excluded node prefix that a Node already has
	if c := pool.counts(); c.Excluded != 1 || c.Allocated != 3 {
		t.Errorf("Counts() = %+v, want the excluded one to stay excluded", c)
	}
}

func TestExclusionsCanBeTakenBack(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/22", 24)
	pool.SetExclusions(prefixes("10.0.0.0/23"))
	take(t, pool, "10.0.2.0/24")
	pool.SetExclusions(prefixes("10.0.3.0/24"))
	if want := (Counts{Name: "p", Pool: pfx("10.0.0.0/22"), NodeMask: 24, Free: 2, Allocated: 1, Excluded: 1}); pool.counts() != want {
		t.Errorf("Counts() = %+v, want %+v", pool.counts(), want)
	}
	take(t, pool, "10.0.0.0/24")
	take(t, pool, "10.0.1.0/24")
	if got, ok := pool.take(); ok {
		t.Errorf("Assign() = %s from a full pool", got)
	}
}

func TestHeldByTwoIsFreedTwice(t *testing.T) {
	pool := mustPool(t, "10.0.0.0/23", 24)
	foreign := prefixes("10.0.0.0/25")
	pool.Observe(a, foreign, noon)
	pool.Observe(b, foreign, noon)
	pool.Free(a.UID)
	take(t, pool, "10.0.1.0/24")
	if got, ok := pool.take(); ok {
		t.Errorf("Assign() = %s, which overlaps what is still held", got)
	}
	pool.Free(b.UID)
	take(t, pool, "10.0.0.0/24")
}

// naive computes the counts and the next prefix by visiting all node prefixes.
func (o *onePool) naive(excluded []netip.Prefix) (c Counts, next netip.Prefix) {
	c = Counts{Name: "p", Pool: o.pools[0].Prefix, NodeMask: o.pools[0].NodeMask}
	free := func(p netip.Prefix) bool {
		_, held := o.holders[p]
		return !held && !overlapsAny(p, excluded) && !overlapsAny(p, o.routed)
	}
	var circle, before []netip.Prefix
	for p := range fill(o) {
		_, held := o.holders[p]
		switch {
		case overlapsAny(p, excluded):
			c.Excluded++
		case held:
			c.Allocated++
		case overlapsAny(p, o.routed):
			c.Foreign++
		default:
			c.Free++
		}
		switch {
		case !free(p):
		case p.Compare(o.grid().at(o.pools[0].next)) < 0:
			before = append(before, p)
		default:
			circle = append(circle, p)
		}
	}
	if all := slices.Concat(circle, before); len(all) > 0 {
		next = all[0]
	}
	return c, next
}

func TestTheSearchEqualsANaiveOne(t *testing.T) {
	for seed := range uint64(4) {
		draw := rand.New(rand.NewPCG(seed, 4))
		pool := mustPool(t, "fd00::/53", 64)
		var excluded, held []netip.Prefix
		pick := func(longest int) netip.Prefix {
			return netip.PrefixFrom(pool.grid().at(draw.Uint64N(2048)).Addr(), 54+
				draw.IntN(longest-53)).Masked()
		}
		for range 3000 {
			switch at := draw.IntN(40); {
			case at == 0:
				excluded = []netip.Prefix{pick(66), pick(66)}
				pool.SetExclusions(excluded)
			case at == 1:
				pool.route(pick(66))
			case at <= 3 && len(pool.routed) > 0:
				pool.unroute(pool.routed[draw.IntN(len(pool.routed))])
			case at == 4:
				pool.pools[0].next = draw.Uint64N(2048)
			case at <= 20 && len(held) > 0:
				i := draw.IntN(len(held))
				pool.free(held[i])
				held = slices.Delete(held, i, i+1)
			case draw.IntN(25) == 0:
				counts, next := pool.naive(excluded)
				if got := pool.counts(); got != counts {
					t.Fatalf("counts are %+v, want %+v", got, counts)
				}
				p, ok := pool.take()
				if ok != next.IsValid() || ok && p != next {
					t.Fatalf("Assign() = %s, %t, want %s", p, ok, next)
				}
				if ok {
					held = append(held, p)
				}
			default:
				if p, ok := pool.take(); ok {
					held = append(held, p)
				}
			}
		}
	}
}
