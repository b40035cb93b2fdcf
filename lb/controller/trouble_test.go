package controller_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics/testutil"

	"github.com/underlay-ccm/underlay/lb"
)

func TestRefusedService(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		svc := service("web")
		svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		svc.Annotations[lb.AnnotationType] = "lb 11"
		svc.Annotations[lb.AnnotationNodeSelector] = "==="
		w.create(svc)
		got := w.service("web")
		if accepted(got) != "False InvalidField" || len(got.Finalizers) != 0 || len(w.cloud.all()) != 0 {
			t.Errorf("accepted %s, finalizers %v, %d load balancers", accepted(got), got.Finalizers, len(w.cloud.all()))
		}
		events := strings.Join(w.message(), "\n")
		for _, want := range []string{
			"Warning UnsupportedField spec.loadBalancerSourceRanges=\"192.0.2.0/24\"", "Warning InvalidField " + lb.AnnotationType,
			"Warning InvalidField " + lb.AnnotationNodeSelector,
		} {
			if strings.Count(events, want) != 1 {
				t.Errorf("want once %q in:\n%s", want, events)
			}
		}

		w.later()
		w.restart()
		w.edit("web", func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationType) })
		if again := w.message(); len(again) != 0 {
			t.Errorf("causes that were announced are announced again: %v", again)
		}

		w.edit("web", func(svc *corev1.Service) {
			delete(svc.Annotations, lb.AnnotationNodeSelector)
			svc.Spec.LoadBalancerSourceRanges = nil
		})
		if got := w.service("web"); accepted(got) != "True Accepted" || ingress(got) == "" {
			t.Errorf("mended: accepted %s, addresses %q", accepted(got), ingress(got))
		}
	})
}

// A Service that becomes invalid keeps its load balancer unchanged.
func TestRefusedLater(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		before, addresses := w.cloud.String(), ingress(w.service("web"))
		w.edit("web", func(svc *corev1.Service) {
			svc.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey] = "192.0.2.0/24, 198.51.100.0/24"
			svc.Spec.Ports[0].Port = 81
		})
		got := w.service("web")
		if accepted(got) != "False UnsupportedField" || w.cloud.String() != before || ingress(got) != addresses {
			t.Errorf("accepted %s, addresses %q, cloud:\n%s", accepted(got), ingress(got), w.cloud)
		}
		w.delete("web")
		if len(w.cloud.all()) != 0 || len(w.service("web").Finalizers) != 0 {
			t.Error("a refused Service cannot be deleted")
		}
	})
}

func TestNameOfAnotherOwner(t *testing.T) {
	foreign := lb.State{ID: 17, Name: "shared", Type: "lb11", Labels: map[string]string{"underlay.dev/cluster": "another", "underlay.dev/svc-web-uid": ""}}
	inWorld(t, newCloud(foreign), nodes(1), func(w *world) {
		before := w.cloud.String()
		for _, name := range []string{"web", "api"} {
			svc := service(name)
			svc.Annotations[lb.AnnotationName] = "shared"
			w.create(svc)
		}
		w.later()
		w.later()
		events := w.message()
		for _, name := range []string{"web", "api"} {
			if got := accepted(w.service(name)); got != "False LoadBalancerNotOwned" {
				t.Errorf("%s: accepted %s", name, got)
			}
		}
		if len(events) != 2 || !strings.Contains(events[0], "LoadBalancerNotOwned") || !strings.Contains(events[0], `"shared"`) {
			t.Errorf("got Events %q, want one for each Service, with the name", events)
		}
		w.delete("web")
		if w.cloud.String() != before {
			t.Errorf("somebody else's load balancer changed:\n%s\n%s", before, w.cloud)
		}
		w.edit("api", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationName] = "mine" })
		if got := accepted(w.service("api")); got != "True Accepted" {
			t.Errorf("with a name of its own: accepted %s", got)
		}
	})
}

