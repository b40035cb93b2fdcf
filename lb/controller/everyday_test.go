package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// These tests cover changes that users make every week, which must cost neither traffic nor many
// requests.

// after lets time pass, and returns the number of requests.
func (w *world) after(d time.Duration) (requests int) {
	w.t.Helper()
	w.requests()
	w.cloud.counts()
	time.Sleep(d)
	w.settle()
	reads, writes := w.requests()
	return reads + writes
}

// A release with pods that pass its new check only after minutes ends with the new check.
func TestAReleaseChangesTheCheck(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		svc := service("web")
		svc.Annotations[lb.HetznerPrefix+"health-check-protocol"] = "http"
		svc.Annotations[lb.HetznerPrefix+"health-check-http-path"] = "/old"
		w.create(svc)
		w.healthy(2, 0)
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-http-path"] = "/new" })
		w.healthy(0, 2)
		time.Sleep(3 * time.Minute)
		w.settle()
		if message := strings.Join(w.message(), "\n"); !strings.Contains(message, "NoHealthyTarget") || !strings.Contains(message, "/new") {
			t.Errorf("Events do not name the check that nothing answers:\n%s", message)
		}
		w.healthy(2, 0)
		w.later()
		if check := w.cloud.all()[0].Listeners[0].Check; check.Path != "/new" || accepted(w.service("web")) != "True Accepted" {
			t.Errorf("check %s, accepted %s", check, accepted(w.service("web")))
		}
	})
}

// Policy Local takes effect also if all pods restart at that moment.
func TestPolicyLocalDuringARestart(t *testing.T) {
	inWorld(t, newCloud(), nodes(10), func(w *world) {
		w.create(service("web"))
		w.healthy(10, 0)
		w.edit("web", toLocal)
		w.endpoints("web")
		w.healthy(0, 10)
		w.later()
		w.endpoints("web", "node-1")
		w.healthy(1, 9)
		w.later()
		if check := w.cloud.all()[0].Listeners[0].Check; check.Port != 32000 {
			t.Errorf("check %s, want healthCheckNodePort", check)
		}
	})
}

// A Service that requests a shared load balancer of another owner keeps its own one fully working,
// without a request each second.
func TestASharedNameOfAnotherOwner(t *testing.T) {
	other := lb.State{
		ID: 50, Name: "theirs", Type: "lb11", Location: "fsn1", Public: true, Network: 7, Algorithm: lb.RoundRobin,
		Labels: map[string]string{lb.LabelCluster: "demo", lb.LabelShared: "default.edge", "underlay.dev/svc-theirs": "", "underlay.dev/port-80": "theirs"},
	}
	inWorld(t, newCloud(other), nodes(1), func(w *world) {
		w.create(service("web"))
		own := ingress(w.service("web"))
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "edge" })
		if n := w.after(time.Hour); n > 150 {
			t.Errorf("%d requests in an hour", n)
		}
		w.createNode(node("node-2", 2))
		for _, s := range w.cloud.all() {
			if s.Name == "awebuid" && (len(s.Targets) != 2 || len(s.Listeners) != 1) {
				t.Errorf("its own has targets %v and %d listeners", s.Targets, len(s.Listeners))
			}
		}
		if svc := w.service("web"); ingress(svc) != own || accepted(svc) != "False LoadBalancerNotOwned" {
			t.Errorf("addresses %q, accepted %s", ingress(svc), accepted(svc))
		}
	})
}

// A shared load balancer that lost the label of its group gets it back.
func TestTheLabelOfAGroupIsLost(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createAll(sharing("a", 1, 80), sharing("b", 2, 81))
		before := ingress(w.service("a"))
		w.cloud.change(w.cloud.all()[0].ID, func(s *lb.State) { delete(s.Labels, lb.LabelShared) })
		if n := w.after(time.Hour); n > 40 {
			t.Errorf("%d requests in an hour", n)
		}
		w.expectShared("an hour later", "shared-default.edge [a b]: 80=a 81=b")
		if len(w.cloud.all()) != 1 || ingress(w.service("a")) != before || accepted(w.service("b")) != "True Accepted" {
			t.Errorf("addresses %q, b %s, cloud:\n%s", ingress(w.service("a")), accepted(w.service("b")), w.cloud)
		}
	})
}

