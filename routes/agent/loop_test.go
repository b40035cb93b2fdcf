package agent

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/routes"
)

var bothByNodes = routes.Modes{IPv4: routes.ByNodes, IPv6: routes.ByNodes}

func peerB() *corev1.Node { return kubeNode("b", "10.0.0.2", "10.244.2.0/24") }

func TestNodesComeChangeAndGo(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.routes("10.244.2.0/24 via 10.0.0.2")
		w.put(kubeNode("c", "10.0.0.3", "10.244.3.0/24"))
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.2", "10.244.3.0/24 via 10.0.0.3")
		w.machine.log()

		w.put(kubeNode("b", "10.0.0.7", "10.244.2.0/24"))
		w.rest()
		if log := w.machine.log(); !slices.Equal(log, []string{"replace 10.244.2.0/24 via 10.0.0.2 by 10.244.2.0/24 via 10.0.0.7"}) {
			t.Errorf("a next hop changed and was written as %q", log)
		}
		w.remove("c")
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.7")
	})
}

// Two nodes swap their addresses: this takes two replacements, and never removes a route before its
// successor exists.
func TestSwappedAddresses(t *testing.T) {
	c := kubeNode("c", "10.0.0.3", "10.244.3.0/24")
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB(), c}, func(w *fixture) {
		w.machine.log()
		w.put(kubeNode("b", "10.0.0.3", "10.244.2.0/24"))
		w.put(kubeNode("c", "10.0.0.2", "10.244.3.0/24"))
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.3", "10.244.3.0/24 via 10.0.0.2")
		for _, write := range w.machine.log() {
			if !strings.HasPrefix(write, "replace") {
				t.Errorf("not in place: %s", write)
			}
		}
	})
}

// An event restores a route that another program deletes: without a delay, and without a listing.
func TestDeletedRoutesArePutBackByTheEvent(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		before, looks := time.Now(), w.machine.looks()
		w.machine.byHand(func(m *machine) {
			m.remove(ours("10.244.2.0/24", "10.0.0.2", 2))
			m.remove(refusing(prefix("10.244.1.0/24")))
		})
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.2")
		if time.Since(before) != 0 || w.machine.looks() != looks {
			t.Errorf("it took %s and %d looks at the table", time.Since(before), w.machine.looks()-looks)
		}
	})
}

// A route that vanishes without an event is found by the next full resync.
func TestSilentLossIsFound(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.machine.byHand(func(m *machine) {
			m.table = slices.DeleteFunc(m.table, func(e Entry) bool { return e.Dst == prefix("10.244.2.0/24") })
		})
		w.rest()
		w.routes()
		time.Sleep(time.Minute)
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.2")
	})
}

func TestAForeignRouteIsNeitherReplacedNorDeleted(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		alien := foreign("10.244.2.0/24", "10.0.0.9", 2)
		alien.Metric = PeerMetric(alien.Dst)
		w.machine.byHand(func(m *machine) { // ip route replace
			m.table = slices.DeleteFunc(m.table, func(e Entry) bool { return e.Place() == alien.Place() })
			m.table = append(m.table, alien)
			m.tell(Event{Kind: RouteSet, Route: alien})
		})
		w.rest()
		w.routes()
		c := w.condition(PeersReachable)
		if c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "b: route 10.244.2.0/24 of another program") {
			t.Errorf("condition %+v", c)
		}
		if event := <-w.events.Events; !strings.Contains(event, "PeersUnreachable") || !strings.Contains(event, "b: route") {
			t.Errorf("event %q", event)
		}
		w.machine.byHand(func(m *machine) { m.remove(alien) })
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.2")
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionTrue {
			t.Errorf("condition %+v", c)
		}
	})
}

// A restart deletes the routes of Nodes that were deleted while the agent was down, and touches no
// others.
func TestRestart(t *testing.T) {
	c := kubeNode("c", "10.0.0.3", "10.244.3.0/24")
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB(), c}, func(w *fixture) {
		w.machine.log()
		w.stop()
		w.routes("10.244.2.0/24 via 10.0.0.2", "10.244.3.0/24 via 10.0.0.3")
		w.remove("c")
		w.put(kubeNode("b", "10.0.0.2", "10.244.4.0/24"))
		w.start(bothByNodes)
		w.rest()
		w.routes("10.244.4.0/24 via 10.0.0.2")
		want := []string{"add 10.244.4.0/24 via 10.0.0.2", "delete 10.244.2.0/24 via 10.0.0.2", "delete 10.244.3.0/24 via 10.0.0.3"}
		if log := w.machine.log(); !slices.Equal(log, want) {
			t.Errorf("wrote %q, want %q", log, want)
		}
	})
}

// While this machine's own Node is missing, no routes are deleted.
func TestOwnNodeGone(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.machine.log()
		w.remove("self")
		w.remove("b")
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.2")
		if log := w.machine.log(); len(log) > 0 {
			t.Errorf("wrote %q", log)
		}
		if err := w.agent.Ready(); !errors.Is(err, ErrNoNode) {
			t.Errorf("ready: %v", err)
		}
	})
}

func TestLinkDownAndUp(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		start := segment()
		w.machine.byHand(func(m *machine) { // the kernel sends no events for the IPv4 routes
			m.links[1].Up = false
			m.table = slices.DeleteFunc(m.table, func(e Entry) bool { return e.Link == 2 })
			m.tell(Event{Kind: LinkChanged, Link: 2, Name: "eth0"})
		})
		w.rest()
		w.routes()
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
		w.machine.byHand(func(m *machine) {
			m.links[1].Up = true
			m.table = append(m.table, start.Table[:2]...)
			m.tell(Event{Kind: LinkChanged, Link: 2, Name: "eth0"})
		})
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.2")
	})
}

