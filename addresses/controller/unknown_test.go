package controller

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

func turned(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Status.Conditions[0].Status = status }
}

// silences makes watchers, one after another, report these nodes as unresponsive at a port.
func (w *world) silences(port int, watchers []string, silent ...string) {
	for _, watcher := range watchers {
		var r addresses.Report
		for _, node := range silent {
			if node != watcher {
				r.Silent = append(r.Silent, addresses.Endpoint{Node: node, Port: port})
			}
		}
		w.report(watcher, r)
		w.after(50 * time.Millisecond)
	}
}

// all returns the holders of these Services' addresses.
func (w *world) all(services []string) (holders []string) {
	for _, name := range services {
		holders = append(holders, w.holder(name))
	}
	return holders
}

// A Node of unknown readiness is exempt for a while, as other nodes still reach it.
func TestANodeThatTheAPIServerDoesNotReach(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := three(w)
		w.editNode(holder, turned(corev1.ConditionUnknown))
		w.after(unknownFor - 2*time.Second)
		if now := w.holder("one"); now != holder {
			t.Errorf("%s holds it too early", now)
		}
		w.service("two")
		w.settle()
		if w.holder("two") == holder {
			t.Error("the node that is not heard gets another address")
		}
		w.after(3 * time.Second)
		if w.holder("one") == holder || w.metric("moves_total", "reason", whyNotReady) != 1 {
			t.Errorf("%s holds it still", holder)
		}
	})
}

func TestANodeThatIsUnreachable(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := three(w)
		w.editNode(holder, turned(corev1.ConditionUnknown))
		w.settle()
		others := slices.DeleteFunc([]string{"a", "b", "c"}, func(n string) bool { return n == holder })
		w.silences(addresses.ProxyPort, others, holder)
		w.settle()
		if w.holder("one") == holder {
			t.Errorf("%s holds it still, and nobody hears it", holder)
		}
	})
}

type nowhere struct{}

func (nowhere) Routed(context.Context) (map[netip.Addr]string, error) { return nil, nil }

func (nowhere) Route(context.Context, netip.Addr, addresses.Destination) error { return nil }

// Without agents, no reports exempt a Node of unknown readiness.
func TestANodeWithoutWatchers(t *testing.T) {
	inWorld(t, func(w *world) {
		without := func(n *corev1.Node) { n.Annotations = nil }
		w.node("a", without)
		w.node("b", without)
		w.node("gone-long-ago", without, turned(corev1.ConditionUnknown))
		w.start(func(c *Config) {
			c.Pools[0].Mover = "failover"
			c.Routers = map[addresses.Mover]Routing{"failover": {Router: nowhere{}}}
		})
		w.service("one")
		w.settle()
		holder := w.holder("one")
		w.editNode(holder, turned(corev1.ConditionUnknown))
		w.settle()
		if now := w.holder("one"); now == holder || now == "" {
			t.Errorf("%q holds it, was %s", now, holder)
		}
	})
}

// The API server is cut off from the nodes, and their readiness becomes unknown one after another:
// if addresses left each of them, one node would end up with all.
func TestAnAPIServerThatReachesNoNode(t *testing.T) {
	inWorld(t, func(w *world) {
		nodes, services := []string{"a", "b", "c", "d"}, []string{"s1", "s2", "s3", "s4"}
		for _, name := range nodes {
			w.node(name)
		}
		w.start()
		for _, name := range services {
			w.service(name)
			w.settle()
		}
		before := w.all(services)
		for _, name := range nodes {
			w.editNode(name, turned(corev1.ConditionUnknown))
			w.after(4 * time.Second)
		}
		w.after(5 * time.Minute)
		if now := w.all(services); !slices.Equal(now, before) {
			t.Errorf("held by %v, was %v", now, before)
		}
		for _, name := range nodes {
			w.editNode(name, turned(corev1.ConditionTrue))
			w.after(4 * time.Second)
		}
		w.after(time.Minute)
		if now := w.all(services); !slices.Equal(now, before) {
			t.Errorf("held by %v when all is over, was %v", now, before)
		}
	})
}

// Half of the nodes really fail, as the remaining ones report.
func TestHalfOfTheNodesAreGone(t *testing.T) {
	inWorld(t, func(w *world) {
		services := []string{"s1", "s2", "s3", "s4"}
		for _, name := range []string{"a", "b", "c", "d"} {
			w.node(name)
		}
		w.start()
		for _, name := range services {
			w.service(name)
			w.settle()
		}
		w.editNode("a", turned(corev1.ConditionUnknown))
		w.editNode("b", turned(corev1.ConditionUnknown))
		w.settle()
		w.silences(addresses.ProxyPort, []string{"c", "d"}, "a", "b")
		w.settle()
		for _, holder := range w.all(services) {
			if holder != "c" && holder != "d" {
				t.Errorf("%s holds an address", holder)
			}
		}
	})
}

// A packet filter drops all checks: no node is better than another, and the addresses come to rest.
func TestNoNodeIsReached(t *testing.T) {
	for _, nodes := range [][]string{{"a", "b"}, {"a", "b", "c"}, {"a", "b", "c", "d", "e"}} {
		for _, port := range []int{addresses.ProxyPort, addresses.AgentPort} {
			t.Run(fmt.Sprint(nodes, port), func(t *testing.T) {
				inWorld(t, func(w *world) {
					for _, name := range nodes {
						w.node(name)
					}
					w.start()
					w.service("one")
					w.settle()
					w.silences(port, nodes, nodes...)
					w.after(time.Minute)
					holder, before := w.holder("one"), w.api.ledger().Entries()[0].Epoch
					w.after(30 * time.Minute)
					if e := w.api.ledger().Entries()[0]; e.Epoch != before {
						t.Errorf("it moved %d times meanwhile", e.Epoch-before)
					}
					w.expectCondition("one", "False NoNodeForAddress", "10256 and 10267")
					w.service("two")
					w.settle()
					if w.holder("two") == "" {
						t.Error("a new address has no holder")
					}
					w.api.remove("nodes", holder)
					w.settle()
					if now := w.holder("one"); now == holder || now == "" {
						t.Errorf("%q holds it, and %s is gone", now, holder)
					}
				})
			})
		}
	}
}

// A Node's own address in a pool is not assigned to a Service.
func TestAddressesOfNodes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a", func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: "a"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"},
			}
		})
		w.start()
		w.service("one")
		w.service("two", annotated("underlay.dev/addresses", "192.0.2.1"))
		w.settle()
		w.has("one", "192.0.2.2")
		w.has("two", "")
		w.expectCondition("two", "False AddressOutsidePools", "a Node has it")
		w.editNode("a", func(n *corev1.Node) { n.Status.Addresses = nil })
		w.settle()
		w.has("two", "192.0.2.1")
	})
}
