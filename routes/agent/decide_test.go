package agent

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }

// aNode returns a ready node; an argument without a prefix length is an InternalIP.
func aNode(name string, has ...string) *kube.Node {
	n := &kube.Node{Name: name, Ready: true, Created: metav1.Unix(1000, 0)}
	for _, text := range has {
		if strings.Contains(text, "/") {
			n.PodCIDRs = append(n.PodCIDRs, prefix(text))
		} else {
			n.InternalIPs = append(n.InternalIPs, addr(text))
		}
	}
	return n
}

// foreign returns a route of another program; an empty via makes it a route to a neighbor.
func foreign(dst, via string, link int) Entry {
	e := Entry{Dst: prefix(dst), Kind: Unicast, Link: link, Protocol: 2}
	if via != "" {
		e.Via = addr(via)
	}
	return e
}

func ours(dst, via string, link int) Entry { return toward(prefix(dst), addr(via), link) }

// segment returns a machine on one segment of both families.
func segment() Situation {
	return Situation{
		Settings: Settings{
			Self: "self", Modes: routes.Modes{IPv4: routes.ByNodes, IPv6: routes.ByNodes}, Pools: []netip.Prefix{prefix("10.244.0.0/16"), prefix("fd01::/48")},
		},
		Nodes: []*kube.Node{aNode("self", "10.0.0.1", "fd00::1", "10.244.1.0/24", "fd01:1::/64")},
		Links: []Link{
			{Index: 1, Name: "lo", Up: true, MTU: 65536},
			{Index: 2, Name: "eth0", Up: true, MTU: 1500, Addrs: []netip.Prefix{prefix("10.0.0.1/24"), prefix("fd00::1/64")}},
			{Index: 3, Name: "eth1", Up: true, MTU: 1400, Addrs: []netip.Prefix{prefix("192.0.2.9/24")}},
			{Index: 4, Name: "veth1", Up: true, MTU: 1300},
		},
		Table: []Entry{
			foreign("10.0.0.0/24", "", 2), foreign("fd00::/64", "", 2), foreign("192.0.2.0/24", "", 3),
			foreign("0.0.0.0/0", "192.0.2.1", 3), foreign("10.244.1.5/32", "", 4),
		},
	}
}

// cloud returns a server in a cloud's network, in which every address but its own is behind the
// gateway.
func cloud() Situation {
	s := segment()
	s.Nodes = []*kube.Node{aNode("self", "10.0.0.2", "10.244.1.0/24"), aNode("b", "10.0.0.3", "10.244.2.0/24")}
	s.Modes = routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Natively}
	s.Links[1].Addrs = []netip.Prefix{prefix("10.0.0.2/32")}
	s.Links[1].MTU = 1450
	s.Table = []Entry{foreign("10.0.0.1/32", "", 2), foreign("10.0.0.0/16", "10.0.0.1", 2), foreign("0.0.0.0/0", "192.0.2.1", 3)}
	return s
}

// show formats a decision as text.
func show(d Decision) string {
	var b strings.Builder
	for _, line := range Explain(d) {
		fmt.Fprintf(&b, "%s %s", line.Action, line.Entry)
		if line.Entry.Link != 0 {
			fmt.Fprintf(&b, " dev %d", line.Entry.Link)
		}
		b.WriteString("\n")
	}
	for _, p := range d.Peers() {
		fmt.Fprintf(&b, "%s: %s\n", p.Node, p.Problem)
	}
	for _, f := range d.Faults {
		fmt.Fprintf(&b, "fault: %s\n", f)
	}
	return b.String()
}

