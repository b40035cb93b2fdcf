package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

const inVSwitch = "10.0.96.0/28"

// server returns a dedicated server on a vSwitch, beside a cloud server and another dedicated
// server.
func server() Situation {
	return Situation{
		Settings: Settings{
			Self: "self", Modes: routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Natively}, Pools: prefixes([]string{"10.244.0.0/16", "10.0.96.0/19"}),
			VSwitch: VSwitch{prefix("10.0.64.0/18"), addr("10.0.64.1"), prefixes([]string{"10.0.96.0/19"})},
		},
		Nodes: []*kube.Node{
			aNode("self", "10.0.64.2", inVSwitch),
			aNode("cloud", "10.0.0.3", "10.244.2.0/24"),
			aNode("other", "10.0.64.3", "10.0.96.16/28"),
		},
		Links: []Link{
			{Index: 1, Name: "lo", Up: true, MTU: 65536},
			{Index: 2, Name: "eth0", Up: true, MTU: 1500, Addrs: prefixes([]string{"203.0.113.7/32"})},
			{Index: 3, Name: "eth0.4000", Up: true, MTU: 1400, Addrs: prefixes([]string{"10.0.64.2/18"})},
			{Index: 4, Name: "veth1", Up: true, MTU: 1400, Addrs: prefixes([]string{"10.0.96.1/32"})},
		},
		Table: []Entry{
			foreign("10.0.64.0/18", "", 3), foreign("203.0.113.1/32", "", 2), foreign("0.0.0.0/0", "203.0.113.1", 2), foreign("10.0.96.5/32", "", 4),
		},
	}
}

// standing adds all planned routes and proxy entries to the server.
func standing(s *Situation) {
	d, err := Decide(*s)
	if err != nil {
		panic(err)
	}
	for _, wanted := range d.Plan.Add {
		s.Table = append(s.Table, wanted.Entry)
	}
	s.Proxies = append(s.Proxies, d.Changes.Add...)
}

// proxy returns a proxy entry for an address on an interface, with its protocol.
func proxy(a string, link int, protocol uint8) Proxy { return Proxy{link, addr(a), protocol} }

const (
	ownInVSwitch = "add 10.0.96.0/28 unreachable\n"
	toTheOther   = "add 10.0.96.16/28 via 10.0.64.3 dev 3\n"
	toTheCloud   = "add 10.244.0.0/16 via 10.0.64.1 dev 3\n"
	answersOwn   = "ARP is answered for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3\n"
	allStands    = "stands 10.0.96.0/28 unreachable\nstands 10.0.96.16/28 via 10.0.64.3 dev 3\nstands 10.244.0.0/16 via 10.0.64.1 dev 3\n"
)