func TestOneBadTarget(t *testing.T) {
	inWorld(t, newCloud(), nodes(3), func(w *world) {
		w.cloud.setFault(func(op lb.Op) error {
			bad := func(id int64) error {
				if id == 2 {
					return &lb.RejectedError{Code: "resolve_cloud_private_targets_error", Message: "server 2 is not in the network", Target: true}
				}
				return nil
			}
			switch op := op.(type) {
			case lb.Create:
				for _, target := range op.Spec.Targets {
					if err := bad(target.Server); err != nil {
						return err
					}
				}
			case lb.AddTarget:
				return bad(op.Target.Server)
			}
			return nil
		})
		w.create(service("web"))
		all := w.cloud.all()
		if len(all) != 1 || len(all[0].Targets) != 2 || ingress(w.service("web")) == "" || accepted(w.service("web")) != "False Rejected" {
			t.Errorf("accepted %s, addresses %q, cloud:\n%s", accepted(w.service("web")), ingress(w.service("web")), w.cloud)
		}
		if text := w.service("web").Status.Conditions[0].Message; !strings.HasPrefix(text, "Node node-2: add server 2: ") {
			t.Errorf("the refusal %q does not begin with the Node", text)
		}
		w.cloud.setFault(nil)
		time.Sleep(30 * time.Second) // it is retried soon
		w.settle()
		if all := w.cloud.all(); len(all[0].Targets) != 3 || accepted(w.service("web")) != "True Accepted" {
			t.Errorf("accepted %s, cloud:\n%s", accepted(w.service("web")), w.cloud)
		}
	})
}

func TestFailuresPass(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.cloud.setFault(func(lb.Op) error { return errors.New("the cloud is unreachable") })
		w.create(service("web"))
		if events := w.message(); len(events) != 0 {
			t.Errorf("one failure is announced: %v", events)
		}
		time.Sleep(2 * time.Minute)
		w.settle()
		if events := w.message(); len(events) != 1 || !strings.Contains(events[0], "Warning SyncLoadBalancerFailed") {
			t.Errorf("got Events %v, want one SyncLoadBalancerFailed", events)
		}
		if got := accepted(w.service("web")); got != "Unknown Pending" {
			t.Errorf("accepted %s, want Unknown Pending", got)
		}
		w.cloud.setFault(nil)
		w.later()
		if got := accepted(w.service("web")); got != "True Accepted" || len(w.cloud.all()) != 1 {
			t.Errorf("accepted %s, %d load balancers", got, len(w.cloud.all()))
		}
		if failed := w.counter("underlay_lb_syncs_total", "failed"); failed < 3 {
			t.Errorf("%v failed reconciliations counted, want at least 3", failed)
		}
	})
}

// A change that fails for hours is reported again before its Event expires: the condition is still
// about the former state.
func TestLastingFailuresAreReportedAgain(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		w.cloud.setFault(func(lb.Op) error { return errors.New("the cloud is unreachable") })
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30081 })
		for hour := range 6 {
			time.Sleep(time.Hour)
			w.settle()
			if events := w.message(); len(events) == 0 || len(events) > 4 || !strings.Contains(events[0], "SyncLoadBalancerFailed") {
				t.Errorf("hour %d: Events %q", hour, events)
			}
		}
	})
}

func (w *world) counter(name, result string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name &&
				(result == "" || testutil.LabelsMatch(m, map[string]string{"result": result})) {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestDriftIsRepaired(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		w.later()
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30081 })
		w.later()
		if n := w.counter("underlay_lb_drifted_total", ""); n != 0 {
			t.Errorf("%v drifts counted after an edit of the Service", n)
		}
		want := w.cloud.String()
		id := w.cloud.all()[0].ID
		w.cloud.change(id, func(s *lb.State) {
			s.Targets, s.Algorithm, s.Listeners = nil, lb.LeastConnections, append(s.Listeners, lb.Listener{Port: 22, DestinationPort: 22, Protocol: "tcp"})
		})
		w.later()
		if got := w.cloud.String(); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
		if n := w.counter("underlay_lb_drifted_total", ""); n != 1 {
			t.Errorf("%v drifts counted, want 1", n)
		}

		addresses := ingress(w.service("web"))
		w.edit("web", func(svc *corev1.Service) { svc.Status.LoadBalancer.Ingress = nil })
		w.later()
		if got := ingress(w.service("web")); got != addresses {
			t.Errorf("a status emptied by others is %q, want %q", got, addresses)
		}

		state := w.cloud.all()[0]
		if err := w.cloud.Apply(w.t.Context(), state, lb.Delete{}); err != nil {
			t.Fatal(err)
		}
		w.later()
		if all := w.cloud.all(); len(all) != 1 || ingress(w.service("web")) == addresses {
			t.Errorf("deleted by others: %d load balancers, addresses %s", len(all), ingress(w.service("web")))
		}
	})
}