const ownRoutes = "add 10.244.1.0/24 unreachable\nadd fd01:1::/64 unreachable\n"

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func() Situation
		given func(*Situation)
		want  string // lines; ~ matches any text
	}{
		{"alone", segment, func(*Situation) {}, ownRoutes},
		{"a peer, both families", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "fd00::2", "10.244.2.0/24", "fd01:2::/64"))
		}, "add 10.244.1.0/24 unreachable\nadd 10.244.2.0/24 via 10.0.0.2 dev 2\nadd fd01:1::/64 unreachable\nadd fd01:2::/64 via fd00::2 dev 2\n"},
		{"a peer behind a router is named, not skipped", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.9.0.2", "10.244.2.0/24"))
		}, ownRoutes + "b: InternalIP 10.9.0.2 is no neighbor, it is reached through 192.0.2.1;~\n"},
		{"a peer on an interface that is no uplink", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "192.0.2.7", "10.244.2.0/24"))
		}, ownRoutes + "b: InternalIP 192.0.2.7 is a neighbor on eth1, which is no uplink; add it with --uplink~\n"},
		{"an uplink that was named", segment, func(s *Situation) {
			s.Uplinks = []string{"eth0", "eth1"}
			s.Nodes = append(s.Nodes, aNode("b", "192.0.2.7", "10.244.2.0/24"))
		}, "add 10.244.1.0/24 unreachable\nadd 10.244.2.0/24 via 192.0.2.7 dev 3\nadd fd01:1::/64 unreachable\n"},
		{"a peer without an address of the family", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "10.244.2.0/24", "fd01:2::/64"))
		}, "add 10.244.1.0/24 unreachable\nadd 10.244.2.0/24 via 10.0.0.2 dev 2\nadd fd01:1::/64 unreachable\nb: has no IPv6 InternalIP;~\n"},
		{"a peer whose address vanished keeps its route", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.244.2.0/24"))
			s.Table = append(s.Table, ours("10.244.2.0/24", "10.0.0.2", 2))
		}, ownRoutes + "b: has no IPv4 InternalIP;~\n"},
		{"what stands toward the right address stays though it is no neighbor now", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.9.0.2", "10.244.2.0/24"), aNode("c", "10.9.0.3", "10.244.3.0/24"))
			s.Table = append(s.Table, ours("10.244.2.0/24", "10.9.0.2", 2), ours("10.244.3.0/24", "10.0.0.8", 2))
		}, "add 10.244.1.0/24 unreachable\ndelete 10.244.3.0/24 via 10.0.0.8 dev 2\nadd fd01:1::/64 unreachable\nb: ~\nc: ~\n"},
		{"a ready peer that doesn't answer keeps its route and is named", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "10.244.2.0/24"))
			s.Unresolved = map[netip.Addr]bool{addr("10.0.0.2"): true}
		}, "add 10.244.1.0/24 unreachable\nadd 10.244.2.0/24 via 10.0.0.2 dev 2\nadd fd01:1::/64 unreachable\nb: InternalIP 10.0.0.2 does not reply on eth0;~\n"},
		{"a machine that is down is no news", segment, func(s *Situation) {
			down := aNode("b", "10.0.0.2", "10.244.2.0/24")
			down.Ready = false
			s.Nodes = append(s.Nodes, down)
			s.Unresolved = map[netip.Addr]bool{addr("10.0.0.2"): true}
		}, "add 10.244.1.0/24 unreachable\nadd 10.244.2.0/24 via 10.0.0.2 dev 2\nadd fd01:1::/64 unreachable\n"},
		{"of two with one podCIDR the older is routed", segment, func(s *Situation) {
			young := aNode("b", "10.0.0.2", "10.244.2.0/24")
			young.Created = metav1.Unix(2000, 0)
			s.Nodes = append(s.Nodes, young, aNode("c", "10.0.0.3", "10.244.2.0/24"))
		}, "add 10.244.1.0/24 unreachable\nadd 10.244.2.0/24 via 10.0.0.3 dev 2\nadd fd01:1::/64 unreachable\nb: podCIDR 10.244.2.0/24 overlaps~\n"},
		{"an older Node has this machine's podCIDR: nobody has a route here", segment, func(s *Situation) {
			old := aNode("b", "10.0.0.2", "10.244.1.0/24")
			old.Created = metav1.Unix(500, 0)
			s.Nodes = append(s.Nodes, old)
		}, "add 10.244.1.0/24 via 10.0.0.2 dev 2\nadd 10.244.1.0/24 unreachable\nadd fd01:1::/64 unreachable\nfault: podCIDR 10.244.1.0/24 overlaps 10.244.1.0/24 of node b~delete this Node~\n"},
		{"somebody else's route is kept and named", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "10.244.2.0/24"))
			s.Table = append(s.Table, foreign("10.244.2.0/24", "10.0.0.9", 2))
		}, "add 10.244.1.0/24 unreachable\nrefused 10.244.2.0/24 via 10.0.0.2 dev 2\nadd fd01:1::/64 unreachable\nb: route 10.244.2.0/24 of another program~leads to 10.0.0.9, and is kept;~\n"},
		{"somebody else's route that leads the same way is enough", segment, func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "10.244.2.0/24"))
			s.Table = append(s.Table, foreign("10.244.2.0/24", "10.0.0.2", 2))
		}, "add 10.244.1.0/24 unreachable\nstands 10.244.2.0/24 via 10.0.0.2 dev 2\nadd fd01:1::/64 unreachable\n"},
		{"no interface has the Node's address", segment, func(s *Situation) {
			s.Links[1].Addrs = nil
		}, ownRoutes + "fault: no interface of this machine has an InternalIP of its Node (10.0.0.1, fd00::1);~\n"},
		{"an uplink that isn't there", segment, func(s *Situation) {
			s.Uplinks = []string{"eth0", "bond7"}
		}, ownRoutes + "fault: --uplink bond7: this machine has no such interface\n"},
		{"an uplink that was renamed: what stands stays", segment, func(s *Situation) {
			s.Uplinks = []string{"ens3"}
			s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "10.244.2.0/24"))
			s.Table = append(s.Table, ours("10.244.2.0/24", "10.0.0.2", 2))
		}, ownRoutes + "b: InternalIP 10.0.0.2 is a neighbor on eth0, which is no uplink;~\nfault: --uplink ens3: ~\n"},

		{"cloud: pods outside the network, one aggregate", cloud, func(*Situation) {}, "add 10.244.0.0/16 via 10.0.0.1 dev 2\nadd 10.244.1.0/24 unreachable\n"},
		{"cloud: pods inside the network need nothing", cloud, func(s *Situation) {
			s.Table[1] = foreign("10.0.0.0/8", "10.0.0.1", 2)
		}, "add 10.244.1.0/24 unreachable\n"},
		{"cloud: two pools that touch, one aggregate", cloud, func(s *Situation) {
			s.Pools = []netip.Prefix{prefix("10.244.128.0/17"), prefix("10.244.0.0/17")}
		}, "add 10.244.0.0/16 via 10.0.0.1 dev 2\nadd 10.244.1.0/24 unreachable\n"},
		{"cloud: no gateway", cloud, func(s *Situation) {
			s.Table = s.Table[2:]
		}, "add 10.244.1.0/24 unreachable\nfault: pods' 10.244.0.0/16 has no gateway:~--network-gateway\n"},
		{"cloud: while the gateway is not known, what stands stays", cloud, func(s *Situation) {
			s.Pools = append(s.Pools, prefix("10.8.0.0/16"))
			s.Table = append(s.Table[2:], ours("10.244.0.0/16", "10.0.0.1", 2), ours("10.8.0.0/16", "10.0.0.1", 2), ours("10.7.0.0/16", "10.0.0.1", 2))
		}, "delete 10.7.0.0/16 via 10.0.0.1 dev 2\nadd 10.244.1.0/24 unreachable\nfault: pods' 10.8.0.0/16 ~\nfault: pods' 10.244.0.0/16 ~\n"},
		{"cloud: what stands through another gateway than the one that is given goes", cloud, func(s *Situation) {
			s.Table = append(s.Table[2:], ours("10.244.0.0/16", "10.0.0.1", 2))
			s.Gateway = addr("10.0.0.99")
		}, "delete 10.244.0.0/16 via 10.0.0.1 dev 2\nadd 10.244.1.0/24 unreachable\nfault: ~\n"},
		{"cloud: the gateway is given", cloud, func(s *Situation) {
			s.Table[1] = foreign("10.0.0.99/32", "", 2)
			s.Gateway = addr("10.0.0.99")
		}, "add 10.244.0.0/16 via 10.0.0.99 dev 2\nadd 10.244.1.0/24 unreachable\n"},
		{"native: nothing but the own prefix", cloud, func(s *Situation) {
			s.Modes.IPv4 = routes.Natively
			s.Table = append(s.Table, ours("10.244.0.0/16", "10.0.0.1", 2))
		}, "delete 10.244.0.0/16 via 10.0.0.1 dev 2\nadd 10.244.1.0/24 unreachable\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.start()
			c.given(&s)
			d, err := Decide(s)
			if err != nil {
				t.Fatal(err)
			}
			if got := show(d); !fits(got, c.want) {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// fits matches text with a pattern, in which ~ matches any text of a line.
func fits(text, pattern string) bool {
	lines, patterns := strings.Split(text, "\n"), strings.Split(pattern, "\n")
	if len(lines) != len(patterns) {
		return false
	}
	for i, line := range lines {
		for j, part := range strings.Split(patterns[i], "~") {
			at := strings.Index(line, part)
			if at < 0 || j == 0 && at > 0 {
				return false
			}
			line = line[at+len(part):]
		}
		if line != "" && !strings.HasSuffix(patterns[i], "~") {
			return false
		}
	}
	return true
}

// Without this machine's Node, Decide decides nothing: the list may be another cluster's, or empty.
func TestWithoutTheOwnNodeNothingIsDecided(t *testing.T) {
	s := segment()
	s.Nodes = []*kube.Node{aNode("b", "10.0.0.2", "10.244.2.0/24")}
	s.Table = append(s.Table, ours("10.244.9.0/24", "10.0.0.9", 2))
	d, err := Decide(s)
	if !errors.Is(err, ErrNoNode) || !empty(d.Plan) {
		t.Errorf("got %s, %v", show(d), err)
	}
}

// A machine without an IPv6 address in its Node still has one in the /64 that contains its pods'
// prefix.
func TestServerPrefixes(t *testing.T) {
	s := segment()
	s.Pools = []netip.Prefix{prefix("10.244.0.0/16"), prefix("2001:db8:f::/56")}
	s.Nodes = append(s.Nodes,
		aNode("b", "10.0.0.2", "10.244.2.0/24", "2001:db8:2:0:1::/80"),
		aNode("c", "10.0.0.3", "10.244.3.0/24", "2001:db8:f:1:8000::/65")) // a pool's
	for mode, want := range map[routes.Mode][]netip.Prefix{routes.Natively: {prefix("2001:db8:2::/64")}, routes.ByNodes: nil} {
		s.Modes.IPv6 = mode
		d, err := Decide(s)
		if err != nil || !slices.Equal(d.View.ServerPrefixes, want) {
			t.Errorf("%s: %v, %v; want %v", mode, d.View.ServerPrefixes, err, want)
		}
	}
}

func TestView(t *testing.T) {
	s := segment()
	advertised := foreign("2001:db8::/64", "", 2)
	advertised.Protocol = 9
	s.Table = append(s.Table, advertised)
	b := aNode("b", "10.0.0.2", "10.244.2.0/24")
	b.ExternalIPs = []netip.Addr{addr("203.0.113.5")}
	s.Inventory = b.ExternalIPs
	s.Nodes = append(s.Nodes, b)
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	want := View{
		PodCIDRs:    []netip.Prefix{prefix("10.244.1.0/24"), prefix("fd01:1::/64")},
		ClusterPods: []netip.Prefix{prefix("10.244.1.0/24"), prefix("10.244.2.0/24"), prefix("fd01:1::/64")},
		InternalIPs: []netip.Addr{addr("10.0.0.1"), addr("10.0.0.2"), addr("fd00::1")},
		ExternalIPs: []netip.Addr{addr("203.0.113.5")},
		IPv4Uplinks: []string{"eth0"}, RouterAdvertised: []string{"eth0"},
		MTU: 1400, // eth1's: the pods' packets to the outside leave through it
	}
	if diff := cmp.Diff(want, d.View, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
}

// A Node with internal addresses of the two families on two interfaces has one IPv4 uplink: IPv4
// replies arrive on no other one.
func TestUplinksOfIPv4(t *testing.T) {
	for name, c := range map[string]struct {
		named []string
		want  []string
	}{
		"as the Node says": {nil, []string{"eth0"}},
		"as named":         {[]string{"eth0", "eth1"}, []string{"eth0", "eth1"}},
	} {
		s := segment()
		s.Links[1].Addrs, s.Links[2].Addrs = []netip.Prefix{prefix("10.0.0.1/24")}, []netip.Prefix{prefix("fd00::1/64")}
		s.Uplinks = c.named
		d, err := Decide(s)
		if err != nil || !slices.Equal(d.View.IPv4Uplinks, c.want) || d.uplinkNames() != "eth0, eth1" {
			t.Errorf("%s: %v, of which in IPv4 %v, %v; want %v", name, d.uplinkNames(), d.View.IPv4Uplinks, err, c.want)
		}
	}
}

// Packets to pods of Nodes that this machine hasn't observed yet are not masqueraded: their
// connections would keep the wrong address.
func TestPodRanges(t *testing.T) {
	for _, c := range []struct {
		name            string
		pools, excluded []string
		want            []string
	}{
		{"nothing is excluded", []string{"10.244.0.0/16", "fd01::/48"}, nil, []string{"10.244.0.0/16", "fd01::/48"}},
		{"a part is excluded", []string{"10.244.0.0/16"}, []string{"10.244.64.0/18", "fd01::/48"}, []string{"10.244.0.0/18", "10.244.128.0/17"}},
		{"two parts, one within the other", []string{"10.244.0.0/16"}, []string{"10.244.0.0/24", "10.244.0.0/17"}, []string{"10.244.128.0/17"}},
		{"all is excluded", []string{"10.244.0.0/16", "10.8.0.0/16"}, []string{"10.240.0.0/12"}, []string{"10.8.0.0/16"}},
		{"a single address", []string{"fd01::/125"}, []string{"fd01::6/128"}, []string{"fd01::/126", "fd01::4/127", "fd01::7/128"}},
	} {
		var got []string
		for _, p := range PodRanges(prefixes(c.pools), prefixes(c.excluded)) {
			got = append(got, p.String())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	s := segment()
	s.PodRanges = prefixes([]string{"10.244.0.0/16", "fd01::/48", "2001:db8:f::/56"})
	d, err := Decide(s)
	want := prefixes([]string{"10.244.0.0/16", "10.244.1.0/24", "fd01::/48", "fd01:1::/64"})
	if err != nil || !slices.Equal(d.View.ClusterPods, want) {
		t.Errorf("the view has %v, %v; want %v", d.View.ClusterPods, err, want)
	}
}

func prefixes(texts []string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = prefix(text)
	}
	return all
}
