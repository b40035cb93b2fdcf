package agent

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// wrote fails unless exactly these writes were made since the last call.
func (w *fixture) wrote(what string, want ...string) {
	w.t.Helper()
	if log := w.machine.log(); !slices.Equal(log, want) {
		w.t.Errorf("%s: wrote %q, want %q", what, log, want)
	}
}

// An address is removed, and with it the routes through its neighbors: the kernel sends events for
// those of IPv6, and none for those of IPv4. When the address is back, they are restored without
// waiting for the next resync.
func TestAnAddressGoesAndComesBack(t *testing.T) {
	b := kubeNode("b", "10.0.0.2", "fd00::2", "10.244.2.0/24", "fd01:2::/64")
	for _, c := range []struct {
		address, neighbors, pods string
		silent                   bool
	}{
		{"fd00::1/64", "fd00::/64", "fd01:2::/64", false},
		{"10.0.0.1/24", "10.0.0.0/24", "10.244.2.0/24", true},
	} {
		t.Run(c.address, func(t *testing.T) {
			withFixture(t, bothByNodes, []*corev1.Node{self(), b}, func(w *fixture) {
				began, gone := time.Now(), prefix(c.address)
				changed := Event{Kind: AddressChanged, Link: 2, Addr: gone.Addr()}
				w.machine.byHand(func(m *machine) {
					m.links[1].Addrs = slices.DeleteFunc(slices.Clone(m.links[1].Addrs),
						func(p netip.Prefix) bool { return p == gone })
					for _, e := range slices.Clone(m.table) {
						if e.Dst != prefix(c.neighbors) && (e.Dst != prefix(c.pods) || !e.Ours()) {
							continue
						}
						m.table = slices.DeleteFunc(m.table, func(o Entry) bool { return o == e })
						if !c.silent {
							m.tell(Event{Kind: RouteGone, Route: e})
						}
					}
					m.tell(changed)
				})
				w.rest()
				if c := w.condition(PeersReachable); c.Status != corev1.ConditionFalse {
					t.Errorf("without the address: %+v", c)
				}
				w.machine.byHand(func(m *machine) {
					m.links[1].Addrs = append(m.links[1].Addrs, gone)
					m.table = append(m.table, foreign(c.neighbors, "", 2))
					m.tell(changed)
				})
				w.rest()
				w.routes("10.244.2.0/24 via 10.0.0.2", "fd01:2::/64 via fd00::2")
				if time.Since(began) > 0 {
					t.Errorf("it took %s", time.Since(began))
				}
			})
		})
	}
}

// A Node was deleted and joined again with another podCIDR: there is a route to the new one, and
// none to the old one, whether both events were observed or only one.
func TestANodeComesBackWithAnotherPodCIDR(t *testing.T) {
	for name, seen := range map[string]bool{"both events": true, "one event": false} {
		t.Run(name, func(t *testing.T) {
			withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
				w.machine.log()
				again := kubeNode("b", "10.0.0.2", "10.244.7.0/24")
				again.UID = "another"
				if seen {
					w.remove("b")
					w.rest()
					w.wrote("deleted", "delete 10.244.2.0/24 via 10.0.0.2")
					w.put(again)
					w.rest()
					w.wrote("joined again", "add 10.244.7.0/24 via 10.0.0.2")
				} else {
					w.put(again)
					w.rest()
					w.wrote("became another", "add 10.244.7.0/24 via 10.0.0.2", "delete 10.244.2.0/24 via 10.0.0.2")
				}
				w.routes("10.244.7.0/24 via 10.0.0.2")
			})
		})
	}
}

// A machine that joins under another name with the same podCIDR never loses its route.
func TestARenamedNodeKeepsItsRoute(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.machine.log()
		renamed := kubeNode("renamed", "10.0.0.2", "10.244.2.0/24")
		renamed.CreationTimestamp = metav1.Unix(2000, 0)
		w.put(renamed)
		w.rest()
		if c := w.condition(PeersReachable); !strings.Contains(c.Message, "renamed: podCIDR 10.244.2.0/24 overlaps") {
			t.Errorf("while both are there: %+v", c)
		}
		w.remove("b")
		w.rest()
		w.wrote("renamed")
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionTrue {
			t.Errorf("afterwards: %+v", c)
		}
	})
}

// Of two Nodes with one podCIDR the older is routed, whichever is observed first; when it is
// deleted, its route is replaced by one to the other.
func TestTwoNodesClaimOnePodCIDR(t *testing.T) {
	young := kubeNode("a", "10.0.0.9", "10.244.2.0/24")
	young.CreationTimestamp = metav1.Unix(2000, 0)
	withFixture(t, bothByNodes, []*corev1.Node{self(), young}, func(w *fixture) {
		w.routes("10.244.2.0/24 via 10.0.0.9")
		w.machine.log()
		w.put(peerB())
		w.rest()
		w.wrote("the older is heard of", "replace 10.244.2.0/24 via 10.0.0.9 by 10.244.2.0/24 via 10.0.0.2")
		if c := w.condition(PeersReachable); !strings.Contains(c.Message, "a: podCIDR 10.244.2.0/24 overlaps") {
			t.Errorf("condition %+v", c)
		}
		w.remove("b")
		w.rest()
		w.wrote("the older went", "replace 10.244.2.0/24 via 10.0.0.2 by 10.244.2.0/24 via 10.0.0.9")
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionTrue {
			t.Errorf("condition %+v", c)
		}
	})
}

// A renamed interface is still the same one: no route changes, and the other components get the new
// name.
func TestAnInterfaceIsRenamed(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.machine.log()
		lastSent := len(w.before.log())
		w.machine.byHand(func(m *machine) {
			m.links[1].Name = "ens3"
			m.tell(Event{Kind: LinkChanged, Link: 2, Name: "ens3"})
		})
		w.rest()
		w.wrote("renamed")
		if err := w.agent.Ready(); err != nil || len(w.before.log()) == lastSent {
			t.Errorf("ready: %v; %d times told", err, len(w.before.log())-lastSent)
		}
	})
}

// A driver that is loaded again recreates the interface with another index.
func TestAnInterfaceComesBackUnderAnotherIndex(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.machine.byHand(func(m *machine) {
			m.links[1].Index = 9
			m.table = slices.DeleteFunc(m.table, func(e Entry) bool { return e.Link == 2 })
			m.table = append(m.table, foreign("10.0.0.0/24", "", 9), foreign("fd00::/64", "", 9))
			m.tell(Event{Kind: LinkChanged, Link: 2, Name: "eth0"})
			m.tell(Event{Kind: LinkChanged, Link: 9, Name: "eth0"})
		})
		w.rest()
		w.routes("10.244.2.0/24 via 10.0.0.2")
		w.machine.log()
		w.machine.byHand(func(m *machine) { // routes through the new index are restored too
			m.table = slices.DeleteFunc(m.table, func(e Entry) bool { return e.Dst == prefix("10.244.2.0/24") })
			m.tell(Event{Kind: LinkChanged, Link: 9, Name: "eth0"})
		})
		w.rest()
		w.wrote("lost again", "add 10.244.2.0/24 via 10.0.0.2")
	})
}
