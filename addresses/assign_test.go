package addresses_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// claim returns the claim of a Service created minute minutes after the first one.
func claim(uid string, minute int, families ...addresses.Family) addresses.Claim {
	return addresses.Claim{
		UID: uid, Namespace: "shop", Name: uid, Created: time.Unix(int64(60*minute), 0), Families: families,
		Admitted: []string{"a", "b", "six"}, Ports: []addresses.Port{{Protocol: "TCP", Number: 80}},
	}
}

func pools() []addresses.Pool {
	requested := pool("b", "198.51.100.1-198.51.100.2")
	requested.OnRequest = true
	return []addresses.Pool{pool("a", "192.0.2.1-192.0.2.2", "192.0.2.9"), requested, pool("six", "2001:db8::1-2001:db8::2")}
}

// shown prints the Services at each address, and the refusals.
func shown(l addresses.Ledger, refused []addresses.Refusal) string {
	var lines []string
	for _, e := range l.Entries() {
		names := []string{}
		for _, s := range e.Shares {
			names = append(names, s.Name)
		}
		lines = append(lines, fmt.Sprintf("%s:%s", e.Address, strings.Join(names, "+")))
	}
	for _, r := range refused {
		lines = append(lines, fmt.Sprintf("%s:%s", r.UID, r.Reason))
	}
	return strings.Join(lines, " ")
}

