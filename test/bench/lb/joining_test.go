package lb_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Nodes that join one after the other cost each load balancer a write, and all of them together a
// list for each node: never a read of each load balancer.
func TestRequestsOfNodesThatJoin(t *testing.T) {
	const services, joining, pause = 100, 20, 10 * time.Second
	// For each node: a list of the load balancers, one of the servers, and one more.
	const writes, reads = services * joining, joining * (services/pageSize + 2)
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, realistic())
		w.addNode("node-0")
		for i := range services {
			w.addService(fmt.Sprint("web-", i))
		}
		w.start()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		w.spent()
		begun := time.Now()
		for i := range joining {
			w.addNode(fmt.Sprint("node-", i+1))
			time.Sleep(pause)
		}
		synctest.Wait()
		incomplete := func() (n int) {
			for _, b := range w.sim.LoadBalancers() {
				if len(b.Targets) != 1+joining {
					n++
				}
			}
			return n
		}
		for incomplete() > 0 && time.Since(begun) < 10*time.Minute {
			time.Sleep(time.Second)
			synctest.Wait()
		}
		took := time.Since(begun)
		time.Sleep(20 * time.Second)
		synctest.Wait()
		c := w.spent()
		what := fmt.Sprintf("%d load balancers, 2 ports each, and %d nodes that join one after the other",
			services, joining)
		t.Logf("%s: %d reads, %d writes, %d polls: %d requests in %s", what, c.reads, c.writes, c.polls, c.all(), took)
		if n := incomplete(); c.writes != writes || c.reads > reads || n > 0 {
			t.Errorf("%+v, want %d writes and at most %d reads; %d load balancers without all of their targets", c, writes, reads, n)
		}
		row{what: what}.record(t, c)
		w.stop()
	})
}
