package controller_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/controller"
)

// A load balancer that is kept although its Service is not served any more still reaches its pods.
func TestKeptLoadBalancerReachesItsPods(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		kept := w.openings()
		w.stop()
		w.defaults.Classless = false
		w.start()
		w.later()
		if kept == "" || w.openings() != kept || len(w.targets()) != 1 {
			t.Errorf("targets %v, opened:\n%s\nwant:\n%s", w.targets(), w.openings(), kept)
		}
	})
}

// A pod that becomes ready while it is being removed becomes a target again.
func TestPodIsReadyAgainWhileItIsRemoved(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		both := map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 1): "ready"}
		p.are(both)
		w.create(podService())
		back := false
		w.cloud.watch = func(op lb.Op) {
			if _, removes := op.(lb.RemoveTarget); removes && !back {
				back = true
				p.states = both
				p.publish()
				time.Sleep(time.Second)
			}
		}
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		for range 5 {
			w.settle()
		}
		if got := w.targets(); !back || !slices.Equal(got, []lb.Target{podAt(1, 1), podAt(2, 1)}) {
			t.Errorf("targets %v", got)
		}
	})
}

// The pods of a refused Service become targets again after there were none.
func TestRefusedServiceGetsItsPodsBack(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		p.are(nil)
		w.edit("web", func(s *corev1.Service) { s.Annotations[lb.HetznerPrefix+"use-private-ip"] = "true" })
		w.cloud.counts()
		p.are(map[lb.Target]string{podAt(2, 1): "ready"})
		w.expect("pods again", "add pod 2001:db8:102:0:1::1 on server 2")
		if !strings.Contains(w.openings(), "[2001:db8:102:0:1::1]:8080") {
			t.Errorf("opened:\n%s", w.openings())
		}
	})
}

// Pods stay up to date as targets while the annotation for targets is invalid.
func TestPodsFollowWhileTargetsAreMisspelled(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		w.edit("web", func(s *corev1.Service) { s.Annotations[lb.AnnotationTargets] = "pod" })
		w.cloud.watch = func(op lb.Op) {
			if _, adds := op.(lb.AddTarget); adds && !strings.Contains(w.openings(), "[2001:db8:102:0:1::1]:8080") {
				t.Errorf("%s, and opened is:\n%s", op, w.openings())
			}
		}
		w.cloud.counts()
		p.are(map[lb.Target]string{podAt(2, 1): "ready"})
		if _, writes := w.cloud.counts(); !slices.Equal(w.targets(), []lb.Target{podAt(2, 1)}) {
			t.Errorf("targets %v after %v", w.targets(), writes)
		}
	})
}

// The load balancer of a Service that may not share another one follows its pods, and its nodes
// admit it, also after a restart.
func TestServiceThatMayNotShareKeepsItsPodsUpToDate(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		p.are(map[lb.Target]string{podAt(1, 1): "ready"})
		w.create(podService())
		w.edit("web", func(s *corev1.Service) { s.Annotations[lb.AnnotationShared] = "team" })
		w.settle()
		w.restart()
		w.later()
		p.are(map[lb.Target]string{podAt(2, 1): "ready"})
		w.later()
		if got := w.targets(); !slices.Equal(got, []lb.Target{podAt(2, 1)}) || !strings.Contains(w.openings(), "[2001:db8:102:0:1::1]:8080") || strings.Contains(w.openings(), "node-1") {
			t.Errorf("targets %v, opened:\n%s", got, w.openings())
		}
		w.edit("web", func(s *corev1.Service) {
			delete(s.Annotations, lb.AnnotationTargets)
			s.Spec.Ports[0].NodePort = 30080
		})
		w.later()
		if w.openings() != "" {
			t.Errorf("nodes are shared, and opened is:\n%s", w.openings())
		}
	})
}

// A survey without the load balancer has no note about node ports that aren't needed.
func TestSurveyOfPods(t *testing.T) {
	pod, name, port := podAt(1, 1), "web", int32(8080)
	slice := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv6,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
		Endpoints:   []discoveryv1.Endpoint{endpoint(pod.Address.String(), "node-1", "pod", "ready")},
	}
	defaults := lb.Defaults{Cluster: "demo", Location: "fsn1", Classless: true, OwnPools: true}
	svc := podService()
	survey := controller.Survey{
		Services: []*corev1.Service{svc}, Nodes: []*corev1.Node{podNode(1)}, Defaults: defaults,
		Now: time.Now(),
		Slices: func(*corev1.Service) []*discoveryv1.EndpointSlice {
			return []*discoveryv1.EndpointSlice{slice}
		},
	}
	s := survey.Balancer(controller.KeyOf(svc, defaults))
	if _, notes := s.For(svc); s.Plan.Refused || len(notes) > 0 ||
		!slices.Equal(s.Plan.Spec.Targets, []lb.Target{pod}) {
		t.Errorf("refused: %t, targets %v, notes %v", s.Plan.Refused, s.Plan.Spec.Targets, notes)
	}
}