func TestProtectedLoadBalancer(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		id := w.cloud.all()[0].ID
		w.cloud.protect(id, true)
		w.message()
		w.delete("web")
		w.later()
		if got := w.service("web"); len(got.Finalizers) != 1 || accepted(got) != "False Rejected" {
			t.Errorf("finalizers %v, accepted %s: a protected load balancer was left behind silently", got.Finalizers, accepted(got))
		}
		if events := w.message(); len(events) != 1 || !strings.Contains(events[0], "protected") {
			t.Errorf("got Events %v, want one that names the protection", events)
		}
		w.cloud.protect(id, false)
		w.later()
		if len(w.service("web").Finalizers) != 0 || len(w.cloud.all()) != 0 {
			t.Error("still there without protection")
		}
	})
}

func TestMoreNodesThanTheTypeHolds(t *testing.T) {
	inWorld(t, newCloud(), nodes(30), func(w *world) {
		w.create(service("web"))
		if got := accepted(w.service("web")); len(w.cloud.all()[0].Targets) != 25 || got != "False TargetsTruncated" {
			t.Errorf("%d targets, accepted %s", len(w.cloud.all()[0].Targets), got)
		}
		if events := w.message(); len(events) != 1 || !strings.Contains(events[0], "only 25 nodes") {
			t.Errorf("got Events %v, want one with the limit", events)
		}
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationType] = "lb21" })
		if got := accepted(w.service("web")); len(w.cloud.all()[0].Targets) != 30 || got != "True Accepted" {
			t.Errorf("larger: %d targets, accepted %s", len(w.cloud.all()[0].Targets), got)
		}
	})
}

// Edits in any order, with failures and restarts in between, end like a new creation, and there is
// never a second load balancer.
func TestAnyScheduleEndsTheSame(t *testing.T) {
	for seed := range uint64(40 / slowdown) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			fresh := ""
			inWorld(t, newCloud(), nodes(3), func(w *world) {
				svc := service("web")
				last(svc)
				w.create(svc)
				fresh = w.cloud.String()
			})
			inWorld(t, newCloud(), nodes(3), func(w *world) {
				luck := rand.New(rand.NewPCG(seed, 1)) // a separate source: the workers draw from it
				w.cloud.setFault(func(op lb.Op) error {
					if luck.IntN(3) == 0 {
						return fmt.Errorf("no luck with %s", op)
					}
					return nil
				})
				w.create(service("web"))
				for range 8 {
					randomStep(w, r)
				}
				w.cloud.setFault(nil)
				w.edit("web", last)
				w.later()
				if got := w.cloud.String(); got != fresh || len(w.cloud.all()) != 1 {
					t.Errorf("got\n%swant\n%s", got, fresh)
				}
				if got := accepted(w.service("web")); got != "True Accepted" {
					t.Errorf("accepted %s", got)
				}
			})
		})
	}
}

func last(svc *corev1.Service) {
	svc.Annotations = map[string]string{lb.AnnotationName: "last", lb.HetznerPrefix + "use-private-ip": "true"}
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.HealthCheckNodePort = 32000
	svc.Spec.Ports = []corev1.ServicePort{{Name: "tls", Port: 443, Protocol: corev1.ProtocolTCP, NodePort: 30443}}
}

func randomStep(w *world, r *rand.Rand) {
	flip := func() string { return fmt.Sprint(r.IntN(2) == 0) }
	steps := []func(){
		func() {
			w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationName] = fmt.Sprint("name-", r.IntN(2)) })
		},
		func() {
			w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"use-private-ip"] = flip() })
		},
		func() {
			w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationType] = fmt.Sprintf("lb%d1", 1+r.IntN(3)) })
		},
		func() { w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = int32(80 + r.IntN(3)) }) },
		func() {
			w.edit("web", func(svc *corev1.Service) {
				svc.Spec.Type = []corev1.ServiceType{
					corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer,
				}[r.IntN(2)]
			})
		},
		func() {
			w.editNode("node-1", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = flip() })
			w.editNode("node-1", func(n *corev1.Node) { delete(n.Labels, corev1.LabelNodeExcludeBalancers) })
		},
		w.restart,
		w.later,
	}
	steps[r.IntN(len(steps))]()
}

// A network that is deleted and recreated under its name is another one to the cloud, and load
// balancers join it.
func TestNetworkCreatedAgain(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.stop()
		var now atomic.Int64
		now.Store(7)
		w.network = now.Load
		w.start()
		svc := service("web")
		toPrivate(svc)
		w.create(svc)
		now.Store(8)
		w.cloud.change(w.cloud.all()[0].ID, func(s *lb.State) { s.Network, s.Targets = 0, nil })
		w.cloud.counts()
		w.later()
		w.expect("created again", "attach to network 8", "add server 1 (private)", "add server 2 (private)")
	})
}