func TestDecideOnTheVSwitch(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(*Situation)
		want  string // as in TestDecide, then the changes of proxy entries, and warnings
	}{
		{"from nothing", func(*Situation) {}, ownInVSwitch + toTheOther + toTheCloud + answersOwn},
		{"everything stands", standing, allStands},
		{"the network has a route of the machine's own", func(s *Situation) {
			s.Table = append(s.Table, foreign("10.0.0.0/8", "10.0.64.1", 3))
			s.Pools[0] = prefix("10.8.0.0/16")
		}, ownInVSwitch + toTheOther + answersOwn},
		{"a route to the network that leads elsewhere", func(s *Situation) {
			s.Table = append(s.Table, foreign("10.0.0.0/8", "203.0.113.1", 2))
		}, ownInVSwitch + toTheOther + toTheCloud + answersOwn},
		{"two pools of the cloud", func(s *Situation) {
			s.Pools = append(s.Pools, prefix("10.8.0.0/16"))
		}, ownInVSwitch + toTheOther + "add 10.8.0.0/16 via 10.0.64.1 dev 3\n" + toTheCloud + answersOwn},
		{"a peer outside the subnet is named", func(s *Situation) {
			s.Nodes[2] = aNode("other", "203.0.113.8", "10.0.96.16/28")
		}, ownInVSwitch + toTheCloud + "other: has no InternalIP in the vSwitch's subnet 10.0.64.0/18; set the kubelet's --node-ip~\n" + answersOwn},
		{"a peer with the subnet's address second", func(s *Situation) {
			s.Nodes[2] = aNode("other", "203.0.113.8", "10.0.64.3", "10.0.96.16/28")
		}, ownInVSwitch + toTheOther + toTheCloud + answersOwn},
		{"a peer that doesn't answer keeps its route and is named", func(s *Situation) {
			s.Unresolved = map[netip.Addr]bool{addr("10.0.64.3"): true}
		}, ownInVSwitch + toTheOther + toTheCloud + "other: InternalIP 10.0.64.3 does not reply on eth0.4000;~\n" + answersOwn},
		{"a peer is gone, and what led to it goes", func(s *Situation) {
			standing(s)
			s.Nodes = s.Nodes[:2]
		}, "stands 10.0.96.0/28 unreachable\ndelete 10.0.96.16/28 via 10.0.64.3 dev 3\nstands 10.244.0.0/16 via 10.0.64.1 dev 3\n"},

		{"no interface in the subnet: what stands stays", func(s *Situation) {
			standing(s)
			s.Links[2].Addrs = nil
			s.Table = s.Table[1:]
		}, "stands 10.0.96.0/28 unreachable\nfault: no interface of this machine has an InternalIP~\nfault: pods are hosts of the vSwitch's subnet 10.0.64.0/18, and no interface~; add the vSwitch's VLAN interface~MTU of 1400~--node-ip~\n"},
		{"the interface is no uplink", func(s *Situation) {
			s.Uplinks = []string{"eth0"}
		}, ownInVSwitch + "fault: pods are hosts of the vSwitch's subnet 10.0.64.0/18, and eth0.4000, which has an address there, is no uplink;~--uplink\n"},
		{"the interface is down", func(s *Situation) {
			standing(s)
			s.Table = s.Table[1:]
		}, "stands 10.0.96.0/28 unreachable\nfault: 10.0.64.0/18 of the vSwitch is not reached directly on eth0.4000; switch the interface on~/18\n"},
		{"the interface's address has another length", func(s *Situation) {
			s.Table[0] = foreign("10.0.64.0/24", "", 3)
		}, ownInVSwitch + "fault: 10.0.64.0/18 of the vSwitch is not reached directly on eth0.4000;~/18\n"},
		{"the gateway is elsewhere", func(s *Situation) {
			s.Table = append(s.Table, foreign("10.0.64.1/32", "203.0.113.1", 2))
		}, ownInVSwitch + "fault: 10.0.64.1/32 of the vSwitch is not reached directly on eth0.4000;~\n"},
		{"a podCIDR of a million addresses", func(s *Situation) {
			s.VSwitch = VSwitch{prefix("10.64.0.0/10"), addr("10.64.0.1"), prefixes([]string{"10.96.0.0/11"})}
			s.Pools[1], s.Nodes = s.VSwitch.Pools[0], []*kube.Node{aNode("self", "10.64.0.2", "10.96.0.0/12")}
			s.Links[2].Addrs, s.Table[0] = prefixes([]string{"10.64.0.2/10"}), foreign("10.64.0.0/10", "", 3)
		}, "add 10.96.0.0/12 unreachable\nadd 10.244.0.0/16 via 10.64.0.1 dev 3\nfault: podCIDR 10.96.0.0/12 is too large~nodeMask of 18 or more~\n"},
		{"the packets are too long", func(s *Situation) {
			standing(s)
			s.Links[2].MTU = 1500
		}, allStands + "warning: eth0.4000 has an MTU of 1500, and the vSwitch drops packets of more than 1400 bytes; set it to 1400\n"},

		{"answers that nobody wants go, somebody else's stay", func(s *Situation) {
			standing(s)
			s.Proxies = append(s.Proxies,
				proxy("10.0.97.1", 3, Protocol), proxy("10.0.97.2", 3, Protocol), proxy("10.0.96.1", 2, Protocol), proxy("10.0.97.3", 3, 0))
		}, allStands + "ARP is answered no longer for 10.0.96.1 on interface 2\n" +
			"ARP is answered no longer for 2 addresses, 10.0.97.1 to 10.0.97.2, on interface 3\n"},
		{"somebody else answers for a pod", func(s *Situation) {
			standing(s)
			s.Proxies[3].Protocol = 0
		}, allStands},
		{"an older Node has this machine's podCIDR: it is left to answer", func(s *Situation) {
			standing(s)
			older := aNode("older", "10.0.64.9", inVSwitch)
			older.Created = metav1.Unix(500, 0)
			s.Nodes = append(s.Nodes, older)
		}, "add 10.0.96.0/28 via 10.0.64.9 dev 3\n" + allStands + "fault: podCIDR 10.0.96.0/28 overlaps~\n" +
			"ARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3\n"},
		{"without a podCIDR yet: the pods that run are answered for", func(s *Situation) {
			standing(s)
			s.Nodes[0] = aNode("self", "10.0.64.2")
		}, "delete 10.0.96.0/28 unreachable\n" + strings.Join(strings.SplitAfter(allStands, "\n")[1:], "")},
		{"without a podCIDR, which another Node has by now: it is left to answer", func(s *Situation) {
			standing(s)
			s.Nodes[0] = aNode("self", "10.0.64.2")
			s.Nodes = append(s.Nodes, aNode("heir", "10.0.64.4", inVSwitch))
		}, "add 10.0.96.0/28 via 10.0.64.4 dev 3\ndelete 10.0.96.0/28 unreachable\n" + strings.Join(strings.SplitAfter(allStands, "\n")[1:], "") +
			"ARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3\n"},
		{"without a podCIDR, of which another Node has a part by now", func(s *Situation) {
			standing(s)
			s.Nodes[0] = aNode("self", "10.0.64.2")
			s.Nodes = append(s.Nodes, aNode("heir", "10.0.64.4", "10.0.96.8/29"))
		}, "delete 10.0.96.0/28 unreachable\nadd 10.0.96.8/29 via 10.0.64.4 dev 3\n" + strings.Join(strings.SplitAfter(allStands, "\n")[1:], "") +
			"ARP is answered no longer for 8 addresses, 10.0.96.8 to 10.0.96.15, on interface 3\n"},
		{"the interface is no uplink, and a younger Node has this machine's podCIDR", func(s *Situation) {
			standing(s)
			s.Uplinks = []string{"eth0"}
			younger := aNode("younger", "10.0.64.9", inVSwitch)
			younger.Created = metav1.Unix(2000, 0)
			s.Nodes = append(s.Nodes, younger)
		}, "stands 10.0.96.0/28 unreachable\nfault: pods are hosts of the vSwitch's subnet 10.0.64.0/18, and eth0.4000~\n"},
		{"the interface is no uplink, and an older Node has this machine's podCIDR", func(s *Situation) {
			standing(s)
			s.Uplinks = []string{"eth0"}
			older := aNode("older", "10.0.64.9", inVSwitch)
			older.Created = metav1.Unix(500, 0)
			s.Nodes = append(s.Nodes, older)
		}, "stands 10.0.96.0/28 unreachable\nfault: pods are hosts of the vSwitch's subnet 10.0.64.0/18, and eth0.4000~\n" +
			"ARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3\n"},
		{"no pool is on the vSwitch any more", func(s *Situation) {
			standing(s)
			s.VSwitch, s.Pools = VSwitch{}, s.Pools[:1]
			s.Proxies = append(s.Proxies, proxy("10.0.97.3", 3, 0))
		}, "stands 10.0.96.0/28 unreachable\ndelete 10.0.96.16/28 via 10.0.64.3 dev 3\nfault: pods' 10.244.0.0/16 has no gateway~\n" +
			"ARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3\n"},
		{"another podCIDR", func(s *Situation) {
			standing(s)
			s.Nodes[0] = aNode("self", "10.0.64.2", "10.0.96.32/28")
		}, "delete 10.0.96.0/28 unreachable\nstands 10.0.96.16/28 via 10.0.64.3 dev 3\nadd 10.0.96.32/28 unreachable\nstands 10.244.0.0/16 via 10.0.64.1 dev 3\n" +
			"ARP is answered for 16 addresses, 10.0.96.32 to 10.0.96.47, on interface 3\nARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3\n"},
		{"a podCIDR of the cloud's: nothing is answered for", func(s *Situation) {
			s.Nodes[0] = aNode("self", "10.0.64.2", "10.244.9.0/24")
		}, "add 10.244.9.0/24 unreachable\nfault: pods' 10.0.96.0/19 has no gateway~\nfault: pods' 10.244.0.0/16 has no gateway~\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server()
			c.given(&s)
			d, err := Decide(s)
			if err != nil {
				t.Fatal(err)
			}
			got := show(d)
			for _, line := range d.Changes.Lines() {
				got += line + "\n"
			}
			for _, line := range d.Warnings {
				got += "warning: " + line + "\n"
			}
			if !fits(got, c.want) {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

// A cloud server reaches the pods of dedicated servers like all others, and has no proxy entries.
func TestCloudServersBesideAVSwitch(t *testing.T) {
	for _, c := range []struct{ name, network, want string }{
		{"pods of dedicated servers are inside the network", "10.0.0.0/16", "add 10.244.0.0/16 via 10.0.0.1 dev 2\nadd 10.244.1.0/24 unreachable\n"},
		{"the network's route covers only cloud servers", "10.0.0.0/18", "add 10.0.96.0/19 via 10.0.0.1 dev 2\nadd 10.244.0.0/16 via 10.0.0.1 dev 2\nadd 10.244.1.0/24 unreachable\n"},
	} {
		s := cloud()
		s.Pools, s.VSwitch = server().Pools, server().VSwitch
		s.Nodes = append(s.Nodes, server().Nodes[2])
		s.Table[1] = foreign(c.network, "10.0.0.1", 2)
		d, err := Decide(s)
		if got := show(d); err != nil || !fits(got, c.want) || len(d.Answers) > 0 ||
			len(d.View.ProxyARP) > 0 {
			t.Errorf("%s: got\n%s%v, answers for %v", c.name, got, err, d.Answers)
		}
	}
}

// Packets between pods keep their addresses, with any pods' podCIDRs, and those of dedicated
// servers fit the vSwitch.
func TestViewOnTheVSwitch(t *testing.T) {
	s := server()
	s.PodRanges = s.Pools
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := prefixes([]string{"10.0.96.0/19", inVSwitch, "10.0.96.16/28", "10.244.0.0/16", "10.244.2.0/24"}); !slices.Equal(d.View.ClusterPods, want) {
		t.Errorf("pods are at %v, want %v", d.View.ClusterPods, want)
	}
	if d.View.MTU != 1400 || !slices.Equal(d.View.ProxyARP, []string{"eth0.4000"}) {
		t.Errorf("MTU %d, answers on %v", d.View.MTU, d.View.ProxyARP)
	}
}

func serverNodes() []*corev1.Node {
	return []*corev1.Node{
		kubeNode("self", "10.0.64.2", inVSwitch), kubeNode("cloud", "10.0.0.3", "10.244.2.0/24"), kubeNode("other", "10.0.64.3", "10.0.96.16/28"),
	}
}

// answered returns the number of addresses for which the machine has proxy entries on an interface.
func (w *fixture) answered(link int) (n int) {
	w.machine.byHand(func(m *machine) {
		for _, p := range m.proxies {
			if p.Link == link && p.Ours() {
				n++
			}
		}
	})
	return n
}

const serverRoutes = "10.0.96.0/28 unreachable\n10.0.96.16/28 via 10.0.64.3\n10.244.0.0/16 via 10.0.64.1"

func (w *fixture) standsOnVSwitch(what string) {
	w.t.Helper()
	if got, n := w.machine.String(), w.answered(3); got != serverRoutes || n != 16 {
		w.t.Errorf("%s: routes are\n%s\nand %d addresses are answered for", what, got, n)
	}
}

func TestAServerOnTheVSwitch(t *testing.T) {
	withMachine(t, server(), serverNodes(), func(w *fixture) {
		w.standsOnVSwitch("at first")
		if err := w.agent.Ready(); err != nil {
			t.Error(err)
		}
		w.machine.log()
		w.stop()
		w.startWith(server().Settings)
		w.wrote("started anew")

		began := time.Now()
		w.machine.byHand(func(m *machine) { // down; no events for routes and entries
			m.links[2].Up = false
			m.table = slices.DeleteFunc(m.table, func(e Entry) bool { return e.Link == 3 })
			m.proxies = nil
			m.tell(Event{Kind: LinkChanged, Link: 3, Name: "eth0.4000"})
		})
		w.rest()
		if err := w.agent.Ready(); err == nil || !strings.Contains(err.Error(), "not reached directly on eth0.4000") {
			t.Errorf("with the interface down: %v", err)
		}
		w.machine.byHand(func(m *machine) {
			m.links[2].Up = true
			m.table = append(m.table, foreign("10.0.64.0/18", "", 3))
			m.tell(Event{Kind: LinkChanged, Link: 3, Name: "eth0.4000"})
		})
		w.rest()
		w.standsOnVSwitch("after down and up")
		if time.Since(began) > 0 || w.agent.Ready() != nil {
			t.Errorf("it took %s; ready: %v", time.Since(began), w.agent.Ready())
		}

		w.machine.byHand(func(m *machine) {
			m.links[2].MTU = 1500
			m.tell(Event{Kind: LinkChanged, Link: 3, Name: "eth0.4000"})
		})
		w.rest()
		if c := w.condition(PeersReachable); c.Reason != ReasonAtRisk || !strings.Contains(c.Message, "eth0.4000 has an MTU of 1500") || w.agent.Ready() != nil {
			t.Errorf("with packets that are too long: %+v; ready: %v", c, w.agent.Ready())
		}

		// The kernel sends no event for entries deleted by hand.
		w.machine.byHand(func(m *machine) { m.proxies = m.proxies[:5] })
		time.Sleep(time.Minute)
		w.rest()
		w.standsOnVSwitch("after a period")
		w.machine.log()
		time.Sleep(10 * time.Minute)
		w.rest()
		w.wrote("at rest")

		w.remove("other")
		w.put(kubeNode("self", "10.0.64.2", "10.0.96.0/30"))
		w.rest()
		if n := w.answered(3); n != 4 {
			t.Errorf("%d addresses are answered for, of a podCIDR of 4", n)
		}
	})
}

// A recreated interface has none of the entries and settings of the old one.
func TestTheVLANInterfaceIsMadeAnew(t *testing.T) {
	withMachine(t, server(), serverNodes(), func(w *fixture) {
		lastSent := len(w.before.log())
		w.machine.byHand(func(m *machine) {
			m.links[2].Index = 9
			m.table = slices.DeleteFunc(m.table, func(e Entry) bool { return e.Link == 3 })
			m.table, m.proxies = append(m.table, foreign("10.0.64.0/18", "", 9)), nil
			m.tell(Event{Kind: LinkChanged, Link: 3, Name: "eth0.4000"})
			m.tell(Event{Kind: LinkChanged, Link: 9, Name: "eth0.4000"})
		})
		w.rest()
		if got, n := w.machine.String(), w.answered(9); got != serverRoutes || n != 16 {
			t.Errorf("routes are\n%s\nand %d addresses are answered for", got, n)
		}
		if !slices.ContainsFunc(w.before.log()[lastSent:], func(line string) bool { return strings.HasSuffix(line, "look true") }) {
			t.Errorf("nobody looked at the settings: %q", w.before.log()[lastSent:])
		}
	})
}

// Without the segment no pod starts, and the Node's condition names the remedy.
func TestAServerWithoutTheVSwitch(t *testing.T) {
	bare := server()
	bare.Links, bare.Table = slices.Delete(bare.Links, 2, 3), bare.Table[1:]
	withMachine(t, bare, serverNodes(), func(w *fixture) {
		if err := w.agent.Ready(); err == nil || len(w.after.log()) > 0 {
			t.Errorf("ready: %v, told of %q", err, w.after.log())
		}
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "add the vSwitch's VLAN interface") {
			t.Errorf("condition %+v", c)
		}
		w.machine.byHand(func(m *machine) {
			m.links = server().Links
			m.table = append(m.table, foreign("10.0.64.0/18", "", 3))
			m.tell(Event{Kind: AddressChanged, Link: 3, Addr: addr("10.0.64.2")})
		})
		w.rest()
		w.standsOnVSwitch("once it is there")
		if err := w.agent.Ready(); err != nil || len(w.after.log()) == 0 {
			t.Errorf("ready: %v, told of %q", err, w.after.log())
		}
	})
}

// Cleanup deletes the agent's own routes and entries with any configuration.
func TestCleanupOnTheVSwitch(t *testing.T) {
	s := server()
	standing(&s)
	m := &machine{links: s.Links, table: s.Table, proxies: append(s.Proxies, proxy("10.0.64.77", 3, 0))}
	lines, err := Cleanup(t.Context(), m)
	if err != nil || len(lines) != 4 || !slices.Contains(lines, "ARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3") {
		t.Errorf("%q, %v", lines, err)
	}
	if fmt.Sprint(m.proxies) != "[10.0.64.77 on interface 3]" || m.String() != "" {
		t.Errorf("left are %v and\n%s", m.proxies, m)
	}
}
