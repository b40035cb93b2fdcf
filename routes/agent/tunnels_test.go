package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// keyOf is the public key of a test's node.
func keyOf(name string) string { return fmt.Sprintf("%-43s=", name)[:44] }

// tunneled is a server in a cloud where tunnels connect nodes with a reach.
func tunneled(reach kube.Reach, peers ...*kube.Node) Situation {
	s := cloud()
	s.Tunnels = TunnelSettings{Enabled: true, Port: 51820}
	s.Tunnel = TunnelState{Link: 9, PublicKey: keyOf("self")}
	s.PodRanges = s.Pools
	s.Links = append(s.Links, Link{Index: 9, Name: TunnelLink, Up: true, MTU: 1370})
	s.Nodes = append([]*kube.Node{withKey(aNode("self", "10.0.0.2", "10.244.1.0/24"), reach)}, peers...)
	s.Nodes[0].ExternalIPs = []netip.Addr{addr("192.0.2.9")}
	return s
}

func withKey(n *kube.Node, reach kube.Reach) *kube.Node {
	n.Reach, n.WireGuard = reach, &kube.WireGuard{PublicKey: keyOf(n.Name), Port: 51820}
	return n
}

// plain, noRoom and outside are other nodes.
func plain() *kube.Node {
	n := withKey(aNode("plain", "10.0.0.3", "10.244.2.0/24"), "")
	n.ExternalIPs = []netip.Addr{addr("192.0.2.3")}
	return n
}

func noRoom() *kube.Node {
	return withKey(aNode("no-room", "10.0.0.4", "10.244.3.0/24"), kube.NoRoom)
}

func outside() *kube.Node {
	return withKey(aNode("outside", "203.0.113.5", "10.244.4.0/24"), kube.NoNetwork)
}

func showTunnels(t *testing.T, s Situation) string {
	t.Helper()
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, p := range d.Tunnels.Peers {
		fmt.Fprintf(&b, "%s at %v: %v\n", p.Node, p.Endpoints, p.AllowedIPs)
	}
	for _, w := range d.Want {
		if w.Link == s.Tunnel.Link {
			fmt.Fprintf(&b, "route %s metric %d\n", w.Entry, w.Metric)
		}
	}
	for _, p := range d.Peers {
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
no-room at [10.0.0.4:51820]: [10.244.3.0/24]
route 10.244.3.0/24 on interface 9 metric 204
`},
		"to a node outside, by public addresses": {tunneled("", outside()), `
outside at [203.0.113.5:51820]: [10.244.4.0/24]
route 10.244.4.0/24 on interface 9 metric 205
`},
		"from a node without room to all": {tunneled(kube.NoRoom, plain(), outside()), `
outside at [203.0.113.5:51820]: [10.244.4.0/24]
plain at [10.0.0.3:51820]: [10.244.2.0/24]
route 10.244.2.0/24 on interface 9 metric 203
route 10.244.4.0/24 on interface 9 metric 205
`},
		"from outside to the nodes' private addresses too": {tunneled(kube.NoNetwork, plain(), outside()), `
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
func TestTunnelsDistrustWhatNodesReport(t *testing.T) {
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
			s := tunneled(kube.NoNetwork, plain())
			c.change(&s, s.Nodes[1])
			if got := showTunnels(t, s); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// The cloud delivers no reply to pods of a node without a route: their packets to nodes have their
// own node's address. A node without a device is not ready if it needs one.
func TestWhatElseTunnelsChange(t *testing.T) {
	d, err := Decide(tunneled("", plain(), noRoom()))
	if err != nil {
		t.Fatal(err)
	}
	if got := d.View.InternalIPs; !slices.Contains(got, addr("10.0.0.3")) || slices.Contains(got, addr("10.0.0.4")) {
		t.Errorf("pods reach these nodes under their own address: %v", got)
	}
	if d.Tunnels.MTU != 1400-tunnelOverhead || d.View.MTU != 1400 || d.View.TunnelMTU != d.Tunnels.MTU || d.View.Tunnel != TunnelLink {
		t.Errorf("MTU %d in tunnels, %d of pods; view %+v", d.Tunnels.MTU, d.View.MTU, d.View)
	}
	if got := fmt.Sprint(d.Tunnels.Addrs); got != "[10.244.1.1]" {
		t.Errorf("addresses of the device: %s", got)
	}
	s := tunneled(kube.NoRoom, plain())
	if d, err = Decide(s); err != nil || d.View.MTU != d.Tunnels.MTU || slices.Contains(d.View.InternalIPs, addr("10.0.0.3")) {
		t.Errorf("pods of a node without room have the MTU %d, and under their own address reach %v (%v)", d.View.MTU, d.View.InternalIPs, err)
	}
	s.Tunnel = TunnelState{Problem: "no module"}
	if d, err = Decide(s); err != nil || len(d.Faults) != 1 || d.View.Tunnel != "" || len(d.Tunnels.Peers) > 0 {
		t.Errorf("without a device: faults %q, view %+v, peers %v (%v)", d.Faults, d.View, d.Tunnels.Peers, err)
	}
}
