package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// An address that a kubelet reports for its Node counts only if it is on a network of the uplinks
// or in the inventory. In a cloud there is no warning about further addresses of machines.
func TestAddressesThatKubeletsReport(t *testing.T) {
	reported := []string{"10.0.0.2", "10.5.0.2", "198.51.100.7", "203.0.113.9", "2001:db8::9", "fd00::2"}
	for name, c := range map[string]struct {
		change func(*Situation)
		want   []string
	}{
		"in a cloud":     {func(s *Situation) { s.Untrusting = false }, []string{"10.0.0.2", "fd00::2"}},
		"on the segment": {func(*Situation) {}, []string{"10.0.0.2", "fd00::2"}},
		"in the inventory": {
			func(s *Situation) { s.Inventory = []netip.Addr{addr("203.0.113.9")} },
			[]string{"10.0.0.2", "203.0.113.9", "fd00::2"},
		},
		"behind a router of the segment": {
			func(s *Situation) { s.Table = append(s.Table, foreign("10.5.0.0/16", "10.0.0.254", 2)) },
			[]string{"10.0.0.2", "10.5.0.2", "fd00::2"},
		},
		"on a network that is none of the uplinks'": {
			func(s *Situation) { s.Table = append(s.Table, foreign("203.0.113.0/24", "", 3)) },
			[]string{"10.0.0.2", "fd00::2"},
		},
	} {
		s := segment()
		s.Untrusting = true
		s.Nodes = append(s.Nodes, aNode("b", append([]string{"10.244.2.0/24"}, reported...)...))
		s.Nodes[1].ExternalIPs = []netip.Addr{addr("198.51.100.80")}
		c.change(&s)
		d, err := Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		var believed []string
		for _, a := range d.View.InternalIPs {
			if !slices.Contains(s.Nodes[0].InternalIPs, a) {
				believed = append(believed, a.String())
			}
		}
		if !slices.Equal(believed, c.want) {
			t.Errorf("%s: believed are %q, want %q", name, believed, c.want)
		}
		if len(d.View.ExternalIPs) > 0 {
			t.Errorf("%s: external addresses are %v", name, d.View.ExternalIPs)
		}
		for _, a := range reported {
			lastSent := strings.Contains(strings.Join(d.Warnings, ""), a)
			if lastSent == (slices.Contains(c.want, a) || !s.Untrusting) {
				t.Errorf("%s: warnings are %q, and %s is believed: %v", name, d.Warnings, a, !lastSent)
			}
		}
	}
}

// In a cloud a public IPv6 address counts if the provider routes it to the Node's own machine, and
// a warning names the Node that reports another one.
func TestAKubeletInACloudOpensNoFilters(t *testing.T) {
	s := segment()
	s.Modes = routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Natively}
	own, others := aNode("good", "10.0.0.8", "2001:db8:8:0:1::/80"), aNode("evil", "10.0.0.9", "2001:db8:9:0:1::/80")
	own.ExternalIPs = []netip.Addr{addr("2001:db8:8::1"), addr("198.51.100.8")}
	others.ExternalIPs = []netip.Addr{addr("2a00:bad::1"), addr("2001:db8:8::1")}
	s.Nodes = append(s.Nodes, own, others)
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := []netip.Addr{addr("2001:db8:8::1")}; !slices.Equal(d.View.ExternalIPs, want) {
		t.Errorf("filters let in %v, want %v", d.View.ExternalIPs, want)
	}
	lastSent := strings.Join(d.Warnings, "\n")
	for text, want := range map[string]bool{"evil": true, "2a00:bad::1": true, "good": false, "198.51.100.8": false} {
		if strings.Contains(lastSent, text) != want {
			t.Errorf("%q is told of: %t, want %t: %q", text, !want, want, lastSent)
		}
	}
}

// A Node from before the cluster became dual-stack has no IPv6 podCIDR, so its machine's own IPv6
// addresses are unknown: its packets don't pass the filter, and a warning reports it.
func TestANodeWithoutAnIPv6PodCIDRIsReported(t *testing.T) {
	s := segment()
	s.Modes = routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Natively}
	former := aNode("former", "10.244.2.0/24", "10.0.0.8")
	former.ExternalIPs = []netip.Addr{addr("2001:db8:8::1")}
	s.Nodes = append(s.Nodes, former)
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.View.ExternalIPs) > 0 {
		t.Errorf("filters let in %v", d.View.ExternalIPs)
	}
	lastSent := strings.Join(d.Warnings, "\n")
	for _, text := range []string{"former", "2001:db8:8::1", "--allow-inbound"} {
		if !strings.Contains(lastSent, text) {
			t.Errorf("the warnings %q don't have %q", lastSent, text)
		}
	}
}

// A server may reach all of its network by a default route to the gateway in the configuration.
// That route makes only private addresses trusted.
func TestPeersBehindTheConfiguredGateway(t *testing.T) {
	for name, gateway := range map[string]netip.Addr{"named": addr("10.0.0.254"), "not named": {}} {
		s := segment()
		s.Modes, s.Gateway = routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Unrouted}, gateway
		s.Table = []Entry{foreign("10.0.0.254/32", "", 2), foreign("0.0.0.0/0", "10.0.0.254", 2)}
		s.Nodes = append(s.Nodes, aNode("b", "10.244.2.0/24", "10.0.0.2", "203.0.113.9"))
		d, err := Decide(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := slices.Contains(d.View.InternalIPs, addr("10.0.0.2")); got != gateway.IsValid() {
			t.Errorf("%s: the peer is trusted: %t", name, got)
		}
		if slices.Contains(d.View.InternalIPs, addr("203.0.113.9")) {
			t.Errorf("%s: a public address behind the gateway is trusted", name)
		}
	}
}

// An address that only its kubelet reports can't be a next hop.
func TestAnAddressNotTrustedIsNoNextHop(t *testing.T) {
	s := segment()
	s.Untrusting = true
	s.Table = append(s.Table, foreign("0.0.0.0/0", "", 2)) // everything is a neighbor
	s.Table = slices.DeleteFunc(s.Table, func(e Entry) bool {
		return e.Dst.Bits() == 0 && e.Link == 3
	})
	s.Nodes = append(s.Nodes, aNode("b", "10.244.2.0/24", "203.0.113.9"))
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, wanted := range d.Want {
		if wanted.Via == addr("203.0.113.9") {
			t.Errorf("a route leads there: %v", wanted)
		}
	}
	if len(d.Peers()) != 1 || !strings.Contains(d.Peers()[0].Problem, "inventory") {
		t.Errorf("peers that can't be reached are %v", d.Peers())
	}
}
