//go:build linux

package packets

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// intoVSwitch collects the routes of a cloud's network into the vSwitch's subnet that existed at
// any time.
type intoVSwitch struct {
	mu    sync.Mutex
	seen  int // all routes that it received
	found []hcloudsim.RouteSeed
}

func (r *intoVSwitch) follow(now hcloudsim.DataPlane) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range now.Networks {
		r.seen += len(n.Routes)
		for _, route := range n.Routes {
			if netip.MustParsePrefix("10.1.0.0/16").Overlaps(route.Destination) && !slices.Contains(r.found, route) {
				r.found = append(r.found, route)
			}
		}
	}
}

func (r *intoVSwitch) expectNone(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen == 0 {
		t.Error("no route was seen, also not to the cloud server's pods")
	}
	for _, route := range r.found {
		t.Errorf("the cloud's network has had a route %s via %s", route.Destination, route.Gateway)
	}
}

// described checks the manager's labels and addresses of the servers' Nodes.
func (v *vSwitch) described(t *testing.T) {
	for m, id := range map[*netlab.Machine]string{
		v.cloud: fmt.Sprintf("hcloud://%d", v.cloud.Server),
		v.one:   fmt.Sprintf("hrobot://%d", v.one.RobotNumber),
		v.two:   fmt.Sprintf("hrobot://%d", v.two.RobotNumber),
	} {
		n, err := v.f.Client.CoreV1().Nodes().Get(t.Context(), m.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: m.Name},
			{Type: corev1.NodeInternalIP, Address: m.Private.String()},
			{Type: corev1.NodeExternalIP, Address: m.Public.IPv4.String()},
		}
		for _, a := range want {
			if !slices.Contains(n.Status.Addresses, a) {
				t.Errorf("%s has the addresses %v, without %v", m.Name, n.Status.Addresses, a)
			}
		}
		pods := netip.MustParsePrefix("10.1.128.0/17")
		if m == v.cloud {
			pods = netip.MustParsePrefix("10.244.0.0/16")
		}
		got := podCIDRs(t, v.f, m.Name)
		if n.Spec.ProviderID != id || !pods.Contains(got[0].Addr()) ||
			!m.Public.IPv6Prefix.Contains(got[1].Addr()) {
			t.Errorf("%s is %s with the podCIDRs %v, want %s, one of %s and one of %s", m.Name, n.Spec.ProviderID, got, id, pods, m.Public.IPv6Prefix)
		}
	}
}

// loadBalancers reach a pod of a dedicated server by either of its addresses, which are targets of
// type ip in the cloud.
func (v *vSwitch) loadBalancers(t *testing.T) {
	local := corev1.ServiceExternalTrafficPolicyLocal
	v.byPrivate = publish(t, v.f, "by-private", "web", local, map[string]string{"load-balancer.hetzner.cloud/use-private-ip": "true"})
	byPublic := publish(t, v.f, "by-public", "web", local, map[string]string{"load-balancer.hetzner.cloud/use-private-ip": "false"})
	for s, want := range map[*published]struct{ target, source netip.Addr }{
		v.byPrivate: {v.one.Private, v.byPrivate.private},
		byPublic:    {v.one.Public.IPv4, byPublic.ipv4},
	} {
		s.awaitHealth(t, "cloud unhealthy, one healthy, two unhealthy")
		if got := v.f.Cloud.HealthyTargets(s.balancer, frontage); len(got) != 1 ||
			got[0].IP != want.target {
			t.Errorf("%s sends to %v, want the target of type ip %s alone", s.name, got, want.target)
		}
		for _, address := range []netip.Addr{s.ipv4, s.ipv6} {
			got, err := ask(t.Context(), v.f.Outside(), address, frontage)
			if want := (visit{pod: "web", peer: want.source}); err != nil || got != want {
				t.Errorf("%s: asking %s gives %v (%v), want %v", s.name, address, got, err, want)
			}
		}
	}
	if err := v.f.Client.CoreV1().Services("default").Delete(t.Context(), byPublic.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// comeAndGo removes one dedicated server, and another joins. Its pods have other addresses: those
// of the first are in quarantine.
func (v *vSwitch) comeAndGo(t *testing.T) {
	left := podCIDRs(t, v.f, "two")
	flow := startFlow(v.f, v.byPrivate.ipv4, v.byPrivate.ipv6)
	defer flow.stop()
	if err := v.two.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "the Node of a server that Robot doesn't have is gone", func() string {
		n, err := v.f.Client.CoreV1().Nodes().Get(t.Context(), "two", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v (%v)", n.Status.Conditions, err)
	})
	v.byPrivate.awaitHealth(t, "cloud unhealthy, one healthy")
	await(t, "its pods' route is gone from its neighbor", func() string {
		return run(t, v.one, "ip", "-4", "route", "show", left[0].String())
	})

	joined := followJoin(t, v.f, "four")
	if err := v.f.AddDedicated(t.Context(), "four"); err != nil {
		t.Fatal(err)
	}
	joined()
	for _, p := range podCIDRs(t, v.f, "four") {
		if p.Overlaps(left[0]) || p.Overlaps(left[1]) {
			t.Errorf("the new server has %s, of %v that pods of another had just now", p, left)
		}
	}
	v.pods[3] = runPods(t, v.f, nil, [2]string{"pod-four", "four"})[0]
	everyPodReachesEveryPod(t, v.pods)
	v.byPrivate.awaitHealth(t, "cloud unhealthy, four unhealthy, one healthy")
	flow.expectMore(t, 20)
	flow.stop()
	flow.expectNoFailure(t, "web")
}
