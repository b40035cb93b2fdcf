package speaker_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/addresses/bgp"
)

// soon is the time limit for a session on a busy machine: the library connects after two seconds,
// and then every five.
const soon = 20 * time.Second

func TestTwoNodesAreOneRoute(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4}, session{node: "a", family: 6}, session{node: "b", family: 4}, session{node: "b", family: 6})
	pods := netip.MustParsePrefix("10.244.7.0/24")
	a, b := speak(t, f.nodes["a"]), speak(t, f.nodes["b"])
	both := hosts(service4, service6)
	a.set(of("a", append(both, pods), router4, router6))
	b.set(of("b", both, router4, router6))

	for _, p := range both {
		f.until(soon, "two next hops of "+p.String(), func() bool { return f.hops(p) == 2 })
	}
	f.until(soon, "the podCIDR", func() bool { return f.hops(pods) == 1 })
	for _, want := range []addresses.Router{
		{Name: "router4", Established: true, State: "Established", Announced: 2},
		{Name: "router6", Established: true, State: "Established", Announced: 1},
	} {
		if got := a.state(want.Name); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	if out := f.birdc("show", "route", "for", service6.String(), "all"); !strings.Contains(out, "BGP.next_hop: 2001:db8::11") || !strings.Contains(out, "BGP.as_path: 64512") {
		t.Errorf("the IPv6 route:\n%s", out)
	}

	b.set(of("b", hosts(service6), router4, router6))
	f.until(soon, "one next hop after b has withdrawn", func() bool { return f.hops(bgp.Host(service4)) == 1 })
	if f.hops(bgp.Host(service6)) != 2 {
		t.Error("what was not withdrawn has gone too")
	}
	b.send(order{Close: true})
	f.until(soon, "b's end withdraws", func() bool { return f.hops(bgp.Host(service6)) == 1 })
	if a.send(order{}).Changes == 0 {
		t.Error("nothing was told of sessions that came up")
	}
}

// Routes that a router announces are not used: they reach neither the kernel nor another router.
func TestNothingIsLearned(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.start(birdHead + `protocol static outside { ipv4; route 198.18.0.0/24 blackhole; }
protocol bgp a4 { local 192.0.2.1 as 64500; neighbor 192.0.2.11 as 64512; passive on; ipv4 { import all; export all; }; }
`)
	// The other router replaces node b.
	other, _ := own("b")
	const second = `router id 192.0.2.12;
protocol device { }
protocol bgp a4 { local 192.0.2.12 as 64501; neighbor 192.0.2.11 as 64512; passive on; ipv4 { import all; export none; }; }
`
	if err := os.WriteFile(filepath.Join(f.dir, "second.conf"), []byte(second), 0o600); err != nil {
		t.Fatal(err)
	}
	f.daemon(f.nodes["b"], "second")
	heard := func() string {
		out, _ := f.nodes["b"].Try("birdc", "-s", filepath.Join(f.dir, "second.ctl"), "show", "route")
		return out
	}
	a := speak(t, f.nodes["a"])
	w := of("a", hosts(service4), router4)
	w.Peers = append(w.Peers, secretPeer{Peer: bgp.Peer{Name: "other", Address: other, Port: 179, ASN: 64501, HoldTime: 9 * time.Second}})
	a.set(w)
	f.until(soon, "the router tells a", func() bool {
		return a.state("other").Established && strings.Contains(f.birdc("show", "route", "export", "a4"), "198.18.0.0")
	})
	last := netip.MustParseAddr("203.0.113.11")
	w.Prefixes = append(w.Prefixes, bgp.Host(last))
	a.set(w)
	f.until(soon, "the other router hears the last of what a says", func() bool { return strings.Contains(heard(), last.String()) })
	if text := heard(); strings.Contains(text, "198.18.0.0") {
		t.Errorf("a told it what the first router said:\n%s", text)
	}
	if out := f.nodes["a"].Run("ip", "route", "show", "198.18.0.0/24"); out != "" {
		t.Errorf("a's kernel: %s", out)
	}
}

// A session carries its own family alone, although the router accepts both.
func TestOneFamilyOverASession(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	const both = "ipv4 { import all; export none; };\n\tipv6 { import all; export none; };"
	f.route(session{node: "a", family: 4, channels: both})
	a := speak(t, f.nodes["a"])
	a.set(of("a", hosts(service4, service6), router4))
	f.until(soon, "IPv4", func() bool { return f.hops(bgp.Host(service4)) == 1 })
	if got := a.state("router4"); !got.Established || got.Announced != 1 {
		t.Errorf("the session: %+v", got)
	}
	if f.hops(bgp.Host(service6)) != 0 {
		t.Error("the router has the IPv6 route, and no session of its family")
	}
}