func TestAssign(t *testing.T) {
	with := func(c addresses.Claim, change func(*addresses.Claim)) addresses.Claim {
		change(&c)
		return c
	}
	asks := func(text string) func(*addresses.Claim) {
		return func(c *addresses.Claim) { c.Addresses = append(c.Addresses, netip.MustParseAddr(text)) }
	}
	shows := func(text string) func(*addresses.Claim) {
		return func(c *addresses.Claim) { c.Before = append(c.Before, netip.MustParseAddr(text)) }
	}
	localTo := func(selector string) func(*addresses.Claim) {
		return func(c *addresses.Claim) { c.Local, c.Selector = true, selector }
	}
	key := func(key string, port int) func(*addresses.Claim) {
		return func(c *addresses.Claim) {
			c.Key, c.Ports = key, []addresses.Port{{Protocol: "TCP", Number: port}}
		}
	}
	v4, v6 := addresses.IPv4, addresses.IPv6
	for name, c := range map[string]struct {
		rounds [][]addresses.Claim
		want   string
	}{
		"each its own, the oldest first": {
			[][]addresses.Claim{{claim("y", 2, v4), claim("x", 1, v4)}}, "192.0.2.1:x 192.0.2.2:y",
		},
		"both families": {[][]addresses.Claim{{claim("x", 1, v4, v6)}}, "192.0.2.1:x 2001:db8::1:x"},
		"no more is there": {
			[][]addresses.Claim{{claim("w", 1, v4), claim("x", 2, v4), claim("y", 3, v4), claim("z", 4, v4)}},
			"192.0.2.1:w 192.0.2.2:x 192.0.2.9:y z:AddressPoolExhausted",
		},
		"prefers two and gets one": {
			[][]addresses.Claim{{claim("v", 1, v6), claim("w", 2, v6), claim("x", 3, v4, v6)}},
			"192.0.2.1:x 2001:db8::1:v 2001:db8::2:w x:AddressPoolExhausted",
		},
		"requires two and gets none": {
			[][]addresses.Claim{{claim("v", 1, v6), claim("w", 2, v6), with(claim("x", 3, v4, v6), func(c *addresses.Claim) { c.All = true })}},
			"2001:db8::1:v 2001:db8::2:w x:AddressPoolExhausted",
		},
		"requires two later and keeps one": {
			[][]addresses.Claim{
				{claim("v", 1, v6), claim("w", 2, v6), claim("x", 3, v4)},
				{claim("v", 1, v6), claim("w", 2, v6), with(claim("x", 3, v4, v6), func(c *addresses.Claim) { c.All = true })},
			},
			"192.0.2.1:x 2001:db8::1:v 2001:db8::2:w x:AddressPoolExhausted",
		},
		"an older one that comes later takes nothing away": {
			[][]addresses.Claim{{claim("y", 2, v4)}, {claim("y", 2, v4), claim("x", 1, v4)}}, "192.0.2.1:y 192.0.2.2:x",
		},
		"given back, and used again last": {
			[][]addresses.Claim{{claim("x", 1, v4), claim("y", 2, v4)}, {claim("y", 2, v4)}, {claim("y", 2, v4), claim("z", 3, v4)}, {claim("y", 2, v4), claim("z", 3, v4), claim("w", 4, v4)}},
			"192.0.2.1:w 192.0.2.2:y 192.0.2.9:z",
		},
		"a family that is not wanted any more": {
			[][]addresses.Claim{{claim("x", 1, v4, v6)}, {claim("x", 1, v6)}}, "192.0.2.1: 2001:db8::1:x",
		},
		"asked for": {
			[][]addresses.Claim{{with(claim("x", 1, v4), asks("192.0.2.9")), with(claim("y", 2, v4), asks("198.51.100.2"))}}, "192.0.2.9:x 198.51.100.2:y",
		},
		"asked for by two": {
			[][]addresses.Claim{{with(claim("y", 2, v4), asks("192.0.2.9")), with(claim("x", 1, v4), asks("192.0.2.9"))}}, "192.0.2.9:x y:AddressTaken",
		},
		"asked for in no pool": {[][]addresses.Claim{{with(claim("x", 1, v4), asks("192.0.2.77"))}}, "x:AddressOutsidePools"},
		"asks for another one later": {
			[][]addresses.Claim{{claim("x", 1, v4)}, {with(claim("x", 1, v4), asks("192.0.2.9"))}}, "192.0.2.1: 192.0.2.9:x",
		},
		"asks for another one that is taken, and keeps its own": {
			[][]addresses.Claim{{claim("x", 1, v4), claim("y", 2, v4)}, {claim("x", 1, v4), with(claim("y", 2, v4), asks("192.0.2.1"))}},
			"192.0.2.1:x 192.0.2.2:y y:AddressTaken",
		},
		"from a pool on request": {
			[][]addresses.Claim{{with(claim("x", 1, v4), func(c *addresses.Claim) { c.Pool = "b" })}}, "198.51.100.1:x",
		},
		"from a pool that there is not": {
			[][]addresses.Claim{{with(claim("x", 1, v4), func(c *addresses.Claim) { c.Pool = "z" })}}, "x:NoAddressPool",
		},
		"from a pool of others": {
			[][]addresses.Claim{{with(claim("x", 1, v4), func(c *addresses.Claim) { c.Pool, c.Admitted = "b", []string{"a"} })}}, "x:NoAddressPool",
		},
		"shown already, before an older one that has nothing": {
			[][]addresses.Claim{{claim("x", 1, v4), with(claim("y", 2, v4), shows("192.0.2.1"))}}, "192.0.2.1:y 192.0.2.2:x",
		},
		"shown already, before an older one that asks for it": {
			[][]addresses.Claim{{with(claim("x", 1, v4), asks("192.0.2.1")), with(claim("y", 2, v4), shows("192.0.2.1"))}}, "192.0.2.1:y x:AddressTaken",
		},
		"shown by two, the older one keeps it": {
			[][]addresses.Claim{{with(claim("y", 2, v4), shows("192.0.2.1")), with(claim("x", 1, v4), shows("192.0.2.1"))}}, "192.0.2.1:x 192.0.2.2:y",
		},
		"shown, and of a pool on request": {
			[][]addresses.Claim{{with(claim("x", 1, v4), shows("198.51.100.2"))}}, "198.51.100.2:x",
		},
		"shown, and in no pool": {[][]addresses.Claim{{with(claim("x", 1, v4), shows("203.0.113.7"))}}, "192.0.2.1:x"},
		"shown, and of others' pool": {
			[][]addresses.Claim{{with(with(claim("x", 1, v4), shows("198.51.100.2")), func(c *addresses.Claim) { c.Admitted = []string{"a"} })}}, "192.0.2.1:x",
		},
		"shown, and of a family that is not wanted": {
			[][]addresses.Claim{{with(claim("x", 1, v4), shows("2001:db8::1"))}}, "192.0.2.1:x",
		},
		"shown, and another one is asked for": {
			[][]addresses.Claim{{with(with(claim("x", 1, v4), shows("192.0.2.9")), asks("192.0.2.2"))}}, "192.0.2.2:x 192.0.2.9:",
		},
		"shown, and another one is asked for that is taken": {
			[][]addresses.Claim{{with(claim("w", 0, v4), asks("192.0.2.2")), with(with(claim("x", 1, v4), shows("192.0.2.9")), asks("192.0.2.2"))}},
			"192.0.2.2:w 192.0.2.9:x x:AddressTaken",
		},
		"shown, and the ledger knows another one": {
			[][]addresses.Claim{{claim("x", 1, v4)}, {with(claim("x", 1, v4), shows("192.0.2.9"))}}, "192.0.2.1:x",
		},
		"shared by a key": {
			[][]addresses.Claim{{with(claim("x", 1, v4), key("k", 80)), with(claim("y", 2, v4), key("k", 81)), with(claim("z", 3, v4), key("other", 82))}},
			"192.0.2.1:x+y 192.0.2.2:z",
		},
		"not shared between namespaces": {
			[][]addresses.Claim{{with(claim("x", 1, v4), key("k", 80)), with(with(claim("y", 2, v4), key("k", 81)), func(c *addresses.Claim) { c.Namespace = "other" })}},
			"192.0.2.1:x 192.0.2.2:y",
		},
		"not shared by asking for the address from another namespace": {
			[][]addresses.Claim{{
				with(claim("x", 1, v4), key("k", 80)),
				with(with(with(claim("y", 2, v4), key("k", 81)), asks("192.0.2.1")), func(c *addresses.Claim) { c.Namespace = "other" }),
			}},
			"192.0.2.1:x y:AddressTaken",
		},
		"shared, and the port is taken": {
			[][]addresses.Claim{{with(claim("x", 1, v4), key("k", 80)), with(claim("y", 2, v4), key("k", 80))}}, "192.0.2.1:x 192.0.2.2:y",
		},
		"shared with policy Local and the same pods, by those that had it too": {
			[][]addresses.Claim{{
				with(with(with(claim("x", 1, v4), key("k", 443)), localTo("app=web")), shows("192.0.2.2")),
				with(with(with(claim("y", 1, v4), key("k", 444)), localTo("app=web")), shows("192.0.2.2")),
				with(with(claim("z", 2, v4), key("k", 445)), localTo("app=web")),
			}},
			"192.0.2.2:x+y+z",
		},
		"not shared with policy Local and other pods, or pods that nobody selects": {
			[][]addresses.Claim{{
				with(with(claim("x", 1, v4), key("k", 80)), localTo("app=web")),
				with(with(claim("y", 2, v4), key("k", 81)), localTo("app=dns")),
				with(with(claim("z", 3, v4), key("k", 82)), localTo("")),
			}},
			"192.0.2.1:x 192.0.2.2:y 192.0.2.9:z",
		},
		"shared, and one after the other changed to policy Local": {
			[][]addresses.Claim{
				{with(claim("x", 1, v4), key("k", 80)), with(claim("y", 2, v4), key("k", 81))},
				{with(with(claim("x", 1, v4), key("k", 80)), localTo("app=web")), with(claim("y", 2, v4), key("k", 81))},
				{with(with(claim("x", 1, v4), key("k", 80)), localTo("app=web")), with(with(claim("y", 2, v4), key("k", 81)), localTo("app=web"))},
			},
			"192.0.2.1:x+y",
		},
		"not shared with policy Local": {
			[][]addresses.Claim{{with(claim("x", 1, v4), key("k", 80)), with(with(claim("y", 2, v4), key("k", 81)), func(c *addresses.Claim) { c.Local = true })}},
			"192.0.2.1:x 192.0.2.2:y",
		},
		"shared, and changed to another one's port": {
			[][]addresses.Claim{
				{with(claim("x", 1, v4), key("k", 80)), with(claim("y", 2, v4), key("k", 81))},
				{with(claim("x", 1, v4), key("k", 81)), with(claim("y", 2, v4), key("k", 81))},
			},
			"192.0.2.1:x+y x:AddressPortTaken",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var l addresses.Ledger
			var refused []addresses.Refusal
			for _, claims := range c.rounds {
				before, _ := l.MarshalText()
				next, r := l.Assign(pools(), claims)
				if after, _ := l.MarshalText(); string(after) != string(before) {
					t.Error("the ledger that was given is another one afterwards")
				}
				l, refused = next, r
			}
			if got := shown(l, refused); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
			for _, r := range refused {
				if r.Field == "" || r.Text == "" {
					t.Errorf("a refusal without field or remedy: %+v", r)
				}
			}
		})
	}
}

