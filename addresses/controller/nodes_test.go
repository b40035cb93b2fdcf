package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/addresses"
)

// three creates three nodes and a Service, and returns the node that holds its address and another
// one.
func three(w *world, change ...func(*corev1.Service)) (holder, other string) {
	for _, name := range []string{"a", "b", "c"} {
		w.node(name)
	}
	w.start()
	w.service("one", change...)
	w.settle()
	holder = w.holder("one")
	if holder == "a" {
		return holder, "b"
	}
	return holder, "a"
}

func addr(addr string) netip.Addr { return netip.MustParseAddr(addr) }

// If a node becomes ineligible for any reason, its addresses move at once, in one write.
func TestAnAddressLeavesANode(t *testing.T) {
	ready := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[0].Status = status }
	}
	for name, c := range map[string]struct {
		edit   func(*corev1.Node)
		reason string
	}{
		"not ready": {ready(corev1.ConditionFalse), whyNotReady},
		"excluded":  {func(n *corev1.Node) { n.Labels["node.kubernetes.io/exclude-from-external-load-balancers"] = "" }, whyExcluded},
		"unfit":     {func(n *corev1.Node) { n.Annotations[addresses.ReportAnnotation] = `{"unfit":"kube-proxy"}` }, whyUnfit},
		"no agent":  {func(n *corev1.Node) { delete(n.Annotations, addresses.ReportAnnotation) }, whyNoReport},
		"nonsense":  {func(n *corev1.Node) { n.Annotations[addresses.ReportAnnotation] = "{" }, whyNoReport},
		"refused": {func(n *corev1.Node) {
			n.Annotations[addresses.ReportAnnotation] = `{"refused":[{"address":"192.0.2.1","reason":"AddressOffSegment"}]}`
		}, whyRefused},
		"off segment": {func(n *corev1.Node) {
			n.Annotations[addresses.ReportAnnotation] = `{"segments":["192.0.3.0/24"]}`
		}, whyRefused},
		"cordoned": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, whyDraining},
		"autoscaler": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: "NoSchedule"}}
		}, whyDraining},
		"deleted": {func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Now()} }, whyGone},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder, _ := three(w)
				w.api.written()
				w.editNode(holder, c.edit)
				w.after(100 * time.Millisecond)
				if now := w.holder("one"); now == holder || now == "" {
					t.Errorf("%s holds it", now)
				}
				if n := w.api.count("PUT configmaps"); n != 1 || w.api.written() > 0 {
					t.Errorf("%d writes of the ledger, and others", n)
				}
				if n := w.metric("moves_total", "reason", c.reason); n != 1 {
					t.Errorf("%v moves because of %s", n, c.reason)
				}
				if got := w.events.of("one Normal AddressMoved"); len(got) != 1 || !strings.HasSuffix(got[0], c.reason) {
					t.Errorf("events %q", got)
				}
				w.has("one", "192.0.2.1")
			})
		})
	}
}

// The watchers' reports take effect before the Node's condition: one write after the second report.
func TestASilentNodeLosesItsAddressesAtOnce(t *testing.T) {
	for _, c := range []struct {
		port  int
		moves bool
	}{
		{addresses.ProxyPort, true},
		{addresses.AgentPort, true},
		{30999, false}, // of another Service
	} {
		t.Run(fmt.Sprint(c.port), func(t *testing.T) {
			inWorld(t, func(w *world) {
				holder, _ := three(w)
				silent := addresses.Report{Silent: []addresses.Endpoint{{Node: holder, Port: c.port}}}
				watchers := 0
				for _, name := range []string{"a", "b", "c"} {
					if name == holder {
						continue
					}
					w.report(name, silent)
					w.after(50 * time.Millisecond)
					if watchers++; watchers == 1 && w.holder("one") != holder {
						t.Error("one of two watchers moved it")
					}
				}
				if moved := w.holder("one") != holder; moved != c.moves {
					t.Errorf("moved: %t", moved)
				}
				if !c.moves {
					return
				}
				// It may become unresponsive again, so it must not be the first choice.
				for _, name := range []string{"a", "b", "c"} {
					if name != holder {
						w.report(name, addresses.Report{})
					}
				}
				w.service("two")
				w.settle()
				if w.holder("two") == holder {
					t.Error("the silent node gets the next address")
				}
				w.after(2 * time.Minute)
				w.service("three")
				w.settle()
				if w.holder("three") != holder {
					t.Errorf("%s gets the third address, want the node that was silent long ago", w.holder("three"))
				}
			})
		})
	}
}

