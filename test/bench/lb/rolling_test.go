package lb_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// deployment is a Deployment's pods during a rolling update, a step each half second: pods take a
// while to be ready, and serve for a while after they are asked to terminate.
type deployment struct {
	surge, unavailable int
	minReady           time.Duration // minReadySeconds
	nodes              []corev1.Node

	mu   sync.Mutex
	pods map[netip.Addr]*replica
	made int
}

type replica struct {
	node          string
	updated       bool
	made, deleted time.Time // deleted: zero until the deletion
	startup       time.Duration
}

const (
	replicas    = 20
	stopsAfter  = 15 * time.Second // a preStop hook that gives the load balancer time
	rolloutTick = 500 * time.Millisecond
)

func (r *replica) ready(now time.Time) bool {
	return r.deleted.IsZero() && !now.Before(r.made.Add(r.startup))
}

func (r *replica) serves(now time.Time) bool {
	return r.ready(now) || !r.deleted.IsZero() && now.Before(r.deleted.Add(stopsAfter))
}

func (d *deployment) create(updated bool, startup time.Duration) {
	d.made++
	node := d.nodes[d.made%len(d.nodes)]
	address := netip.MustParsePrefix(node.Spec.PodCIDRs[0]).Addr().As16()
	address[14], address[15] = byte(d.made>>8), byte(d.made)
	d.pods[netip.AddrFrom16(address)] = &replica{
		node: node.Name, updated: updated, made: time.Now(), startup: startup,
	}
}

// step acts as the Deployment's controller and the kubelets, and reports whether all pods are
// updated.
func (d *deployment) step() (done bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(d.pods, func(_ netip.Addr, r *replica) bool {
		return !r.deleted.IsZero() && !now.Before(r.deleted.Add(stopsAfter))
	})
	alive, ready, updated := 0, 0, 0 // ready for long enough
	for _, r := range d.pods {
		if r.deleted.IsZero() {
			alive++
			if r.updated {
				updated++
			}
			if r.ready(now.Add(-d.minReady)) {
				ready++
			}
		}
	}
	for alive < replicas+d.surge && updated < replicas {
		d.create(true, 3*time.Second+time.Duration(d.made%5)*time.Second/2)
		alive, updated = alive+1, updated+1
	}
	for _, a := range slices.SortedFunc(maps.Keys(d.pods), netip.Addr.Compare) {
		if r := d.pods[a]; r.deleted.IsZero() && !r.updated && ready > replicas-d.unavailable &&
			r.ready(now.Add(-d.minReady)) {
			r.deleted = now
			ready--
		}
	}
	return updated == replicas && alive == replicas && ready == replicas && len(d.pods) == replicas
}

// slice is the EndpointSlice of these pods.
func (d *deployment) slice() *discoveryv1.EndpointSlice {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, port, name := time.Now(), int32(8080), "web"
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv6,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	for _, a := range slices.SortedFunc(maps.Keys(d.pods), netip.Addr.Compare) {
		r := d.pods[a]
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.String()}, NodeName: &r.node,
			Conditions: discoveryv1.EndpointConditions{
				Ready: new(r.ready(now)), Serving: new(r.serves(now)), Terminating: new(!r.deleted.IsZero()),
			},
		})
	}
	return s
}

// serving counts those that would reply now.
func (d *deployment) serving(targets []hcloudsim.PlaneTarget) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range targets {
		if r := d.pods[t.Address]; r != nil && r.serves(time.Now()) {
			n++
		}
	}
	return n
}