// The public interface is disabled when the annotation requests it, with any verdict of health
// checks.
func TestThePublicInterfaceGoesWhileNothingIsHealthy(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		svc := service("web")
		toPrivate(svc)
		w.create(svc)
		w.healthy(0, 2)
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true" })
		if w.cloud.all()[0].Public {
			t.Error("public")
		}
	})
}

// A private load balancer is never reachable from the internet, also if the cloud refuses to
// disable its public interface.
func TestPrivateFromTheBeginning(t *testing.T) {
	for _, refused := range []bool{false, true} {
		inWorld(t, newCloud(), nodes(2), func(w *world) {
			w.cloud.setFault(func(op lb.Op) error {
				for _, s := range w.cloud.all() {
					if s.Public && len(s.Listeners)+len(s.Targets) > 0 {
						t.Errorf("refused %t: before %s it is public with %d listeners and %d targets", refused, op, len(s.Listeners), len(s.Targets))
					}
				}
				if set, ok := op.(lb.SetPublicInterface); ok && !set.Enabled && refused {
					return &lb.RejectedError{Code: "unavailable_for_now", Message: "not now"}
				}
				return nil
			})
			svc := service("web")
			toPrivate(svc)
			svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
			svc.Annotations[lb.HetznerPrefix+"private-ipv4"] = "10.0.0.77"
			w.create(svc)
			w.later()
			s := w.cloud.all()[0]
			if s.Public && len(s.Listeners)+len(s.Targets) > 0 {
				t.Errorf("refused %t: public with %d listeners", refused, len(s.Listeners))
			}
			if !refused && (s.Public || len(s.Listeners) != 1 || len(s.Targets) != 2 || s.PrivateIP.String() != "10.0.0.77" || accepted(w.service("web")) != "True Accepted") {
				t.Errorf("%s: %s", accepted(w.service("web")), w.cloud)
			}
			if refused && accepted(w.service("web")) != "False Rejected" {
				t.Errorf("accepted %s", accepted(w.service("web")))
			}
		})
	}
}

// A pod that is not ready for some seconds stays a target; one that is not ready for longer is
// removed.
func TestPodsThatAreNotReadyForSeconds(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		ready := map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 1): "ready"}
		p.are(ready)
		w.create(podService())
		w.cloud.counts()
		p.are(map[lb.Target]string{podAt(1, 1): "waiting", podAt(2, 1): "waiting"})
		time.Sleep(5 * time.Second)
		p.are(ready)
		w.expect("seconds without a ready pod")
		p.are(map[lb.Target]string{podAt(1, 1): "waiting", podAt(2, 1): "waiting"})
		w.later()
		w.expect("minutes without a ready pod: the last ones stay")
		p.are(map[lb.Target]string{podAt(1, 1): "waiting", podAt(2, 1): "ready"})
		time.Sleep(time.Minute)
		w.settle()
		w.expect("the other is ready", "remove pod 2001:db8:101:0:1::1 on server 1")
	})
}

// A flapping pod takes a bounded number of requests, with any period.
func TestAFlappingPod(t *testing.T) {
	for _, period := range []time.Duration{
		5 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
	} {
		inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
			p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 1): "ready"})
			w.create(podService())
			w.requests()
			for began := time.Now(); time.Since(began) < time.Hour; {
				for _, state := range []string{"waiting", "ready"} {
					p.states = map[lb.Target]string{podAt(1, 1): state, podAt(2, 1): "ready"}
					p.publish()
					time.Sleep(period)
				}
			}
			reads, writes := w.requests()
			t.Logf("each %s: %d reads and polls, %d writes", period, reads, writes)
			if reads+writes > 120 {
				t.Errorf("each %s: %d requests in an hour", period, reads+writes)
			}
		})
	}
}