// Pods' interfaces, addresses and routes don't trigger a resync.
func TestPodsAreNoNews(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		looks := w.machine.looks()
		w.machine.byHand(func(m *machine) {
			m.tell(Event{Kind: LinkChanged, Link: 77, Name: "veth77"})
			m.tell(Event{Kind: AddressChanged, Link: 77, Addr: addr("10.244.1.1")})
			m.tell(Event{Kind: RouteSet, Route: foreign("10.244.1.77/32", "", 77)})
		})
		w.rest()
		if n := w.machine.looks() - looks; n > 0 {
			t.Errorf("%d looks at the table", n)
		}
	})
}

// At rest there are no writes, and one resync in each period.
func TestRest(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.machine.byHand(func(m *machine) { m.neighbors[addr("10.0.0.2")] = false })
		time.Sleep(time.Minute)
		w.rest()
		w.machine.log()
		w.client.ClearActions()
		looks := w.machine.looks()
		time.Sleep(10 * time.Minute)
		w.rest()
		if log := w.machine.log(); len(log) > 0 {
			t.Errorf("wrote %q", log)
		}
		if actions := w.client.Actions(); len(actions) > 0 {
			t.Errorf("asked the API server: %v", actions)
		}
		if n := w.machine.looks() - looks; n != 10 {
			t.Errorf("%d looks in ten periods", n)
		}
	})
}

func TestConditions(t *testing.T) {
	bare := kubeNode("self", "10.0.0.1")
	for _, c := range []struct {
		name        string
		modes       routes.Modes
		unavailable corev1.ConditionStatus // before and after the Node has podCIDRs
		after       corev1.ConditionStatus
	}{
		{"nobody else says it", bothByNodes, corev1.ConditionTrue, corev1.ConditionFalse},
		{"natively", routes.Modes{IPv4: routes.Natively, IPv6: routes.Natively}, corev1.ConditionTrue, corev1.ConditionFalse},
		{"the cloud controller manager says it", routes.Modes{IPv4: routes.ByCloud, IPv6: routes.ByNodes}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			withFixture(t, c.modes, []*corev1.Node{bare}, func(w *fixture) {
				if got := w.condition(corev1.NodeNetworkUnavailable); got.Status != c.unavailable {
					t.Errorf("without podCIDRs: %+v", got)
				}
				if w.agent.Ready() == nil || len(w.after.log()) > 0 {
					t.Errorf("ready without podCIDRs, or told of none: %q", w.after.log())
				}
				w.put(self())
				w.rest()
				if got := w.condition(corev1.NodeNetworkUnavailable); got.Status != c.after {
					t.Errorf("with podCIDRs: %+v", got)
				}
				if len(w.after.log()) != 1 || len(w.before.log()) < 2 {
					t.Errorf("asked: before %q, after %q", w.before.log(), w.after.log())
				}
			})
		})
	}
}

// A failing component keeps the node from becoming ready. After a later failure it is retried, and
// the reachable node stays reachable.
func TestAPartFails(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		fail := func(err error) {
			w.after.mu.Lock()
			w.after.err = err
			w.after.mu.Unlock()
		}
		missing := errors.New("no plugin")
		fail(missing)
		time.Sleep(time.Minute)
		w.rest()
		if err := w.agent.Ready(); !errors.Is(err, missing) {
			t.Errorf("ready: %v", err)
		}
		w.wantReady(0)
		if c := w.condition(corev1.NodeNetworkUnavailable); c.Status != corev1.ConditionFalse {
			t.Errorf("condition %+v", c)
		}
		fail(nil)
		time.Sleep(30 * time.Second)
		w.rest()
		if err := w.agent.Ready(); err != nil {
			t.Errorf("ready: %v", err)
		}
		w.wantReady(1)
	})
}

func (w *fixture) wantReady(want float64) {
	w.t.Helper()
	families, err := w.agent.Registry.(metrics.KubeRegistry).Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "underlay_agent_ready" && f.GetMetric()[0].GetGauge().GetValue() == want {
			return
		}
	}
	w.t.Errorf("underlay_agent_ready is not %v", want)
}

// An unresponsive peer is probed, and reported once it has been unresponsive for longer than a
// reboot takes.
func TestASilentPeerIsNamed(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.machine.byHand(func(m *machine) {
			if !slices.Contains(m.probes, addr("10.0.0.2")) {
				t.Errorf("asked for %v", m.probes)
			}
			m.neighbors[addr("10.0.0.2")] = true
		})
		time.Sleep(30 * time.Second)
		w.rest()
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionTrue {
			t.Errorf("after half a minute: %+v", c)
		}
		time.Sleep(time.Minute)
		w.rest()
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "b: InternalIP 10.0.0.2 does not reply") {
			t.Errorf("after a minute and a half: %+v", c)
		}
		w.routes("10.244.2.0/24 via 10.0.0.2")
		w.machine.byHand(func(m *machine) { m.neighbors[addr("10.0.0.2")] = false })
		time.Sleep(time.Minute)
		w.rest()
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionTrue {
			t.Errorf("when it answers again: %+v", c)
		}
	})
}