// With any changes of Services, no address is at two that do not share it, no Service loses an
// address that it still requests, and a stored and parsed ledger is the same.
func TestServicesComeAndGo(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		var l addresses.Ledger
		var claims []addresses.Claim
		for step := range 40 {
			switch n := len(claims); {
			case n > 0 && r.IntN(3) == 0:
				claims = slices.Delete(slices.Clone(claims), 0, 1)
				r.Shuffle(len(claims), func(i, j int) { claims[i], claims[j] = claims[j], claims[i] })
			default:
				c := claim(fmt.Sprintf("s%d", step), r.IntN(5), addresses.IPv4, addresses.IPv6)
				c.Families = c.Families[r.IntN(2):]
				c.All, c.Local = r.IntN(2) == 0, r.IntN(4) == 0
				c.Selector = []string{"", "app=web", "app=dns"}[r.IntN(3)]
				c.Key = []string{"", "k", "l"}[r.IntN(3)]
				c.Ports = []addresses.Port{{Protocol: "TCP", Number: 80 + r.IntN(3)}}
				if !c.All && r.IntN(3) == 0 {
					c.Before = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(4))}), netip.MustParseAddr("2001:db8::2")}
				}
				claims = append(slices.Clone(claims), c)
			}
			next, refused := l.Assign(pools(), claims)
			if again, _ := l.Assign(pools(), claims); !reflect.DeepEqual(again.Entries(), next.Entries()) {
				t.Fatalf("seed %d: the same inputs give other addresses", seed)
			}
			if settled, r := next.Assign(pools(),
				claims); !reflect.DeepEqual(settled.Entries(), next.Entries()) ||
				!slices.Equal(refusedOf(r), refusedOf(refused)) {
				t.Fatalf("seed %d: it is not done after one call:\n%s\n%s", seed, shown(next, refused), shown(settled, r))
			}
			for _, c := range claims {
				for _, had := range l.Of(c.UID) {
					if !slices.Contains(next.Of(c.UID), had) {
						t.Fatalf("seed %d: %s lost %s", seed, c.UID, had)
					}
				}
				if got := len(next.Of(c.UID)); c.All && len(c.Families) == 2 && got == 1 {
					t.Fatalf("seed %d: %s requires both families and has one", seed, c.UID)
				}
			}
			checkShares(t, next)
			checkPods(t, next, claims)
			text, err := next.MarshalText()
			if err != nil {
				t.Fatal(err)
			}
			read, err := addresses.ParseLedger(text)
			if err != nil || !reflect.DeepEqual(read.Entries(), next.Entries()) {
				t.Fatalf("seed %d: read again it is another ledger: %v", seed, err)
			}
			l = next
		}
	}
}

