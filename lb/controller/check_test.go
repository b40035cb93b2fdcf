package controller_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// endpoints sets the nodes on which a Service has ready endpoints.
func (w *world) endpoints(service string, nodes ...string) {
	w.t.Helper()
	slices := w.api.DiscoveryV1().EndpointSlices("default")
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "default", Name: service + "-1", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	yes, no := true, false
	for i := range nodes {
		slice.Endpoints = append(slice.Endpoints,
			discoveryv1.Endpoint{
				NodeName: &nodes[i], Conditions: discoveryv1.EndpointConditions{Ready: &yes},
			})
	}
	other := "node-2"
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
		NodeName: &other, Conditions: discoveryv1.EndpointConditions{Ready: &no},
	})
	_, err := slices.Update(context.Background(), slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = slices.Create(context.Background(), slice, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// healthy sets the cloud's verdicts on every listener's targets.
func (w *world) healthy(healthy, unhealthy int) {
	for _, s := range w.cloud.all() {
		w.cloud.change(s.ID, func(s *lb.State) {
			s.Verdicts = map[int]map[lb.Target]lb.Verdict{}
			for _, l := range s.Listeners {
				s.Verdicts[l.Port] = verdicts(s.Targets, healthy, unhealthy)
			}
		})
	}
}

func toLocal(svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.HealthCheckNodePort = 32000
}

const (
	byPolicy = "update listener 80 → 30080, http :32000/healthz every 10s, timeout 15s, 3 tries"
	byProxy  = "update listener 80 → 30080, http :10256/healthz every 10s, timeout 15s, 3 tries"
)

// With policy Local, nodes with ready endpoints are targets first if there is no room for all.
func TestNodesWithEndpointsComeFirst(t *testing.T) {
	targets := func(w *world) (ids []int64) {
		for _, target := range w.cloud.all()[0].Targets {
			ids = append(ids, target.Server)
		}
		return ids
	}
	inWorld(t, newCloud(), nodes(30), func(w *world) {
		svc := service("web")
		toLocal(svc)
		w.endpoints("web", "node-29", "node-30")
		w.create(svc)
		if got := targets(w); len(got) != 25 || got[23] != 29 || got[24] != 30 {
			t.Errorf("targets %v, want 29 and 30 among 25", got)
		}
		if events := w.message(); len(events) != 1 || !strings.Contains(events[0], "TargetsTruncated") || !strings.Contains(events[0], "25 of 30 nodes") {
			t.Errorf("Events %q, want one with both numbers", events)
		}
		w.cloud.counts()
		w.endpoints("web", "node-28", "node-30", "node-1")
		w.expect("endpoints move", "remove server 29", "add server 28")
		w.endpoints("web", "node-28", "node-1", "node-30")
		if reads, writes := w.cloud.counts(); reads+len(writes) != 0 {
			t.Errorf("the same nodes in another order: %d reads, changes %q", reads, writes)
		}
		w.message()
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-31", 31), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if events := w.message(); len(events) != 0 {
			t.Errorf("one node more is news: %q", events)
		}
	})
	// With room for all, or with policy Cluster, endpoints don't affect the targets.
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{
		corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal,
	} {
		inWorld(t, newCloud(), nodes(5), func(w *world) {
			svc := service("web")
			svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = policy, 32000
			w.create(svc)
			w.cloud.counts()
			w.endpoints("web", "node-1")
			w.endpoints("web", "node-3")
			if reads, writes := w.cloud.counts(); reads+len(writes) != 0 {
				t.Errorf("%s: %d reads, changes %q", policy, reads, writes)
			}
		})
	}
}
