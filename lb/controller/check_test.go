package controller_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// endpoints says on which nodes a Service has endpoints that are ready.
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
			discoveryv1.Endpoint{NodeName: &nodes[i], Conditions: discoveryv1.EndpointConditions{Ready: &yes}})
	}
	other := "node-2"
	slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{NodeName: &other, Conditions: discoveryv1.EndpointConditions{Ready: &no}})
	_, err := slices.Update(context.Background(), slice, metav1.UpdateOptions{})
	if err != nil {
		_, err = slices.Create(context.Background(), slice, metav1.CreateOptions{})
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

// healthy sets what the cloud's checks say of every listener's targets.
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
	svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyLocal, 32000
}

const (
	byPolicy = "update listener 80 → 30080, http :32000/healthz every 10s, timeout 15s, 3 tries"
	byProxy  = "update listener 80 → 30080, http :10256/healthz every 10s, timeout 15s, 3 tries"
)

// A change of health checks that leaves no healthy node is taken back, also by another process than
// the one that made it, is not made again, and is tried again when the user asks for that.
func TestCheckThatLeavesNobodyIsRolledBack(t *testing.T) {
	for name, restart := range map[string]bool{"one process": false, "killed in between": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(2), func(w *world) {
				w.endpoints("web", "node-1")
				w.create(service("web"))
				w.healthy(2, 0)
				w.cloud.counts()
				w.edit("web", toLocal)
				w.expect("policy Local", byPolicy)
				if restart {
					w.restart()
				}
				w.healthy(0, 2)
				time.Sleep(2 * time.Minute)
				w.settle()
				w.expect("nobody is healthy", byProxy)
				if got := accepted(w.service("web")); got != "False HealthCheckRolledBack" {
					t.Errorf("accepted %s", got)
				}
				if events := strings.Join(w.said(), "\n"); strings.Count(events, "HealthCheckRolledBack") != 1 || !strings.Contains(events, ":32000/healthz") {
					t.Errorf("Events:\n%s", events)
				}

				w.healthy(2, 0)
				w.later()
				w.restart()
				w.later()
				w.expect("after that")
				if events := w.said(); len(events) != 0 {
					t.Errorf("announced again: %q", events)
				}

				w.edit("web", func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationState) })
				w.expect("tried again", byPolicy)
				w.later()
				w.expect("this time it is good")
				if svc := w.service("web"); svc.Annotations[lb.AnnotationState] != "" || accepted(svc) != "True Accepted" {
					t.Errorf("remembered %q, accepted %s", svc.Annotations[lb.AnnotationState], accepted(svc))
				}
			})
		})
	}
}

// What is remembered of one Service's checks says nothing of another's that was made from its
// manifest, nor does what names no Service.
func TestCopiedMemoryIsNotBelieved(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.endpoints("web", "node-1")
		w.create(service("web"))
		w.healthy(2, 0)
		w.edit("web", toLocal)
		w.healthy(0, 2)
		time.Sleep(2 * time.Minute)
		w.settle()
		remembered := w.service("web").Annotations[lb.AnnotationState]
		if !strings.Contains(remembered, `"refused"`) {
			t.Fatalf("remembered %q", remembered)
		}
		for name, text := range map[string]string{"copy": remembered, "nameless": strings.Replace(remembered, `"of":"web-uid",`, "", 1)} {
			svc := service(name)
			toLocal(svc)
			svc.Annotations[lb.AnnotationState] = text
			w.create(svc)
		}
		w.later()
		w.restart()
		for _, b := range w.cloud.all() {
			if ours := b.Services()[0] == "web-uid"; ours != (b.Listeners[0].Check.Port == 10256) {
				t.Errorf("%s is checked by %s", b.Services()[0], b.Listeners[0].Check)
			}
		}
		for _, name := range []string{"copy", "nameless"} {
			if svc := w.service(name); svc.Annotations[lb.AnnotationState] != "" || accepted(svc) != "True Accepted" {
				t.Errorf("%s: remembered %q, accepted %s", name, svc.Annotations[lb.AnnotationState], accepted(svc))
			}
		}
		if again := w.service("web").Annotations[lb.AnnotationState]; again != remembered {
			t.Errorf("remembered %q, was %q", again, remembered)
		}
	})
}

// Nobody can be healthy where there are no endpoints: the check tells the truth.
func TestCheckOfAServiceWithoutEndpointsStays(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		w.healthy(2, 0)
		w.cloud.counts()
		w.edit("web", toLocal)
		w.healthy(0, 2)
		w.later()
		w.expect("policy Local", byPolicy)
		if svc := w.service("web"); svc.Annotations[lb.AnnotationState] != "" || accepted(svc) != "True Accepted" {
			t.Errorf("remembered %q, accepted %s", svc.Annotations[lb.AnnotationState], accepted(svc))
		}
	})
}

