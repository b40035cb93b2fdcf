package controller_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

func (w *fixture) annotate(name, key, value string) {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	node = node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, key, value)
	if value == "" {
		delete(node.Annotations, key)
	}
	if _, err := w.client.CoreV1().Nodes().Update(w.t.Context(), node,
		metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *fixture) reach(name string) routes.Reach {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return kube.ReachOf(node)
}

// A Node without room in the table is marked, and reachable once its agent has reported its
// tunnels. A freed route is not used for it until the mark is removed.
func TestANodeBeyondTheTableGetsTunnels(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.Limit, w.cfg.Tunnels.Enabled, w.cfg.MaxDeletions = 2, true, 100
		for i := range 3 {
			w.servers.attach(nodeName(i), w.address(i))
		}
		defer w.start()()
		for i := range 3 {
			w.join(nodeName(i), w.podCIDR(i))
			rest(5 * time.Second)
		}
		if w.reach("n0") != "" || w.reach("n1") != "" || w.reach("n2") != routes.NoRoom {
			t.Fatalf("the Nodes have the reaches %q, %q, %q", w.reach("n0"), w.reach("n1"), w.reach("n2"))
		}
		w.expectCondition("n2", "True NoTunnel")
		key := "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
		w.annotate("n2", kube.WireGuardAnnotation, `{"keys": [{"publicKey": "`+key+`", "port": 51820}]}`)
		rest(5 * time.Second)
		w.expectCondition("n2", "True NoTunnel")
		w.annotate("n2", kube.WireGuardAnnotation, `{"keys": [{"publicKey": "`+key+`", "port": 51820}], "connected": true}`)
		rest(5 * time.Second)
		w.expectCondition("n2", "False TunnelCreated")

		w.leave("n0")
		rest(5 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.3")
		w.expectCondition("n2", "False TunnelCreated")
		w.annotate("n2", kube.ReachAnnotation, "")
		rest(5 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.3", "10.244.2.0/24 via 10.0.0.4")
		w.expectCondition("n2", "False TunnelCreated")
	})
}

// Room that a planned deletion makes is used for a route.
func TestANodeThatReplacesAnotherGetsItsRoom(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.Limit, w.cfg.Tunnels.Enabled, w.cfg.MaxDeletions = 2, true, 100
		for i := range 3 {
			w.servers.attach(nodeName(i), w.address(i))
		}
		w.join(nodeName(0), w.podCIDR(0))
		w.join(nodeName(1), w.podCIDR(1))
		defer w.start()()
		rest(5 * time.Second)
		w.leave("n0")
		w.join(nodeName(2), w.podCIDR(2))
		rest(5 * time.Minute)
		if got := w.reach("n2"); got != "" {
			t.Errorf("it has the reach %q", got)
		}
		w.expectCondition("n2", "False RouteCreated")
	})
}
