package lb_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// row is one line of the table.
type row struct {
	what  string
	do    func(w *world)
	peer  int // requests of the peer, see peerSource; 0: not measured
	limit string
	holds func(cost) bool
}

func rows() []row {
	return []row{
		{
			what: "a new load balancer: 5 nodes, 2 ports, private network", peer: 25,
			do:    func(w *world) { w.addService("web-0") },
			limit: "at most 5, 1 write", holds: func(c cost) bool { return c.all() <= 5 && c.writes == 1 },
		},
		{
			what:  "restart, nothing to do",
			do:    func(w *world) { w.stop(); w.start() },
			limit: "1 read", holds: func(c cost) bool { return c == cost{reads: 1} },
		},
		{
			what: "externalTrafficPolicy Cluster to Local, 2 ports",
			do: func(w *world) {
				w.edit("web-0", func(svc *corev1.Service) {
					svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
					svc.Spec.HealthCheckNodePort = 32000
				})
			},
			limit: "2 writes", holds: func(c cost) bool { return c.writes == 2 },
		},
		{
			what: "4 more Services, one after the other", peer: 4 * 25,
			do: func(w *world) {
				for i := range 4 {
					w.addService(fmt.Sprint("web-", i+1))
					time.Sleep(5 * time.Second)
				}
			},
			limit: "at most 20, 4 writes", holds: func(c cost) bool { return c.all() <= 20 && c.writes == 4 },
		},
		{
			what: "one node more for 5 load balancers, 2 ports each", peer: 40,
			do:    func(w *world) { w.addNode("node-5") },
			limit: "at most 10 and polls", holds: func(c cost) bool { return c.reads+c.writes <= 10 && c.writes == 5 && c.polls <= 10 },
		},
		{
			what: "a label of a node, an annotation of somebody else's, a node NotReady",
			do: func(w *world) {
				n, err := w.api.CoreV1().Nodes().Get(w.ctx, "node-0", metav1.GetOptions{})
				w.must(err)
				n.Labels = map[string]string{"team": "web"}
				n.Status.Conditions = []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionFalse},
				}
				_, err = w.api.CoreV1().Nodes().Update(w.ctx, n, metav1.UpdateOptions{})
				w.must(err)
			},
			limit: "nothing", holds: func(c cost) bool { return c.all() == 0 },
		},
		{
			what:  "an hour with nothing to do, 5 load balancers",
			do:    func(*world) { time.Sleep(time.Hour) },
			limit: "a read each 5 minutes", holds: func(c cost) bool { return c.writes == 0 && c.polls == 0 && c.reads >= 10 && c.reads <= 13 },
		},
		{
			what: "deletion",
			do: func(w *world) {
				for w.spent().reads == 0 { // so that none of those reads is counted
					time.Sleep(time.Second)
					synctest.Wait()
				}
				w.edit("web-0", func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
			},
			limit: "at most 3, 1 write", holds: func(c cost) bool { return c.all() <= 3 && c.writes == 1 },
		},
	}
}

// TestRequests counts all requests to the cloud, and prints those of the peer for the same
// operations.
func TestRequests(t *testing.T) { count(t, rows()) }

// count runs rows, one after the other, in a cluster of five nodes.
func count(t *testing.T, rows []row) {
	t.Helper()
	var table strings.Builder
	fmt.Fprintf(&table, "%-70s %6s %6s %6s %6s %6s   %s\n", "", "reads", "writes", "polls", "all", "peer", "asserted")
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, realistic())
		for i := range 5 {
			w.addNode(fmt.Sprint("node-", i))
		}
		w.start()
		settle := func() {
			time.Sleep(20 * time.Second)
			synctest.Wait()
		}
		settle()
		w.spent()
		for _, r := range rows {
			r.do(w)
			settle()
			c := w.spent()
			peer := "-"
			if r.peer > 0 {
				peer = fmt.Sprint(r.peer)
			}
			fmt.Fprintf(&table, "%-70s %6d %6d %6d %6d %6s   %s\n", r.what, c.reads, c.writes, c.polls, c.all(), peer, r.limit)
			r.record(t, c)
			if !r.holds(c) {
				t.Errorf("%s: %+v, want %s", r.what, c, r.limit)
			}
		}
		w.stop()
	})
	t.Log("\n" + table.String())
}
