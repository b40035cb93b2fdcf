package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// Where no cloud vouches for the addresses of Nodes, what a kubelet says counts only
// if it is on a network of the uplinks or in the inventory.
func TestAddressesThatKubeletsReport(t *testing.T) {
	reported := []string{"10.0.0.2", "10.5.0.2", "198.51.100.7", "203.0.113.9", "2001:db8::9", "fd00::2"}
	for name, c := range map[string]struct {
		change func(*Situation)
		want   []string
	}{
		"a cloud vouches for them": {func(s *Situation) { s.Untrusting = false }, reported},
		"on the segment":           {func(*Situation) {}, []string{"10.0.0.2", "fd00::2"}},
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
		if external := len(d.View.ExternalIPs) > 0; external == s.Untrusting {
			t.Errorf("%s: external addresses are %v", name, d.View.ExternalIPs)
		}
		for _, a := range reported {
			told := strings.Contains(strings.Join(d.Warnings, ""), a)
			if told == slices.Contains(c.want, a) {
				t.Errorf("%s: warnings are %q, and %s is believed: %v", name, d.Warnings, a, !told)
			}
		}
	}
}

// A route to a peer does not lead to an address that nothing but its kubelet vouches
// for.
func TestAnAddressNotTrustedIsNoNextHop(t *testing.T) {
	s := segment()
	s.Untrusting = true
	s.Table = append(s.Table, foreign("0.0.0.0/0", "", 2)) // everything is a neighbor
	s.Table = slices.DeleteFunc(s.Table, func(e Entry) bool { return e.Dst.Bits() == 0 && e.Link == 3 })
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
	if len(d.Peers) != 1 || !strings.Contains(d.Peers[0].Problem, "inventory") {
		t.Errorf("peers that can't be reached are %v", d.Peers)
	}
}
