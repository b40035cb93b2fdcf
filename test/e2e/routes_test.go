package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// While 200 Nodes join, no pod without tolerations could be scheduled on any of them, in any of the
// states that the API server shows, before the Node's own route exists: the scheduler decides by
// taints.
func TestNothingIsScheduledBeforeItsRouteStands(t *testing.T) {
	t.Parallel()
	const count = 200
	c := startWith(t, cluster.Options{
		Cloud: hcloudsim.Options{
			ActionTime: 60 * time.Millisecond, ActionJitter: 60 * time.Millisecond,
			AttachmentLimit: 2 * count, RouteLimit: 2 * count, RateLimit: 1_000_000,
		},
		// With so many kubelets on one small machine, heartbeats are late now and then.
		ControlPlane: controlplane.Options{NodeMonitorGracePeriod: time.Minute},
	})
	seen := watchTaints(t, c)
	startManager(t, c, cluster.ManagerOptions{
		Config: c.CloudConfig() + fmt.Sprintf("routes: {limit: %d}\n", 2*count),
		// The default lease, not the tests' short one: a machine as busy as this can be late by 3
		// s, and a manager that loses its lease exits.
		Args: append(defaultLease(), "--kube-api-qps=200", "--kube-api-burst=300"),
	})
	for i := range count {
		addMachine(t, c, fmt.Sprintf("node-%03d", i))
	}
	eventually(t, 4*time.Minute, "all Nodes are served", allServed(t, c, count))
	// kube-controller-manager removes the last taints at its own pace.
	eventually(t, 3*time.Minute, "all Nodes are open for pods", func(context.Context) (bool, string) {
		open := seen.everOpen()
		return open == count, fmt.Sprintf("%d were seen to be; by their taints there are %v", open, byTaints(nodes(t.Context(), t, c)))
	})
	expectSound(t, c)
	seen.mu.Lock()
	defer seen.mu.Unlock()
	t.Logf("%d states of %d Nodes; %d were Ready with a podCIDR before their route stood", seen.states, len(seen.open), len(seen.early))
	if len(seen.early) == 0 {
		t.Error("no Node was Ready before its route stood: nothing was put to the test")
	}
	for _, what := range seen.wrong {
		t.Error(what)
	}
}

// byTaints counts Nodes by the keys of their taints.
func byTaints(ns []corev1.Node) map[string]int {
	out := map[string]int{}
	for i := range ns {
		keys := ""
		for _, taint := range ns[i].Spec.Taints {
			keys += fmt.Sprintf("%s:%s ", taint.Key, taint.Effect)
		}
		out[keys]++
	}
	return out
}

// sights are the observed states of Nodes in a watch.
type sights struct {
	mu     sync.Mutex
	states int
	open   map[string]bool // ever without a taint that keeps pods away
	early  map[string]bool // ever Ready with a podCIDR and without a route
	wrong  []string
}

func watchTaints(t *testing.T, c *cluster.Cluster) *sights {
	t.Helper()
	s := &sights{open: map[string]bool{}, early: map[string]bool{}}
	watchNodes(t, c, func(node *corev1.Node) { s.look(c, node) })
	return s
}

func (s *sights) everOpen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

func (s *sights) look(c *cluster.Cluster, node *corev1.Node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.states++
	stands := routeStands(c, node)
	if kube.Ready(node) && len(node.Spec.PodCIDRs) > 0 && !stands {
		s.early[node.Name] = true
	}
	keptAway := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute
	})
	if keptAway || node.Spec.Unschedulable {
		return
	}
	s.open[node.Name] = true
	if !stands {
		s.wrong = append(s.wrong, fmt.Sprintf("node %s (version %s) is open for pods, network %s, podCIDRs %v, and has no route",
			node.Name, node.ResourceVersion, network(node), node.Spec.PodCIDRs))
	}
}

func routeStands(c *cluster.Cluster, node *corev1.Node) bool {
	prefixes, err := kube.PodCIDRs(node)
	if err != nil || len(prefixes) == 0 {
		return false
	}
	n, _ := c.Cloud.Network(c.Network.ID)
	for _, r := range n.Routes {
		if r.Destination == prefixes[0].String() {
			via, err := netip.ParseAddr(r.Gateway)
			return err == nil && slices.Contains(kube.InternalIPs(node), via)
		}
	}
	return false
}
