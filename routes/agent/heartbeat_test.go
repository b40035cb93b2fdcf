package agent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Updates of a Node by kubelets and others that affect no decision don't trigger a pass; those that
// affect one do.
func TestOnlyRelevantChangesOfANodeTriggerAPass(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		before := w.machine.looks()
		for i := range 50 {
			b := peerB()
			b.Labels = map[string]string{"example.com/beat": fmt.Sprint(i)}
			b.Annotations = map[string]string{"example.com/beat": fmt.Sprint(i)}
			b.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", Time: &metav1.Time{Time: time.Now()}}}
			b.Spec.Unschedulable = i%2 == 0
			b.Spec.Taints = []corev1.Taint{{Key: "example.com/beat", Value: fmt.Sprint(i), Effect: corev1.TaintEffectNoSchedule}}
			b.Status.Images = []corev1.ContainerImage{{Names: []string{fmt.Sprint("image", i)}}}
			b.Status.Addresses = append(slices.Clone(b.Status.Addresses), corev1.NodeAddress{Type: corev1.NodeHostName, Address: fmt.Sprint("b", i)})
			b.Status.Conditions = append(slices.Clone(b.Status.Conditions),
				corev1.NodeCondition{
					Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: fmt.Sprint(i),
				},
				corev1.NodeCondition{
					Type: PeersReachable, Status: corev1.ConditionFalse, Message: fmt.Sprint(i),
				})
			b.Status.Conditions[0].LastHeartbeatTime = metav1.Now()
			w.put(b)
			w.rest()
		}
		if looks := w.machine.looks() - before; looks != 0 {
			t.Errorf("50 updates that change nothing led to %d passes, want 0", looks)
		}
		b := peerB()
		b.Status.Addresses[0].Address = "10.0.0.7"
		w.put(b)
		w.rest()
		if looks := w.machine.looks() - before; looks != 1 {
			t.Errorf("a new address led to %d passes, want 1", looks)
		}
		w.routes("10.244.2.0/24 via 10.0.0.7")
	})
}

// A route of an earlier version with another metric is replaced by the current one before it is
// deleted, and is kept while the peer's address is unknown.
func TestRoutesOfAnotherMetric(t *testing.T) {
	old := ours("10.244.2.0/24", "10.0.0.2", 2)
	old.Metric = MetricPeer
	s := segment()
	s.Nodes = append(s.Nodes, aNode("b", "10.0.0.2", "10.244.2.0/24"))
	s.Table = append(s.Table, old)
	d, err := Decide(s)
	if err != nil {
		t.Fatal(err)
	}
	added := slices.ContainsFunc(d.Plan.Add, func(e WantedEntry) bool { return e.Entry == ours("10.244.2.0/24", "10.0.0.2", 2) })
	if !added || !slices.Equal(d.Plan.Delete, []Entry{old}) {
		t.Errorf("the plan is %+v, want the new route added and the old one deleted", d.Plan)
	}
	s.Nodes[1].InternalIPs = nil
	if d, err = Decide(s); err != nil {
		t.Fatal(err)
	}
	if len(d.Plan.Delete) > 0 {
		t.Errorf("%v would be deleted while the peer's address is unknown", d.Plan.Delete)
	}
}

// While the kernel rejects new routes, the route of an earlier version is kept.
func TestARouteOfAnotherMetricStaysWhileItsSuccessorCantBeMade(t *testing.T) {
	withFixture(t, bothByNodes, []*corev1.Node{self(), peerB()}, func(w *fixture) {
		w.stop()
		metric := func() (all []uint32) {
			w.machine.byHand(func(m *machine) {
				for i := range m.table {
					if m.table[i].Dst == prefix("10.244.2.0/24") {
						all = append(all, m.table[i].Metric)
					}
				}
			})
			return all
		}
		w.machine.byHand(func(m *machine) {
			for i := range m.table {
				if m.table[i].Dst == prefix("10.244.2.0/24") {
					m.table[i].Metric = MetricPeer
				}
			}
			m.full = true
		})
		w.start(bothByNodes)
		if got := metric(); !slices.Equal(got, []uint32{MetricPeer}) {
			t.Errorf("while no route can be made, those to the peer have metrics %v, want %d", got, MetricPeer)
		}
		w.machine.byHand(func(m *machine) { m.full = false })
		time.Sleep(2 * time.Minute) // of virtual time: passes run in between
		w.rest()
		if got := metric(); !slices.Equal(got, []uint32{MetricPeer + 2}) {
			t.Errorf("then they have metrics %v, want %d", got, MetricPeer+2)
		}
	})
}

func TestPeerMetricsAreSpread(t *testing.T) {
	at := map[uint32]int{}
	for i := range 15_360 {
		at[PeerMetric(prefix(fmt.Sprintf("10.%d.%d.0/24", 64+i>>8, i&0xff)))]++
	}
	for m, n := range at {
		if n != 60 || m < MetricPeer || m >= MetricPeer+peerMetrics {
			t.Errorf("metric %d has %d of 15,360 routes, want 60", m, n)
		}
	}
	if m := PeerMetric(prefix("fd01:2::/64")); m != MetricPeer {
		t.Errorf("IPv6 has metric %d, want %d", m, MetricPeer)
	}
}