// refusedOf returns the Services that do not get all requested addresses.
func refusedOf(refused []addresses.Refusal) (uids []string) {
	for _, r := range refused {
		uids = append(uids, r.UID)
	}
	return slices.Compact(uids)
}

// checkShares compares each pair of Services at an address naively.
func checkShares(t *testing.T, l addresses.Ledger) {
	t.Helper()
	for _, e := range l.Entries() {
		for i, a := range e.Shares {
			for _, b := range e.Shares[:i] {
				if a.UID == b.UID || a.Key == "" || a.Key != b.Key || a.Local != b.Local || reflect.DeepEqual(a.Ports, b.Ports) {
					t.Fatalf("%s is on %+v and %+v", e.Address, a, b)
				}
			}
		}
	}
}

// checkPods finds Services with policy Local that share an address and have different pods.
func checkPods(t *testing.T, l addresses.Ledger, claims []addresses.Claim) {
	t.Helper()
	pods := make(map[netip.Addr]string)
	for _, c := range claims {
		for _, address := range l.Of(c.UID) {
			if e, _ := l.Entry(address); !c.Local || len(e.Shares) < 2 {
				continue
			}
			if other, shared := pods[address]; c.Selector == "" || shared && other != c.Selector {
				t.Fatalf("%s is on pods of %q and %q", address, c.Selector, other)
			}
			pods[address] = c.Selector
		}
	}
}