// If all nodes were unresponsive for a moment, one after another, an address must not wait at a
// dead one: a node that responds again takes over.
func TestANodeThatRespondsAgainTakesOver(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := three(w)
		others := slices.DeleteFunc([]string{"a", "b", "c"}, func(name string) bool { return name == holder })
		say := func(silent string, by ...string) {
			for _, name := range by {
				w.report(name, addresses.Report{
					Silent: []addresses.Endpoint{{Node: silent, Port: addresses.ProxyPort}},
				})
			}
			w.after(100 * time.Millisecond)
		}
		say(others[0], holder, others[1])
		say(others[1], holder, others[0])
		for _, name := range []string{holder, others[0], others[1]} {
			w.report(name, addresses.Report{})
		}
		w.settle()
		if now := w.holder("one"); now != holder {
			t.Fatalf("%s holds it: the holder was never silent", now)
		}
		say(holder, others...)
		if now := w.holder("one"); now == holder {
			t.Error("the silent node goes on, because the others were silent once")
		}
		// The old holder responds again, and the new holder, which was unresponsive before, keeps
		// the address.
		now := w.holder("one")
		for _, name := range others {
			w.report(name, addresses.Report{})
		}
		w.after(2 * time.Second)
		if w.holder("one") != now {
			t.Errorf("%s holds it, want still %s", w.holder("one"), now)
		}
	})
}

// If no other node is eligible, an address stays, and the Service's condition has the reason.
func TestNeverWithoutHolder(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := three(w)
		for _, name := range []string{"a", "b", "c"} {
			w.editNode(name, func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse })
		}
		w.settle()
		if now := w.holder("one"); now == "" {
			t.Errorf("%s holds it, was %s", now, holder)
		}
		w.expectCondition("one", "False NoNodeForAddress", whyNotReady)
		if n := w.metric("unheld"); n != 1 {
			t.Errorf("%v unheld", n)
		}
		w.editNode("b", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
		w.settle()
		w.expectCondition("one", "True Accepted", "")
		if w.holder("one") != "b" || w.metric("unheld") != 0 {
			t.Errorf("%s holds it", w.holder("one"))
		}
	})
}

// A leaving node keeps its addresses until another node is eligible.
func TestALeavingNodeHoldsOn(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start()
		w.service("one")
		w.settle()
		w.editNode("a", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.settle()
		if w.holder("one") != "a" {
			t.Errorf("%q holds it", w.holder("one"))
		}
		w.node("b")
		w.settle()
		if w.holder("one") != "b" {
			t.Errorf("%q holds it, want the node that stays", w.holder("one"))
		}
	})
}

func TestPolicyLocalFollowsEndpoints(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.node(name)
		}
		w.service("one", localOnly)
		w.endpoints("one")
		w.start()
		w.has("one", "192.0.2.1")
		w.expectCondition("one", "True Accepted", "needs a ready endpoint")
		if got := w.events.of("one Warning"); len(got) > 0 {
			t.Errorf("events %q", got)
		}
		for _, step := range []struct {
			nodes []string
			want  string
		}{
			{[]string{"b"}, "b"},
			{[]string{"b", "c"}, "b"},
			{[]string{"-b", "c"}, "c"},
			{[]string{"-c"}, "c"},
			{[]string{"-c", "a"}, "a"},
			{nil, "a"}, // no other node either
		} {
			w.endpoints("one", step.nodes...)
			w.settle()
			if w.holder("one") != step.want {
				t.Errorf("endpoints on %v: %q holds it, want %s", step.nodes, w.holder("one"), step.want)
			}
		}
		// Now the Service's own check fails.
		w.endpoints("one", "a", "b")
		w.settle()
		for _, name := range []string{"b", "c"} {
			w.report(name, addresses.Report{Silent: []addresses.Endpoint{{Node: "a", Port: 30999}}})
		}
		w.settle()
		if w.holder("one") != "b" {
			t.Errorf("%q holds it although its check is silent", w.holder("one"))
		}
	})
}