// The port of a refused Service is never forwarded to another Service.
func TestANodePortGoesToAnotherService(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		w.edit("web", func(svc *corev1.Service) {
			svc.Spec.Ports[0].NodePort = 30500
			for i := range int32(5) {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Port: 8000 + i, Protocol: "TCP", NodePort: 31000 + i})
			}
		})
		other := service("other") // now has node port 30080
		other.Spec.Ports[0].Port = 90
		w.create(other)
		leads := func() string {
			for _, s := range w.cloud.all() {
				if s.Name == "awebuid" {
					var all []string
					for _, l := range s.Listeners {
						all = append(all, fmt.Sprintf("%d→%d", l.Port, l.DestinationPort))
					}
					return strings.Join(all, " ")
				}
			}
			return "none"
		}
		if got := leads(); got != "80→30500" || accepted(w.service("web")) != "False InvalidField" {
			t.Errorf("%s, accepted %s", got, accepted(w.service("web")))
		}
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports = svc.Spec.Ports[1:] })
		w.edit("web", func(svc *corev1.Service) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "more", Port: 9000, Protocol: "TCP", NodePort: 31900})
			svc.Annotations[lb.HetznerPrefix+"type"] = "no such"
		})
		if got := leads(); strings.Contains(got, "80→") {
			t.Errorf("a port that the Service has no more: %s", got)
		}
	})
}

// A tool that replaces all annotations changes only the settings that differ.
func TestAnnotationsAreReplacedAsAWhole(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		svc := service("web")
		svc.Annotations[lb.HetznerPrefix+"health-check-protocol"] = "http"
		w.create(svc)
		w.healthy(0, 2)
		w.cloud.counts()
		for range 12 {
			w.edit("web", func(svc *corev1.Service) {
				svc.Annotations = map[string]string{lb.HetznerPrefix + "health-check-protocol": "http"}
			})
			time.Sleep(10 * time.Minute)
			w.settle()
		}
		w.expect("two hours of releases")
		if got := accepted(w.service("web")); got != "False NoHealthyTarget" {
			t.Errorf("accepted %s", got)
		}
	})
}

// Addresses of a deleted load balancer are removed from the status, with any other problem of the
// Service.
func TestDeletedByHand(t *testing.T) {
	for name, wrong := range map[string]func(*corev1.Service){
		"a UDP port": func(svc *corev1.Service) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: "UDP", NodePort: 30053})
		},
		"source ranges":      func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
		"a wrong annotation": func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9" },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(1), func(w *world) {
				w.create(service("web"))
				before := ingress(w.service("web"))
				w.edit("web", wrong)
				if err := w.cloud.client.Apply(context.Background(), w.cloud.all()[0],
					lb.Delete{}); err != nil {
					t.Fatal(err)
				}
				w.cloud.setFault(func(op lb.Op) error {
					if _, creates := op.(lb.Create); creates {
						return &lb.RejectedError{Code: "resource_limit_exceeded", Message: "no more load balancers"}
					}
					return nil
				})
				w.later()
				if got := ingress(w.service("web")); got != "" || before == "" {
					t.Errorf("addresses %q, before %q", got, before)
				}
			})
		})
	}
}

// A larger type that the cloud rejects takes few requests in an hour, with any number of nodes.
func TestALargerTypeIsRefused(t *testing.T) {
	inWorld(t, newCloud(), nodes(25), func(w *world) {
		w.create(service("web"))
		w.cloud.setFault(func(op lb.Op) error {
			if _, ok := op.(lb.ChangeType); ok {
				return &lb.RejectedError{Code: "resource_limit_exceeded", Message: "quota"}
			}
			return nil
		})
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationType] = "lb21" })
		for i := range 35 {
			w.createNode(node(fmt.Sprint("more-", i), 40+i))
		}
		time.Sleep(time.Second)
		w.cloud.counts()
		w.requests()
		time.Sleep(time.Hour)
		w.settle()
		_, ops := w.cloud.counts()
		if reads, writes := w.requests(); len(ops) > 12 || reads+writes > 60 {
			t.Errorf("%d requests in an hour, %d refused: %q", reads+writes, len(ops), ops)
		}
		if got := w.service("web"); accepted(got) != "False TargetsTruncated" || !strings.Contains(got.Status.Conditions[0].Message, "quota") {
			t.Errorf("accepted %s: %v", accepted(got), got.Status.Conditions)
		}
		w.cloud.setFault(nil)
		time.Sleep(2 * time.Hour)
		w.settle()
		if s := w.cloud.all()[0]; s.Type != "lb21" || len(s.Targets) != 60 {
			t.Errorf("type %s with %d targets", s.Type, len(s.Targets))
		}
	})
}