func TestCommunities(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4}, session{node: "a", family: 6})
	a := speak(t, f.nodes["a"])
	w := of("a", hosts(service4, service6), router4, router6)
	w.Peers[0].Communities = []uint32{64512<<16 | 100, 0xFFFF<<16 | 7}
	a.set(w)
	marked := func(what netip.Addr, texts ...string) func() bool {
		return func() bool {
			out := f.birdc("show", "route", "for", what.String(), "all")
			return !slices.ContainsFunc(texts, func(text string) bool {
				return !strings.Contains(out, text)
			})
		}
	}
	f.until(soon, "both", marked(service4, "BGP.community: (64512,100) (65535,7)"))
	f.until(soon, "the other session", marked(service6, "BGP.next_hop"))
	if marked(service6, "community")() {
		t.Error("the other session has communities too")
	}
	since := f.birdc("show", "protocols", "a6")
	w.Peers[0].Communities = []uint32{64512<<16 | 200}
	a.set(w)
	f.until(soon, "another community", marked(service4, "BGP.community: (64512,200)"))
	if now := f.birdc("show", "protocols", "a6"); now != since {
		t.Errorf("the other session was reset too:\n%s\n%s", since, now)
	}
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4, options: `password "right";`}, session{node: "a", family: 6})
	a := speak(t, f.nodes["a"])
	w := of("a", hosts(service4, service6), router4, router6)
	w.Peers[0].Password = "wrong"
	a.set(w)
	f.until(soon, "the session without a password", func() bool { return f.hops(bgp.Host(service6)) == 1 })
	f.until(soon, "an attempt", func() bool { return a.state("router4").State == "Active" })
	if got := a.state("router4"); got.Established || got.Announced != 0 {
		t.Errorf("with a wrong password: %+v", got)
	}
	since := f.birdc("show", "protocols", "a6")
	w.Peers[0].Password = "right"
	a.set(w)
	f.until(soon, "the session with the right password", func() bool { return f.hops(bgp.Host(service4)) == 1 })
	if now := f.birdc("show", "protocols", "a6"); now != since {
		t.Errorf("the other session was touched:\n%s\n%s", since, now)
	}
	if log := a.log(); strings.Contains(log, "wrong") || strings.Contains(log, "right") {
		t.Errorf("a password is in the log:\n%s", log)
	}
}

func TestTheRouterRestarts(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	sessions := []session{{node: "a", family: 4}, {node: "a", family: 6}}
	f.route(sessions...)
	a := speak(t, f.nodes["a"])
	a.set(of("a", hosts(service4, service6), router4, router6))
	present := func() bool {
		return f.hops(bgp.Host(service4)) == 1 && f.hops(bgp.Host(service6)) == 1
	}
	f.until(soon, "the routes", present)
	f.bird.Kill()
	f.until(soon, "the sessions' end", func() bool { return !a.state("router4").Established && !a.state("router6").Established })
	f.until(soon, "the end in the log", func() bool { return strings.Contains(a.log(), "BGP session ended") })
	f.router.Run("ip", "route", "flush", "proto", "bird")
	f.router.Run("ip", "-6", "route", "flush", "proto", "bird")
	f.route(sessions...)
	t.Logf("sessions and routes are back after %s", f.until(soon, "the routes again", present))
}

// In an internal session, the router is in the nodes' own AS.
func TestInternalSession(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4, options: "local as 64512; direct;"})
	a := speak(t, f.nodes["a"])
	w := of("a", hosts(service4), router4)
	w.Peers[0].ASN = nodeASN
	a.set(w)
	f.until(soon, "the route", func() bool { return f.hops(bgp.Host(service4)) == 1 })
}

// With an ASN that the router doesn't expect, there is no session, and another ASN starts a new
// one.
func TestAnotherNumber(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4})
	a := speak(t, f.nodes["a"])
	w := of("a", hosts(service4), router4)
	w.ASN = 64513
	a.set(w)
	f.until(soon, "an attempt", func() bool { return a.state("router4").State == "Active" })
	if out := a.send(order{Set: &wanted{}}); !strings.Contains(out.Error, "asn: 0") {
		t.Errorf("an impossible wish: %s", out.Error)
	}
	if got := a.state("router4"); got.Name != "router4" {
		t.Errorf("after it: %+v", got)
	}
	w.ASN = nodeASN
	a.set(w)
	f.until(soon, "the route", func() bool { return f.hops(bgp.Host(service4)) == 1 })
	w.Peers = nil
	a.set(w)
	f.until(soon, "nothing is left", func() bool { return f.hops(bgp.Host(service4)) == 0 })
	if out := a.send(order{}); len(out.State) > 0 {
		t.Errorf("without peers: %+v", out.State)
	}
}

// The session with a router that announces the whole table is closed, and the state reports it.
func TestTheRouterAnnouncesTooMuch(t *testing.T) {
	t.Parallel()
	f := newFabric(t)
	f.route(session{node: "a", family: 4, channels: "ipv4 { import all; export all; };"})
	a := speak(t, f.nodes["a"])
	a.set(of("a", hosts(service4), router4))
	f.until(soon, "the session", func() bool { return a.state("router4").Established })
	f.learn(6000)
	f.until(soon, "it is given up", func() bool { return a.state("router4").State == "PrefixLimitReached" })
}

// This is the router of the how-to.
func TestTheDocumentedRouter(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/how-to/bgp.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```bird\n")
	configuration, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("the page has no configuration for BIRD")
	}
	f := newFabric(t)
	f.start(configuration)
	gateway := netip.MustParsePrefix("192.0.2.1/32")
	for node, n := range f.nodes {
		speak(t, n).set(of(node, append(hosts(service4, service6), gateway), router4, router6))
	}
	for _, p := range hosts(service4, service6) {
		f.until(soon, "two next hops of "+p.String(), func() bool { return f.hops(p) == 2 })
	}
	if f.hops(gateway) != 0 {
		t.Error("the filter lets the gateway's address in")
	}
}