// With BGP all nodes announce an address together; one without a session to a router stays among
// them.
func TestNodesAnnounceTogether(t *testing.T) {
	inWorld(t, func(w *world) {
		for _, name := range []string{"a", "b", "c"} {
			w.node(name)
		}
		w.start(func(c *Config) { c.Pools[0].Mover = addresses.BGP })
		w.service("one")
		w.settle()
		if w.holder("one") != "a b c " {
			t.Errorf("held by %q", w.holder("one"))
		}
		w.report("b", addresses.Report{Refused: []addresses.Problem{{Address: addr("192.0.2.1"), Reason: addresses.NoRouter}}})
		w.editNode("c", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.settle()
		if w.holder("one") != "a b " {
			t.Errorf("held by %q", w.holder("one"))
		}
	})
}

// An external host has the address: after reports of three nodes the address does not move through
// the rest of the cluster.
func TestAnAddressInUse(t *testing.T) {
	inWorld(t, func(w *world) {
		for i := range 8 {
			w.node(fmt.Sprint("n", i))
		}
		w.start()
		w.service("one")
		w.settle()
		address := addr("192.0.2.1")
		seen := map[string]bool{}
		for range 20 {
			holder := w.holder("one")
			seen[holder] = true
			for i := range 8 {
				if name := fmt.Sprint("n", i); name != holder {
					w.report(name, addresses.Report{})
				}
			}
			w.report(holder, addresses.Report{Refused: []addresses.Problem{{Address: address, Reason: addresses.InUse, By: "02:00:00:00:00:07"}}})
			w.settle()
		}
		if len(seen) != believed {
			t.Errorf("it went to %d nodes, want %d", len(seen), believed)
		}
		w.expectCondition("one", "False AddressInUse", "02:00:00:00:00:07")
		if n := w.metric("in_use"); n != 1 {
			t.Errorf("%v in use", n)
		}
		holder := w.holder("one")
		w.report(holder, addresses.Report{Held: []addresses.Hold{{Address: address, Epoch: 3}}})
		w.after(time.Hour)
		w.expectCondition("one", "True Accepted", "")
		if w.holder("one") != holder {
			t.Error("it moved although the node holds it")
		}
	})
}

// The ledger records for the next holder whether a node held the address, or found an external host
// there.
func TestTheNextHolderGetsTheLedgersRecord(t *testing.T) {
	held := addresses.Report{Held: []addresses.Hold{{Address: addr("192.0.2.1"), Epoch: 1}}}
	refused := addresses.Report{Refused: []addresses.Problem{{Address: addr("192.0.2.1"), Reason: addresses.InUse}}}
	for name, c := range map[string]struct {
		reports []addresses.Report // of the first holder
		held    bool
	}{
		"the first one says nothing":        {nil, false},
		"the first one holds it":            {[]addresses.Report{held}, true},
		"the first one finds a stranger":    {[]addresses.Report{refused}, false},
		"a stranger answers the first late": {[]addresses.Report{held, refused}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				first, _ := three(w)
				for _, r := range c.reports {
					w.report(first, r)
					w.settle()
				}
				w.editNode(first, func(n *corev1.Node) { n.Spec.Unschedulable = true })
				w.settle()
				e, _ := w.api.ledger().Entry(addr("192.0.2.1"))
				if e.Holder == first || e.Held != c.held {
					t.Errorf("%+v, want another holder than %s, held: %t", e, first, c.held)
				}
				before := w.api.count("PUT configmaps")
				w.after(time.Hour)
				if n := w.api.count("PUT configmaps") - before; n > 0 {
					t.Errorf("the ledger is written %d times though nothing happens", n)
				}
			})
		})
	}
}

// An address that its holder defends does not move because of another claimant.
func TestADefendedAddressStays(t *testing.T) {
	inWorld(t, func(w *world) {
		holder, _ := three(w)
		address := addr("192.0.2.1")
		w.report(holder, addresses.Report{
			Held:    []addresses.Hold{{Address: address, Epoch: 1}},
			Refused: []addresses.Problem{{Address: address, Reason: addresses.InUse, By: "02:00:00:00:00:07"}},
		})
		w.settle()
		if w.holder("one") != holder {
			t.Errorf("it went from %s to %s", holder, w.holder("one"))
		}
		w.expectCondition("one", "False AddressInUse", "holds 192.0.2.1, and another machine")
	})
}

// A new node gets its share one by one, once the cluster is calm.
func TestAddressesSpreadInCalmTimes(t *testing.T) {
	inWorld(t, func(w *world) {
		w.node("a")
		w.start(func(c *Config) { c.Pools = []Pool{poolNamed("many", "192.0.2.0/26")} })
		for i := range 6 {
			w.service(fmt.Sprint("s", i))
		}
		w.settle()
		w.node("b")
		w.after(4 * time.Minute)
		if n := w.metric("moves_total", "reason", whyBalanced); n > 0 {
			t.Errorf("%v moves too early", n)
		}
		w.after(90 * time.Second)
		if n := w.metric("moves_total", "reason", whyBalanced); n != 1 {
			t.Errorf("%v moves, want one", n)
		}
		w.after(10 * time.Minute)
		held := map[string]int{}
		for i := range 6 {
			held[w.holder(fmt.Sprint("s", i))]++
		}
		if held["a"] != 3 || held["b"] != 3 || w.metric("moves_total", "reason", whyBalanced) != 3 {
			t.Errorf("held %v after %v moves", held, w.metric("moves_total", "reason", whyBalanced))
		}
	})
}

// While pods are replaced, most events don't affect the decision.
func TestServesElsewhere(t *testing.T) {
	for _, c := range []struct {
		old, now string
		want     bool
	}{
		{"a b", "b a", false}, {"a b", "a a b", false}, {"a b", "a", true}, {"a", "a b", true}, {"a", "-a", true}, {"-a", "-a -a", false},
	} {
		old, now := sliceOf("one", strings.Fields(c.old)...), sliceOf("one", strings.Fields(c.now)...)
		if got := servesElsewhere(old, now); got != c.want {
			t.Errorf("%q, then %q: %t", c.old, c.now, got)
		}
	}
}