// An attachment that the cloud rejects, at the wanted address and at any other, takes few requests
// in an hour.
func TestAnAttachmentIsRefused(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.cloud.setFault(func(op lb.Op) error {
			if _, ok := op.(lb.AttachNetwork); ok {
				return &lb.RejectedError{Code: "ip_not_available", Message: "the address is taken"}
			}
			return nil
		})
		svc := service("web")
		toPrivate(svc)
		svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "true"
		svc.Annotations[lb.HetznerPrefix+"private-ipv4"] = "10.0.0.77"
		w.create(svc)
		time.Sleep(10 * time.Minute)
		if n := w.after(time.Hour); n > 60 || accepted(w.service("web")) != "False Rejected" {
			t.Errorf("%d requests in an hour, accepted %s", n, accepted(w.service("web")))
		}
		w.cloud.setFault(nil)
		time.Sleep(time.Hour)
		w.settle()
		if s := w.cloud.all()[0]; s.Public || s.PrivateIP.String() != "10.0.0.77" || len(s.Listeners) != 1 || len(s.Targets) != 2 {
			t.Errorf("not mended:\n%s", w.cloud)
		}
	})
}

// A name that another Service frees is used at once.
func TestANameIsFreed(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		named := func(name string) *corev1.Service {
			svc := service(name)
			svc.Annotations[lb.AnnotationName] = "front"
			return svc
		}
		w.create(named("a"))
		w.create(named("b"))
		if got := accepted(w.service("b")); got != "False LoadBalancerNotOwned" {
			t.Errorf("accepted %s", got)
		}
		time.Sleep(time.Hour)
		w.delete("a")
		time.Sleep(10 * time.Second)
		w.settle()
		if got := w.service("b"); accepted(got) != "True Accepted" || ingress(got) == "" {
			t.Errorf("accepted %s, addresses %q", accepted(got), ingress(got))
		}
	})
}

// A name that is taken delays no other change.
func TestANameThatIsTakenCostsNoLabel(t *testing.T) {
	inWorld(t, newCloud(lb.State{ID: 30, Name: "taken", Type: "lb11", Location: "fsn1", Public: true}), nodes(1), func(w *world) {
		w.create(service("web"))
		w.edit("web", func(svc *corev1.Service) {
			svc.Annotations[lb.AnnotationName] = "taken"
			svc.Annotations[lb.HetznerPrefix+"ipv4-rdns"] = "www.example.com"
		})
		w.later()
		mine := func() lb.State {
			all := w.cloud.all()
			return all[slices.IndexFunc(all, func(s lb.State) bool { return s.Name == "awebuid" })]
		}
		if s := mine(); s.IPv4Name != "www.example.com" || accepted(w.service("web")) != "False LoadBalancerNotOwned" {
			t.Errorf("reverse DNS %q, accepted %s", s.IPv4Name, accepted(w.service("web")))
		}
		w.edit("web", func(svc *corev1.Service) { delete(svc.Annotations, lb.HetznerPrefix+"ipv4-rdns") })
		w.later()
		if s := mine(); s.IPv4Name == "www.example.com" {
			t.Error("reverse DNS is not taken back")
		}
	})
}

// A Service that requests pods as targets, and has another invalid setting, keeps its nodes as
// targets until that is corrected.
func TestPodsWhileSomethingElseIsWrong(t *testing.T) {
	for name, wrong := range map[string]func(*corev1.Service){
		"source ranges":  func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
		"no certificate": func(svc *corev1.Service) { https(svc, "http-certificates", "missing") },
		"a wrong value":  func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9" },
	} {
		t.Run(name, func(t *testing.T) {
			inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
				p.are(map[lb.Target]string{podAt(1, 1): "ready"})
				svc := service("web")
				svc.Spec.Ports[0].TargetPort.IntVal = 8080
				w.create(svc)
				before := w.cloud.String()
				w.edit("web", func(svc *corev1.Service) {
					svc.Annotations[lb.AnnotationTargets] = "pods"
					wrong(svc)
				})
				w.later()
				if w.cloud.String() != before {
					t.Errorf("changed:\n%s\nwas\n%s", w.cloud, before)
				}
			})
		})
	}
}
