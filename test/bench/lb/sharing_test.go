package lb_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sharing are rows in which Services share one load balancer. The peer creates one for each.
func sharing() []row {
	leaves := func(w *world, name string) {
		for w.spent().reads == 0 { // so that none of those reads is counted
			time.Sleep(time.Second)
			synctest.Wait()
		}
		w.edit(name, func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
	}
	return []row{
		{
			what: "5 Services that share a load balancer: 5 nodes, 2 ports each", peer: 5 * 25,
			do: func(w *world) {
				for i := range 5 {
					w.addSharer(fmt.Sprint("shop-", i), int32(80+i))
				}
			},
			limit: "at most 5, 1 write", holds: func(c cost) bool { return c.all() <= 5 && c.writes == 1 },
		},
		{
			what: "a sixth begins to share", peer: 25,
			do:    func(w *world) { w.addSharer("shop-5", 85) },
			limit: "at most 7, 3 writes", holds: func(c cost) bool { return c.all() <= 7 && c.writes == 3 },
		},
		{
			what:  "one node more for the load balancer that 6 Services share",
			do:    func(w *world) { w.addNode("node-5") },
			limit: "at most 3, 1 write", holds: func(c cost) bool { return c.all() <= 3 && c.writes == 1 },
		},
		{
			what:  "one of 6 Services leaves",
			do:    func(w *world) { leaves(w, "shop-0") },
			limit: "at most 8, 3 writes", holds: func(c cost) bool { return c.all() <= 8 && c.writes == 3 },
		},
	}
}

// TestRequestsOfASharedLoadBalancer counts the requests of Services that share one.
func TestRequestsOfASharedLoadBalancer(t *testing.T) { count(t, sharing()) }