func TestUnreadableLedgers(t *testing.T) {
	for text, want := range map[string]string{
		"{":             "reading the ledger of addresses",
		`{"version":2}`: "another version",
		`{"version":1,"addresses":[{"address":"192.0.2.1"},{"address":"192.0.2.1"}]}`:     "there twice",
		`{"version":1,"addresses":[{"address":"192.0.2.1","node":"worker-1","epoch":0}]}`: "without an epoch",
	} {
		if _, err := addresses.ParseLedger([]byte(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if l, err := addresses.ParseLedger(nil); err != nil || len(l.Entries()) != 0 {
		t.Errorf("nothing stored: %v, %v", l, err)
	}
}

// A range of 2^64 addresses costs no more than its used part.
func TestLargeRange(t *testing.T) {
	large := []addresses.Pool{pool("a", "2001:db8::/64")}
	var claims []addresses.Claim
	for i := range 200 {
		claims = append(claims, claim(fmt.Sprint("s", i), i, addresses.IPv6))
	}
	l, refused := addresses.Ledger{}.Assign(large, claims)
	if len(l.Entries()) != 200 || len(refused) != 0 {
		t.Errorf("%d addresses, refused %v", len(l.Entries()), refused)
	}
}

// Changes of pools take no address from a Service that requested the pool by name.
func TestPoolsThatChange(t *testing.T) {
	asks := claim("x", 1, addresses.IPv4)
	asks.Pool, asks.Admitted = "a", []string{"a", "b", "c"}
	one := func(p addresses.Pool) addresses.Pool { p.OnRequest = true; return p }
	l, _ := addresses.Ledger{}.Assign([]addresses.Pool{one(pool("a", "192.0.2.1-192.0.2.8"))}, []addresses.Claim{asks})
	for name, c := range map[string]struct {
		pools []addresses.Pool
		ask   string
		want  string
	}{
		"its range is another pool's": {[]addresses.Pool{pool("a", "192.0.2.5-192.0.2.8"), pool("b", "192.0.2.1-192.0.2.4")}, "a", "192.0.2.1:x"},
		"the pool is renamed":         {[]addresses.Pool{pool("c", "192.0.2.1-192.0.2.8")}, "a", "192.0.2.1:x"},
		"it is in none":               {[]addresses.Pool{pool("a", "192.0.2.5-192.0.2.8")}, "a", "192.0.2.1:x"},
		"it asks for another one":     {[]addresses.Pool{pool("a", "192.0.2.1-192.0.2.8"), pool("b", "192.0.2.9")}, "b", "192.0.2.1: 192.0.2.9:x"},
		"it asks for its new one":     {[]addresses.Pool{pool("a", "192.0.2.5-192.0.2.8"), pool("b", "192.0.2.1-192.0.2.4")}, "b", "192.0.2.1:x"},
	} {
		t.Run(name, func(t *testing.T) {
			asks := asks
			asks.Pool = c.ask
			next, _ := l.Assign(c.pools, []addresses.Claim{asks})
			next, refused := next.Assign(c.pools, []addresses.Claim{asks})
			if got := shown(next, refused); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// Fields that users write don't affect the size of the ledger: the API server accepts about a
// megabyte, and a ledger that can't be written stops all moves.
func TestTheLedgerIsBounded(t *testing.T) {
	wide := []addresses.Pool{pool("a", "2001:db8::/64")}
	var claims []addresses.Claim
	for i := range addresses.Most + 100 {
		c := claim(fmt.Sprintf("00000000-0000-0000-0000-%012d", i), i, addresses.IPv6)
		c.Name = fmt.Sprintf("a-service-with-an-ordinary-name-%d", i)
		c.Endpoints = true
		for port := range 8 {
			c.Ports = append(c.Ports, addresses.Port{Protocol: "TCP", Number: 30000 + port})
		}
		if i < 20 {
			c.Key, c.Pool, c.Before = strings.Repeat("k", 200_000)+fmt.Sprint(i), strings.Repeat("p", 200_000), []netip.Addr{netip.MustParseAddr(fmt.Sprintf("2001:db8::1:%d", i))}
		}
		for port := range 1000 * (1 - min(i/20, 1)) {
			c.Ports = append(c.Ports, addresses.Port{Protocol: "TCP", Number: port + 1})
		}
		claims = append(claims, c)
	}
	l, refused := addresses.Ledger{}.Assign(wide, claims)
	l, _ = l.Place(everywhere(l, []string{"a-node-with-an-ordinary-name"}))
	var r addresses.Report
	for _, e := range l.Entries() {
		r.Held = append(r.Held, addresses.Hold{Address: e.Address, Epoch: e.Epoch})
	}
	l = l.Witness(map[string]addresses.Report{"a-node-with-an-ordinary-name": r})
	text, err := l.MarshalText()
	if err != nil || len(text) > 1_000_000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if n := len(l.Entries()); n != addresses.Most || len(refused) < 100 ||
		refused[len(refused)-1].Reason != addresses.Exhausted {
		t.Errorf("%d addresses, %d refused", n, len(refused))
	}
}

func TestLongKeys(t *testing.T) {
	var claims []addresses.Claim
	for i, key := range []string{strings.Repeat("k", 1000), strings.Repeat("k", 1000), strings.Repeat("k", 999) + "l"} {
		c := claim(fmt.Sprint("s", i), i, addresses.IPv4)
		c.Key, c.Ports = key, []addresses.Port{{Protocol: "TCP", Number: i + 1}}
		claims = append(claims, c)
	}
	l, refused := addresses.Ledger{}.Assign(pools(), claims)
	if got := shown(l, refused); got != "192.0.2.1:s0+s1 192.0.2.2:s2" {
		t.Error(got)
	}
}
