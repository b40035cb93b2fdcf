package controller_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/routes"
)

func (w *fixture) setInternalIP(name, addr string) {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
	if _, err := w.client.CoreV1().Nodes().UpdateStatus(w.t.Context(), node,
		metav1.UpdateOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// A dedicated server's Node is reachable as soon as its address is known, without a route in the
// full table, and without another list of the table or of servers.
func TestANodeInsideTheVSwitch(t *testing.T) {
	withFixture(t, func(w *fixture) {
		w.cfg.VSwitch = routes.VSwitch{
			Subnet: netip.MustParsePrefix("10.0.64.0/18"),
			Ranges: []routes.Range{{Prefix: netip.MustParsePrefix("10.0.96.0/19"), NodeBits: 24}},
		}
		w.cfg.Limit, w.table.limit = 1, 1
		w.servers.attach("cloud", "10.0.0.2")
		w.join("cloud", "10.244.1.0/24")
		w.join("dedicated", "10.0.96.0/24")
		defer w.start()()
		rest(10 * time.Second)
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
		w.expectCondition("cloud", "False RouteCreated")
		w.expectCondition("dedicated", "True NoRouteCreated")
		if events := w.drainEvents(); !slices.Equal(events, []string{"Warning RouteTableNearlyFull"}) {
			t.Errorf("events %q, want none of a Node that has just joined", events)
		}
		lists, looks := w.table.lists, w.servers.lists

		w.setInternalIP("dedicated", "10.0.64.5")
		rest(time.Second)
		w.expectCondition("dedicated", "False RouteCreated")
		w.setInternalIP("dedicated", "203.0.113.5")
		rest(time.Second)
		w.expectCondition("dedicated", "True NotInVSwitch")
		if events := w.drainEvents(); !slices.Equal(events, []string{"Warning NotInVSwitch"}) {
			t.Errorf("events %q, want one", events)
		}
		w.setInternalIP("dedicated", "10.0.64.6")
		rest(time.Second)
		w.expectCondition("dedicated", "False RouteCreated")
		if w.table.lists != lists || w.servers.lists != looks {
			t.Errorf("%d lists of routes and %d of servers for what needs neither", w.table.lists-lists, w.servers.lists-looks)
		}

		w.leave("dedicated")
		rest(5 * time.Minute)
		w.expectTable("10.244.1.0/24 via 10.0.0.2")
	})
}