// A rolling update of 20 pods that are targets themselves: its cost in requests, and how many
// targets serve at each moment. One pod after the other is the most expensive way, because each
// costs a read of its own.
func TestRollingUpdateOfTargets(t *testing.T) {
	for _, c := range []struct {
		what               string
		surge, unavailable int
		minReady, actions  time.Duration
		most, least        int // requests; targets that serve
	}{
		{"a rolling update of 20 pods that are targets, 25% at a time", 5, 5, 0, 300 * time.Millisecond, 60, replicas - 5},
		{"a rolling update of 20 pods that are targets, none unavailable", 5, 0, 0, 300 * time.Millisecond, 60, replicas},
		{"a rolling update of 20 pods that are targets, none unavailable, ready for 20 s, actions of 1 s", 5, 0, 20 * time.Second, time.Second, 100, replicas},
		{"a rolling update of 20 pods that are targets, one at a time", 1, 0, 0, 300 * time.Millisecond, 100, replicas},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &deployment{
					surge: c.surge, unavailable: c.unavailable, minReady: c.minReady,
					pods: map[netip.Addr]*replica{},
				}
				var mu sync.Mutex
				least, watching := replicas, false
				options := hcloudsim.Options{ActionTime: c.actions, Latency: 20 * time.Millisecond}
				options.OnChange = func(plane hcloudsim.DataPlane) {
					mu.Lock()
					defer mu.Unlock()
					if watching {
						least = min(least, d.serving(plane.LoadBalancers[0].Targets))
					}
				}
				w := newWorld(t, options)
				w.defaults.OwnPools = true
				for i := range 5 {
					w.addNode(fmt.Sprint("node-", i))
				}
				w.giveOwnPrefixes(d)
				for range replicas {
					d.create(false, 0)
				}
				_, err := w.api.DiscoveryV1().EndpointSlices("default").Create(w.ctx, d.slice(), metav1.CreateOptions{})
				w.must(err)
				w.addPodService("web")
				w.start()
				time.Sleep(time.Minute)
				synctest.Wait()
				for w.spent().reads == 0 { // so that no periodic read is counted
					time.Sleep(time.Second)
					synctest.Wait()
				}
				if n := d.serving(w.sim.DataPlane().LoadBalancers[0].Targets); n != replicas {
					t.Fatalf("%d targets before the update", n)
				}
				mu.Lock()
				watching = true
				mu.Unlock()
				begun, was := time.Now(), d.slice()
				for done := false; !done; {
					done = d.step()
					if s := d.slice(); fmt.Sprint(s) != fmt.Sprint(was) {
						_, err := w.api.DiscoveryV1().EndpointSlices("default").Update(w.ctx, s, metav1.UpdateOptions{})
						w.must(err)
						was = s
					}
					time.Sleep(rolloutTick)
					synctest.Wait()
					if time.Since(begun) > 10*time.Minute {
						t.Fatal("the update does not end")
					}
				}
				took := time.Since(begun)
				time.Sleep(20 * time.Second)
				synctest.Wait()
				spent := w.spent()
				targets := w.sim.DataPlane().LoadBalancers[0].Targets
				t.Logf("%s: %d reads, %d writes, %d polls: %d requests in %s; at least %d targets served", c.what, spent.reads, spent.writes, spent.polls, spent.all(), took, least)
				if spent.all() > c.most || least < c.least || len(targets) != replicas ||
					d.serving(targets) != replicas {
					t.Errorf("%d requests, at most %d wanted; at least %d of the targets served, %d wanted; %d targets in the end", spent.all(), c.most, least, c.least, len(targets))
				}
				row{what: c.what}.record(t, spent)
				w.stop()
			})
		})
	}
}

// giveOwnPrefixes assigns each Node a prefix of its server's own /64.
func (w *world) giveOwnPrefixes(d *deployment) {
	w.t.Helper()
	for _, s := range w.sim.Servers() {
		node, err := w.api.CoreV1().Nodes().Get(w.ctx, s.Name, metav1.GetOptions{})
		w.must(err)
		own := netip.MustParsePrefix(s.PublicNet.IPv6.IP).Addr().As16()
		own[9] = 1
		node.Spec.PodCIDRs = []string{netip.PrefixFrom(netip.AddrFrom16(own), 80).String()}
		node, err = w.api.CoreV1().Nodes().Update(w.ctx, node, metav1.UpdateOptions{})
		w.must(err)
		d.nodes = append(d.nodes, *node)
	}
}

// addPodService creates a Service whose pods are the targets.
func (w *world) addPodService(name string) {
	w.t.Helper()
	_, err := w.api.CoreV1().Services("default").Create(w.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-of-" + name),
			Annotations: map[string]string{lb.AnnotationTargets: "pods", lb.AnnotationType: "lb21"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv6Protocol},
			AllocateLoadBalancerNodePorts: new(bool),
			Ports: []corev1.ServicePort{
				{Name: "web", Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(8080)},
			},
		},
	}, metav1.CreateOptions{})
	w.must(err)
}