// With policy Local the nodes with ready endpoints are targets where there is no room for all.
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
		if events := w.said(); len(events) != 1 || !strings.Contains(events[0], "TargetsTruncated") || !strings.Contains(events[0], "25 of 30 nodes") {
			t.Errorf("Events %q, want one with both numbers", events)
		}
		w.cloud.counts()
		w.endpoints("web", "node-28", "node-30", "node-1")
		w.expect("endpoints move", "remove server 29", "add server 28")
		w.endpoints("web", "node-28", "node-1", "node-30")
		if reads, writes := w.cloud.counts(); reads+len(writes) != 0 {
			t.Errorf("the same nodes in another order: %d reads, changes %q", reads, writes)
		}
		w.said()
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-31", 31), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if events := w.said(); len(events) != 0 {
			t.Errorf("one node more is news: %q", events)
		}
	})
	// With room for all, and with policy Cluster, endpoints are the health checks' business.
	for _, policy := range []corev1.ServiceExternalTrafficPolicy{corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal} {
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

// The request that puts the old check back fails. What is there then is the check that leaves
// nobody, so it is put back with the next try, by this process or another.
func TestARollBackThatFailsIsTriedAgain(t *testing.T) {
	for name, restart := range map[string]bool{"one process": false, "killed in between": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(2), func(w *world) {
				w.endpoints("web", "node-1")
				w.create(service("web"))
				w.healthy(2, 0)
				w.edit("web", toLocal)
				w.healthy(0, 2)
				w.cloud.setFault(func(op lb.Op) error {
					if _, update := op.(lb.UpdateListener); update {
						return errors.New("503")
					}
					return nil
				})
				time.Sleep(2 * time.Minute)
				w.settle()
				w.cloud.counts()
				w.cloud.setFault(nil)
				if restart {
					w.restart()
				}
				w.later()
				w.expect("the cloud answers again", byProxy)
			})
		})
	}
}

// A target that never gets to be healthy or unhealthy doesn't turn a check that leaves nobody into
// a good one.
func TestATargetThatNeverAnswersDoesNotKeepABadCheck(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.endpoints("web", "node-1")
		w.create(service("web"))
		w.healthy(2, 0)
		w.edit("web", toLocal)
		for _, s := range w.cloud.all() {
			w.cloud.change(s.ID, func(s *lb.State) {
				for port := range s.Verdicts {
					s.Verdicts[port] = verdicts(s.Targets, 0, 1)
				}
			})
		}
		w.cloud.counts()
		time.Sleep(10 * time.Minute)
		w.settle()
		w.expect("nobody is healthy", byProxy)
	})
}

// The port on which kube-proxy answered for policy Local is gone with it: a roll-back to it would
// leave nobody.
func TestRollBackToACheckThatAnswers(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.endpoints("web", "node-1")
		svc := service("web")
		toLocal(svc)
		w.create(svc)
		w.healthy(1, 1)
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) {
			svc.Spec.ExternalTrafficPolicy, svc.Spec.HealthCheckNodePort = corev1.ServiceExternalTrafficPolicyCluster, 0
		})
		w.expect("policy Cluster", byProxy)
		w.healthy(0, 2)
		time.Sleep(2 * time.Minute)
		w.settle()
		w.expect("nobody is healthy", "update listener 80 → 30080, tcp :30080 every 10s, timeout 15s, 3 tries")
		w.healthy(2, 0)
		w.later()
		w.restart()
		w.expect("after that")
	})
}

// What the cloud refuses for good is asked for once in a drift period.
func TestRefusedCheckIsNotAskedForAllTheTime(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		svc := service("web")
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "tls", Port: 443, Protocol: "TCP", NodePort: 30443})
		w.create(svc)
		w.healthy(2, 0)
		w.cloud.setFault(func(op lb.Op) error {
			if update, ok := op.(lb.UpdateListener); ok && update.Listener.Port == 443 {
				return &lb.RejectedError{Code: "invalid_input", Message: "health_check"}
			}
			return nil
		})
		w.cloud.counts()
		w.edit("web", toLocal)
		time.Sleep(time.Hour)
		w.settle()
		if _, writes := w.cloud.counts(); len(writes) < 10 || len(writes) > 15 {
			t.Errorf("%d writes in an hour: %q", len(writes), writes)
		}
		if got := w.service("web"); accepted(got) != "False Rejected" || w.cloud.all()[0].Listeners[0].Check.Port != 32000 {
			t.Errorf("accepted %s, cloud:\n%s", accepted(got), w.cloud)
		}
	})
}
