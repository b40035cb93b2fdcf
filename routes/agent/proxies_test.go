package agent

import (
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Without this machine's Node no routes are decided, and the proxy entries are kept, except for
// podCIDRs that other Nodes have.
func TestAnswersWithoutTheOwnNode(t *testing.T) {
	for _, c := range []struct {
		name  string
		given func(*Situation)
		want  []string
	}{
		{"nobody has its podCIDR", func(*Situation) {}, nil},
		{"there is no Node at all", func(s *Situation) { s.Nodes = nil }, nil},
		{"another Node has its podCIDR", func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("heir", "10.0.64.4", inVSwitch))
		}, []string{"ARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3"}},
		{"others have parts of it", func(s *Situation) {
			s.Nodes = append(s.Nodes, aNode("heir", "10.0.64.4", "10.0.96.12/30"), aNode("second", "10.0.64.5", "10.0.96.4/30"))
		}, []string{"ARP is answered no longer for 8 addresses, 10.0.96.4 to 10.0.96.15, on interface 3"}},
		{"another Node has more, and somebody else answers for an address of it", func(s *Situation) {
			s.Proxies[3].Protocol = 0
			s.Nodes = append(s.Nodes, aNode("heir", "10.0.64.4", "10.0.96.0/20"))
		}, []string{"ARP is answered no longer for 15 addresses, 10.0.96.0 to 10.0.96.15, on interface 3"}},
		{"another Node has its podCIDR, and no pool is on the vSwitch any more", func(s *Situation) {
			s.VSwitch = VSwitch{}
			s.Nodes = append(s.Nodes, aNode("heir", "10.0.64.4", inVSwitch))
		}, []string{"ARP is answered no longer for 16 addresses, 10.0.96.0 to 10.0.96.15, on interface 3"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := server()
			standing(&s)
			s.Nodes = s.Nodes[1:]
			c.given(&s)
			d, err := Decide(s)
			if got := d.Changes.Lines(); !errors.Is(err, ErrNoNode) || !empty(d.Plan) ||
				!slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q; routes %s, %v", got, c.want, show(d), err)
			}
		})
	}
}

// A machine without its Node keeps replying for its pods until another Node has their podCIDR.
func TestTheNodeOfAServerIsDeleted(t *testing.T) {
	withMachine(t, server(), serverNodes(), func(w *fixture) {
		w.machine.log()
		w.remove("self")
		w.rest()
		w.standsOnVSwitch("without its Node")
		w.stop()
		w.startWith(server().Settings)
		w.standsOnVSwitch("started anew without its Node")
		w.wrote("without its Node")

		w.put(kubeNode("heir", "10.0.64.4", inVSwitch))
		w.rest()
		if got, n := w.machine.String(), w.answered(3); got != serverRoutes || n != 0 {
			t.Errorf("routes are\n%s\nand %d addresses of another Node's podCIDR are answered for", got, n)
		}
		if err := w.agent.Ready(); !errors.Is(err, ErrNoNode) {
			t.Errorf("ready: %v", err)
		}

		w.put(kubeNode("self", "10.0.64.2", "10.0.96.32/28"))
		w.rest()
		if n := w.answered(3); n != 16 || w.agent.Ready() != nil {
			t.Errorf("with another podCIDR %d addresses are answered for; ready: %v", n, w.agent.Ready())
		}
	})
}

// A recreated Node that waits for podCIDRs keeps the entries too.
func TestTheNodeOfAServerIsMadeAnew(t *testing.T) {
	withMachine(t, server(), serverNodes(), func(w *fixture) {
		w.remove("self")
		w.put(kubeNode("self", "10.0.64.2"))
		w.rest()
		if n := w.answered(3); n != 16 {
			t.Errorf("%d addresses are answered for, of a podCIDR of 16 that nobody else has", n)
		}
		w.put(kubeNode("heir", "10.0.64.4", inVSwitch))
		w.rest()
		if n := w.answered(3); n != 0 {
			t.Errorf("%d addresses of another Node's podCIDR are answered for", n)
		}
	})
}

// The entries are removed with the last pool on the vSwitch.
func TestTheLastPoolOnTheVSwitchGoes(t *testing.T) {
	s := server()
	standing(&s)
	s.Proxies = append(s.Proxies, proxy("10.0.97.3", 3, 0))
	s.VSwitch = VSwitch{}
	withMachine(t, s, serverNodes(), func(w *fixture) {
		if n := w.answered(3); n != 0 || len(w.machine.proxies) != 1 {
			t.Errorf("%d addresses are answered for, in all %v", n, w.machine.proxies)
		}
		time.Sleep(time.Minute)
		w.rest()
		w.machine.log()
		time.Sleep(10 * time.Minute)
		w.rest()
		w.wrote("at rest")
	})
}

// On a machine without pools on the vSwitch, the entries of other programs are kept.
func TestProxiesOfOthersWithoutAVSwitch(t *testing.T) {
	s := segment()
	s.Modes, s.Gateway = bothByNodes, addr("10.0.0.254")
	s.Proxies = []Proxy{proxy("10.0.0.77", 2, 0)}
	withMachine(t, s, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		time.Sleep(10 * time.Minute)
		w.rest()
		if len(w.machine.proxies) != 1 {
			t.Errorf("left %v", w.machine.proxies)
		}
	})
}
