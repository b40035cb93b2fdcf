package lb_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod that alternates between ready and not ready costs a bounded number of requests, whatever
// the durations, and the others remain targets.
func TestRequestsOfAFlappingPod(t *testing.T) {
	const pods, most = 3, 120
	for _, unready := range []time.Duration{5 * time.Second, 20 * time.Second, time.Minute} {
		what := fmt.Sprintf("a flapping pod for an hour, %.0f s not ready and %.0f s ready",
			unready.Seconds(), time.Minute.Seconds())
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &deployment{pods: map[netip.Addr]*replica{}}
				w := newWorld(t, realistic())
				w.defaults.OwnPools = true
				for i := range pods {
					w.addNode(fmt.Sprint("node-", i))
				}
				w.giveOwnPrefixes(d)
				for range pods {
					d.create(false, 0)
				}
				_, err := w.api.DiscoveryV1().EndpointSlices("default").Create(w.ctx, d.slice(), metav1.CreateOptions{})
				w.must(err)
				w.addPodService("web")
				w.start()
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := d.serving(w.sim.DataPlane().LoadBalancers[0].Targets); n != pods {
					t.Fatalf("%d targets before it begins", n)
				}
				w.spent()
				flapping, least := d.any(), pods
				for end := time.Now().Add(time.Hour); time.Now().Before(end); {
					for _, startup := range []time.Duration{unready, 0} {
						lasts := time.Minute
						if startup > 0 {
							lasts = unready
						}
						d.restart(flapping, startup)
						_, err := w.api.DiscoveryV1().EndpointSlices("default").Update(w.ctx, d.slice(), metav1.UpdateOptions{})
						w.must(err)
						for range lasts / time.Second {
							time.Sleep(time.Second)
							synctest.Wait()
							least = min(least, len(w.sim.DataPlane().LoadBalancers[0].Targets))
						}
					}
				}
				c := w.spent()
				t.Logf("%s: %d reads, %d writes, %d polls: %d requests; at least %d targets", what, c.reads, c.writes, c.polls, c.all(), least)
				if c.all() > most || least < pods-1 {
					t.Errorf("%+v, at most %d requests wanted; at least %d targets, %d wanted", c, most, least, pods-1)
				}
				row{what: what}.record(t, c)
				w.stop()
			})
		})
	}
}

// any is the address of a pod.
func (d *deployment) any() netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.MinFunc(slices.Collect(maps.Keys(d.pods)), netip.Addr.Compare)
}

// restart makes a pod ready after a while.
func (d *deployment) restart(pod netip.Addr, startup time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pods[pod].made, d.pods[pod].startup = time.Now(), startup
}
