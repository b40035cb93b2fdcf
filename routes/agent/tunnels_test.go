package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// keyOf is the public key of a test's node.
func keyOf(name string) string { return fmt.Sprintf("%-43s=", name)[:44] }

// tunneled is a server in a cloud where tunnels connect nodes with a reach.
func tunneled(reach routes.Reach, peers ...*kube.Node) Situation {
	s := cloud()
	s.Tunnels = TunnelSettings{Enabled: true, Port: 51820}
	s.Devices = []TunnelState{{Link: 9, Port: 51820, PublicKey: keyOf("self")}}
	s.PodRanges = s.Pools
	s.Links = append(s.Links, Link{Index: 9, Name: TunnelLink(51820), Up: true, MTU: 1370})
	s.Nodes = append([]*kube.Node{withKey(aNode("self", "10.0.0.2", "10.244.1.0/24"), reach)}, peers...)
	s.Nodes[0].ExternalIPs = []netip.Addr{addr("192.0.2.9")}
	return s
}

func wireGuardOf(name string) *kube.WireGuard {
	return &kube.WireGuard{Keys: []kube.WireGuardKey{{PublicKey: keyOf(name), Port: 51820}}}
}

func withKey(n *kube.Node, reach routes.Reach) *kube.Node {
	n.Reach, n.WireGuard = reach, wireGuardOf(n.Name)
	return n
}

// plain, noRoom and outside are other nodes.
func plain() *kube.Node {
	n := withKey(aNode("plain", "10.0.0.3", "10.244.2.0/24"), "")
	n.ExternalIPs = []netip.Addr{addr("192.0.2.3")}
	return n
}

func noRoom() *kube.Node {
	return withKey(aNode("no-room", "10.0.0.4", "10.244.3.0/24"), routes.NoRoom)
}

func outside() *kube.Node {
	return withKey(aNode("outside", "203.0.113.5", "10.244.4.0/24"), routes.NoNetwork)
}

func showTunnels(t *testing.T, s Situation) string {
	t.Helper()
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range d.TunnelPlans[0].Peers {
		fmt.Fprintf(&b, "%s at %v: %v\n", p.Node, p.Endpoints, p.AllowedIPs)
	}
	for _, w := range d.Want {
		if w.Link == s.Devices[0].Link {
			fmt.Fprintf(&b, "route %s metric %d\n", w.Entry, w.Metric)
		}
	}
	for _, p := range d.Peers() {
		fmt.Fprintf(&b, "unreachable: %s\n", p.Node)
	}
	return b.String()
}

