package bgp_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses/bgp"
)

// router returns a peer at 192.0.2.N, or 2001:db8::N.
func router(name, address string) bgp.Peer {
	return bgp.Peer{
		Name: name, Address: netip.MustParseAddr(address), Port: 179, ASN: 64500,
		HoldTime: 9 * time.Second,
	}
}

func desired(prefixes string, peers ...bgp.Peer) bgp.Desired {
	d := bgp.Desired{ASN: 64512, RouterID: netip.MustParseAddr("192.0.2.11"), Peers: peers}
	for text := range strings.FieldsSeq(prefixes) {
		d.Prefixes = append(d.Prefixes, netip.MustParsePrefix(text))
	}
	return d
}

// shown prints a plan in one line, in the order in which it is applied.
func shown(plan bgp.Plan) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if plan.Restart {
		add("restart")
	}
	for _, p := range plan.Announce {
		add("+%s", p)
	}
	for _, p := range plan.End {
		add("end:%s", p.Name)
	}
	for _, s := range plan.Begin {
		add("begin:%s", s.Name)
	}
	for _, p := range plan.Withdraw {
		add("-%s", p)
	}
	return strings.Join(parts, " ")
}

func password(t *testing.T, text string) bgp.Password {
	t.Helper()
	p, err := bgp.NewPassword(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDiff(t *testing.T) {
	const x, y, six = "203.0.113.1/32", "203.0.113.2/32", "2001:db8:5::1/128"
	a, b := router("a", "192.0.2.1"), router("b", "192.0.2.2")
	v6 := router("six", "2001:db8::1")
	with := func(p bgp.Peer, change func(*bgp.Peer)) bgp.Peer {
		change(&p)
		return p
	}
	in := func(d bgp.Desired, change func(*bgp.Desired)) bgp.Desired {
		change(&d)
		return d
	}
	secret := func(text string) func(*bgp.Peer) {
		return func(p *bgp.Peer) { p.Password = password(t, text) }
	}
	marked := func(n uint32) func(*bgp.Peer) {
		return func(p *bgp.Peer) { p.Communities = []uint32{64512<<16 | n} }
	}
	for name, c := range map[string]struct {
		have, want bgp.Desired
		plan       string
	}{
		"nothing":        {bgp.Desired{}, bgp.Desired{}, ""},
		"from nothing":   {bgp.Desired{}, desired(x, a), "restart +203.0.113.1/32 begin:a"},
		"the same":       {desired(x+" "+y, a, b), desired(y+" "+x, b, a), ""},
		"twice the same": {desired(x, a), desired(x+" "+x, a), ""},
		"new before old": {desired(x, a), desired(y, a), "+203.0.113.2/32 -203.0.113.1/32"},
		"no prefixes":    {desired(x, a), desired("", a), "-203.0.113.1/32"},
		"no peers":       {desired(x, a), desired(x), "end:a"},
		"another peer":   {desired(x, a), desired(x, a, b), "begin:b"},
		"a peer less":    {desired(x, a, b), desired(x, b), "end:a"},
		"a peer moves":   {desired(x, a), desired(x, with(a, func(p *bgp.Peer) { p.Address = netip.MustParseAddr("192.0.2.3") })), "end:a begin:a"},
		"names change places": {
			desired(x, a, b), desired(x, with(a, func(p *bgp.Peer) { p.Name = "b" }), with(b, func(p *bgp.Peer) { p.Name = "a" })),
			"end:a end:b begin:a begin:b",
		},
		"a password":              {desired(x, a, b), desired(x, a, with(b, secret("s"))), "end:b begin:b"},
		"the same password":       {desired(x, with(a, secret("s"))), desired(x, with(a, secret("s"))), ""},
		"another password":        {desired(x, with(a, secret("s"))), desired(x, with(a, secret("t"))), "end:a begin:a"},
		"a hold time":             {desired(x, a, b), desired(x, with(a, func(p *bgp.Peer) { p.HoldTime = 3 * time.Second }), b), "end:a begin:a"},
		"a restart time":          {desired(x, a), in(desired(x, a), func(d *bgp.Desired) { d.RestartTime = time.Minute }), "end:a begin:a"},
		"communities":             {desired(x, a, b), desired(x, with(a, marked(1)), b), "end:a begin:a"},
		"other communities":       {desired(x, with(a, marked(1))), desired(x, with(a, marked(2))), "end:a begin:a"},
		"with communities":        {desired(x, a), desired(x, a, with(b, marked(1))), "begin:b"},
		"communities in disorder": {desired(x, with(a, func(p *bgp.Peer) { p.Communities = []uint32{1, 2} })), desired(x, with(a, func(p *bgp.Peer) { p.Communities = []uint32{2, 1, 2} })), ""},
		"another number":          {desired(x, a), in(desired(x, a), func(d *bgp.Desired) { d.ASN = 64513 }), "restart +203.0.113.1/32 begin:a"},

		"each family over its own session": {
			bgp.Desired{}, desired(x+" "+six, a, v6), "restart +203.0.113.1/32 +2001:db8:5::1/128 begin:a begin:six",
		},
		"IPv6 gets a session": {desired(x+" "+six, a), desired(x+" "+six, a, v6), "begin:six"},
	} {
		t.Run(name, func(t *testing.T) {
			plan := bgp.Diff(c.have, c.want)
			if got := shown(plan); got != c.plan {
				t.Errorf("the plan is  %s\nand should be %s", got, c.plan)
			}
			if plan.Empty() != (c.plan == "") {
				t.Errorf("empty: %t", plan.Empty())
			}
			if again := bgp.Diff(c.want, c.want); !again.Empty() {
				t.Errorf("and then: %s", shown(again))
			}
		})
	}
}

// model is the state of a speaker that applies plans.
type model struct {
	paths map[netip.Prefix]bool
	peers map[string]time.Duration
}

func (m *model) apply(plan bgp.Plan) error {
	if plan.Restart {
		*m = model{map[netip.Prefix]bool{}, map[string]time.Duration{}}
	}
	for _, p := range plan.Announce {
		m.paths[p] = true
	}
	for _, p := range plan.End {
		if _, ok := m.peers[p.Address.String()]; !ok {
			return fmt.Errorf("%s ends and was not there", p.Name)
		}
		delete(m.peers, p.Address.String())
	}
	for _, p := range plan.Begin {
		if _, ok := m.peers[p.Address.String()]; ok {
			return fmt.Errorf("%s begins and is there", p.Name)
		}
		m.peers[p.Address.String()] = p.HoldTime
	}
	for _, p := range plan.Withdraw {
		if !m.paths[p] {
			return fmt.Errorf("%s is withdrawn and was not there", p)
		}
		delete(m.paths, p)
	}
	return nil
}

// With any former state, the result is the desired one; and no prefix that is desired before and
// after is withdrawn in between.
func TestAnyWayLeadsThere(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	some := func() bgp.Desired {
		d := desired("")
		if random.IntN(10) == 0 {
			d.ASN++
		}
		for i, address := range []string{"192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8::2"} {
			if random.IntN(2) == 0 {
				p := router(fmt.Sprint("peer", (i+random.IntN(2)*2)%4, i), address)
				p.HoldTime = time.Duration(3+random.IntN(2)) * time.Second
				d.Peers = append(d.Peers, p)
			}
		}
		for i := range 4 {
			if random.IntN(2) == 0 {
				d.Prefixes = append(d.Prefixes, bgp.Host(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})))
			}
		}
		if random.IntN(2) == 0 {
			d.Prefixes = append(d.Prefixes, netip.MustParsePrefix("2001:db8:5::1/128"))
		}
		return d
	}
	var m, fresh model
	var have bgp.Desired
	for range 2000 {
		want := some()
		plan := bgp.Diff(have, want)
		for _, p := range plan.Withdraw {
			if slices.Contains(want.Prefixes, p) {
				t.Fatalf("%s is withdrawn and wanted", p)
			}
		}
		if err := m.apply(plan); err != nil {
			t.Fatal(err)
		}
		if err := fresh.apply(bgp.Diff(bgp.Desired{}, want)); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(m) != fmt.Sprint(fresh) {
			t.Fatalf("from %+v\nto %+v:\n%v, want\n%v", have, want, m, fresh)
		}
		have = want
	}
}

func TestRouterID(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.11"), netip.MustParseAddr("2001:db8::11")
	if got := bgp.RouterID("n", []netip.Addr{v6, v4}); got != v4 {
		t.Errorf("with an IPv4 address: %s", got)
	}
	one, other := bgp.RouterID("n", []netip.Addr{v6}), bgp.RouterID("m", []netip.Addr{v6})
	if !one.Is4() || one.IsUnspecified() || one == other || one != bgp.RouterID("n", nil) {
		t.Errorf("of names: %s and %s", one, other)
	}
}