func TestTunnelsAndRoutesIntoThem(t *testing.T) {
	for name, c := range map[string]struct {
		s    Situation
		want string
	}{
		"between nodes with routes there is none": {tunneled("", plain()), ""},
		"to a node without room": {tunneled("", plain(), noRoom()), `
no-room at [10.0.0.4:51820]: [10.244.3.0/24 10.0.0.4/32]
route 10.244.3.0/24 on interface 9 metric 204
`},
		"to a node outside, by public addresses": {tunneled("", outside()), `
outside at [203.0.113.5:51820]: [10.244.4.0/24]
route 10.244.4.0/24 on interface 9 metric 205
`},
		"from a node without room to all": {tunneled(routes.NoRoom, plain(), outside()), `
outside at [203.0.113.5:51820]: [10.244.4.0/24]
plain at [10.0.0.3:51820]: [10.244.2.0/24 10.0.0.3/32]
route 10.244.2.0/24 on interface 9 metric 203
route 10.244.4.0/24 on interface 9 metric 205
`},
		"from outside to the nodes' private addresses too": {tunneled(routes.NoNetwork, plain(), outside()), `
outside at [203.0.113.5:51820]: [10.244.4.0/24]
plain at [192.0.2.3:51820]: [10.244.2.0/24 10.0.0.3/32]
route 10.244.2.0/24 on interface 9 metric 203
route 10.0.0.3/32 on interface 9 metric 204
route 10.244.4.0/24 on interface 9 metric 205
`},
	} {
		t.Run(name, func(t *testing.T) {
			if got := showTunnels(t, c.s); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// What a Node reports must not redirect other nodes' packets.
func TestTunnelsDistrustReportsOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		change func(s *Situation, n *kube.Node)
		want   string
	}{
		"a key of another Node": {func(s *Situation, n *kube.Node) {
			s.Nodes = append(s.Nodes, noRoom())
			n.WireGuard = s.Nodes[2].WireGuard
		}, "unreachable: no-room\nunreachable: plain\n"},
		"no key": {func(_ *Situation, n *kube.Node) { n.WireGuard = nil }, "unreachable: plain\n"},
		"an address of another Node": {func(s *Situation, n *kube.Node) {
			other := noRoom()
			other.WireGuard, other.InternalIPs = nil, n.InternalIPs
			s.Nodes = append(s.Nodes, other)
		}, "plain at [192.0.2.3:51820]: [10.244.2.0/24]\nroute 10.244.2.0/24 on interface 9 metric 203\nunreachable: no-room\n"},
		"an address in the pods' range": {func(_ *Situation, n *kube.Node) {
			n.InternalIPs, n.ExternalIPs = []netip.Addr{addr("10.244.9.9")}, []netip.Addr{addr("10.244.9.9")}
		}, "plain at []: [10.244.2.0/24]\nroute 10.244.2.0/24 on interface 9 metric 203\n"},
		"the API server's address": {
			func(s *Situation, _ *kube.Node) { s.Tunnels.Server = []netip.Addr{addr("10.0.0.3")} },
			"plain at [192.0.2.3:51820]: [10.244.2.0/24]\nroute 10.244.2.0/24 on interface 9 metric 203\n",
		},
		"a public address as its internal one": {
			func(_ *Situation, n *kube.Node) { n.InternalIPs = []netip.Addr{addr("198.51.100.1")} },
			"plain at [198.51.100.1:51820 192.0.2.3:51820]: [10.244.2.0/24]\nroute 10.244.2.0/24 on interface 9 metric 203\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := tunneled(routes.NoNetwork, plain())
			c.change(&s, s.Nodes[1])
			if got := showTunnels(t, s); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// Pods reach nodes at the other end of a tunnel through it, under their own addresses. A node
// without a device is not ready if it needs one.
func TestFurtherEffectsOfTunnels(t *testing.T) {
	d, err := Decide(tunneled("", plain(), noRoom()))
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(d.TunnelPlans[0].NodeAddrs, d.TunnelPlans[0].PodCIDRs); got != "[10.0.0.4/32] [10.244.1.0/24]" {
		t.Errorf("pods reach these nodes by tunnels: %s", got)
	}
	if d.TunnelPlans[0].MTU != 1400-tunnelOverhead || d.View.MTU != 1400 || d.View.TunnelMTU != d.TunnelPlans[0].MTU || !slices.Equal(d.View.Tunnels, []string{"underlay-51820"}) {
		t.Errorf("MTU %d in tunnels, %d of pods; view %+v", d.TunnelPlans[0].MTU, d.View.MTU, d.View)
	}
	if got := fmt.Sprint(d.TunnelPlans[0].Addrs); got != "[10.244.1.1/32]" {
		t.Errorf("addresses of the device: %s", got)
	}
	s := tunneled(routes.NoRoom, plain())
	if d, err = Decide(s); err != nil || d.View.MTU != d.TunnelPlans[0].MTU {
		t.Errorf("pods of a node without room have the MTU %d (%v)", d.View.MTU, err)
	}
	s.Devices = []TunnelState{{Problem: "no module"}}
	if d, err = Decide(s); err != nil || len(d.Faults) != 1 || len(d.View.Tunnels) > 0 ||
		len(d.TunnelPlans[0].Peers) > 0 {
		t.Errorf("without a device: faults %q, view %+v, peers %v (%v)", d.Faults, d.View, d.TunnelPlans[0].Peers, err)
	}
}

// The phases of a change from plain routes to tunnels between all nodes: what is sent plainly, and
// what is not.
func TestPhases(t *testing.T) {
	const peers = "a at [10.0.0.3:51820]: [10.244.2.0/24 10.0.0.3/32]\nb at [10.0.0.4:51820]: [10.244.3.0/24 10.0.0.4/32]\n"
	for phase, want := range map[routes.TunnelPhase]string{
		routes.AcceptTunnels: peers,
		// A has shaken hands.
		routes.PreferTunnels:  peers + "route 10.244.2.0/24 on interface 9 metric 203\n",
		routes.RequireTunnels: peers + "route 10.244.2.0/24 on interface 9 metric 203\nroute 10.244.3.0/24 on interface 9 metric 204\n",
	} {
		for name, mode := range map[string]routes.Mode{"node": routes.ByNodes, "cloud": routes.ByCloud} {
			t.Run(fmt.Sprint(phase, " ", name), func(t *testing.T) {
				s := tunneled("", withKey(aNode("a", "10.0.0.3", "10.244.2.0/24"), ""), withKey(aNode("b", "10.0.0.4", "10.244.3.0/24"), ""), aNode("keyless", "10.0.0.5", "10.244.4.0/24"))
				s.Modes, s.Tunnels.Phase = routes.Modes{IPv4: mode, IPv6: routes.Unrouted}, phase
				s.Links[1].Addrs = []netip.Prefix{prefix("10.0.0.2/24")}
				s.Table = append(s.Table, foreign("10.0.0.0/24", "", 2))
				s.Devices[0].Peers = map[string]TunnelPeerState{keyOf("a"): {Handshake: time.Now()}}
				want := want
				if phase == routes.RequireTunnels {
					want += "unreachable: keyless\n"
				}
				if got := showTunnels(t, s); got != want {
					t.Errorf("got\n%s\nwant\n%s", got, want)
				}
				d, err := Decide(s)
				if err != nil {
					t.Fatal(err)
				}
				var plain []string
				for _, w := range d.Want {
					if w.Kind == Unicast && w.Link != s.Devices[0].Link {
						plain = append(plain, w.Entry.String())
					}
				}
				wantPlain := map[routes.TunnelPhase]map[routes.Mode]string{
					routes.AcceptTunnels:  {routes.ByNodes: "[10.244.2.0/24 via 10.0.0.3 10.244.3.0/24 via 10.0.0.4 10.244.4.0/24 via 10.0.0.5]", routes.ByCloud: "[10.244.0.0/16 via 10.0.0.1]"},
					routes.PreferTunnels:  {routes.ByNodes: "[10.244.3.0/24 via 10.0.0.4 10.244.4.0/24 via 10.0.0.5]", routes.ByCloud: "[10.244.0.0/16 via 10.0.0.1]"},
					routes.RequireTunnels: {routes.ByNodes: "[]", routes.ByCloud: "[]"},
				}[phase][mode]
				if got := fmt.Sprint(plain); got != wantPlain {
					t.Errorf("plain routes %s, want %s", got, wantPlain)
				}
				required := phase == routes.RequireTunnels
				if d.View.TunnelOnly != required || d.View.TunnelMixed == required ||
					d.View.MTU != d.TunnelPlans[0].MTU {
					t.Errorf("view %+v", d.View)
				}
			})
		}
	}
}

// A node without a public address has to keep the entries of its NAT gateway, and is reached where
// the gateway sends from. Two such nodes can't connect.
func TestNodesBehindNAT(t *testing.T) {
	home := func() *kube.Node { return withKey(aNode("home", "192.168.1.5", "10.244.5.0/24"), routes.NoNetwork) }
	s := tunneled("", home(), noRoom())
	s.Links[1].Addrs = append(s.Links[1].Addrs, prefix("192.0.2.9/32"))
	if got, want := showTunnels(t, s), "home at []: [10.244.5.0/24]\n"; !strings.HasPrefix(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s = tunneled(routes.NoNetwork, home(), plain())
	for natted, want := range map[bool]time.Duration{true: keepalive, false: 0} {
		s.Nodes[0].InternalIPs, s.Nodes[0].ExternalIPs = []netip.Addr{addr("10.0.0.2")}, nil
		if !natted {
			s.Nodes[0].ExternalIPs = []netip.Addr{addr("192.0.2.9")}
			s.Links[1].Addrs = append(s.Links[1].Addrs, prefix("192.0.2.9/32"))
		}
		s.Devices[0].Unanswered = map[string]bool{"home": true}
		d, err := Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(d.TunnelPlans[0].Peers) != 2 || d.TunnelPlans[0].Peers[1].Keepalive != want {
			t.Errorf("behind NAT %v: peers %+v", natted, d.TunnelPlans[0].Peers)
		}
		if len(d.Peers()) != 1 || strings.Contains(d.Peers()[0].Problem, "two nodes behind NAT") != natted {
			t.Errorf("behind NAT %v: reports %v", natted, d.Peers())
		}
	}
}

// Problems that the device and the interfaces show: a clock that was set back, handshakes that
// arrive but are not completed, as with different pre-shared keys, and interfaces that IPv6 doesn't
// fit through.
func TestProblemsOfTunnels(t *testing.T) {
	seen := func(s Situation) string {
		d, err := Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(d.Faults, d.Peers(), d.Warnings)
	}
	working := func() Situation {
		s := tunneled("", noRoom())
		s.Tunnels.Phase, s.Modes.IPv6 = routes.RequireTunnels, routes.ByNodes
		s.Devices[0].Peers = map[string]TunnelPeerState{keyOf("no-room"): {Handshake: time.Now()}}
		return s
	}
	for name, c := range map[string]struct {
		change func(*Situation)
		want   string
	}{
		"none":  {func(*Situation) {}, ""},
		"clock": {func(s *Situation) { s.Devices[0].Future = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }, "2030-01-02T03:04:05Z, which is in the future"},
		"handshakes that are not completed": {func(s *Situation) {
			s.Devices[0].Peers = map[string]TunnelPeerState{keyOf("no-room"): {Received: 296}}
			s.Devices[0].Unanswered = map[string]bool{"no-room": true}
		}, "have the same wireguardPresharedKeyFile"},
		"MTU": {func(s *Situation) {
			for i := range s.Links {
				s.Links[i].MTU = 1359
			}
		}, "packets of 1279 bytes, and IPv6 needs 1280; raise the MTU of all uplinks to 1360"},
	} {
		s := working()
		c.change(&s)
		if got := seen(s); c.want == "" && got != "[] [] []" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %q", name, got, c.want)
		}
	}
}
