package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// peers returns a load balancer that the Hetzner controller created for the Service web.
func peers(name string) lb.State {
	return lb.State{
		ID: 17, Name: name, Type: "lb11", Location: "fsn1", NetworkZone: "eu-central", Algorithm: lb.RoundRobin, Public: true,
		Network: 7, Labels: map[string]string{lb.LabelPeer: "web-uid", "team": "web"},
		Listeners: []lb.Listener{{Port: 80, DestinationPort: 30080, Protocol: "tcp", Check: lb.HealthCheck{Protocol: "tcp", Port: 30080, Interval: 15e9, Timeout: 10e9, Retries: 3}}},
		Targets:   []lb.Target{{Server: 1}},
	}
}

// The Hetzner controller's load balancer keeps its settings and any name, and gets the labels of
// this controller beside its own, also if it is found only by its name.
func TestTakeoverFromTheHetznerController(t *testing.T) {
	for name, c := range map[string]struct {
		balancer string
		status   bool // the Service's status has its addresses
		changes  []string
	}{
		"the name by default": {"awebuid", true, []string{`set 5 labels`}},
		"by its name alone":   {"awebuid", false, []string{`create "awebuid" with 1 listeners and 1 targets`, `set 5 labels`}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(peers(c.balancer)), nodes(1), func(w *world) {
				svc := service("web")
				if c.status {
					svc = takenOver()
				}
				w.create(svc)
				w.expect("takeover", c.changes...)
				all := w.cloud.all()
				if len(all) != 1 || all[0].ID != 17 || all[0].Labels["team"] != "web" || all[0].Labels[lb.LabelPeer] != "web-uid" {
					t.Fatalf("%+v", all)
				}
				if got := accepted(w.service("web")); got != "True Accepted" || !strings.Contains(strings.Join(w.message(), "\n"), "HealthCheckKept") {
					t.Errorf("accepted %s, and no word about the checks", got)
				}
				w.later()
				w.restart()
				w.expect("after that")
				w.edit("web", func(svc *corev1.Service) { svc.Annotations["underlay.dev/health-check"] = "kube-proxy" })
				w.expect("opted in", `set 4 labels`, byProxy)
				w.delete("web")
				if len(w.cloud.all()) != 0 {
					t.Errorf("left behind:\n%s", w.cloud)
				}
			})
		})
	}
}

// Load balancers of other owners are never taken over, with any Service and any copied labels.
func TestNoTrafficOfOtherOwnersIsTaken(t *testing.T) {
	copied := lb.State{ID: 20, Name: "copy", Labels: lb.Owner{Cluster: "demo", UID: "web-uid"}.Labels()}
	gone := peers("awebuid")
	gone.Labels = map[string]string{lb.LabelPeer: "a-service-that-is-gone"}
	twice := peers("second")
	twice.ID = 18
	for name, c := range map[string]struct {
		balancers []lb.State
		adopt     bool
	}{
		"the peer's, for a UID that is no more":         {[]lb.State{gone}, false},
		"the same, to be adopted":                       {[]lb.State{gone}, true},
		"a foreign one with our name":                   {[]lb.State{{ID: 5, Name: "awebuid"}}, false},
		"another cluster's with our name":               {[]lb.State{{ID: 5, Name: "awebuid", Labels: lb.Owner{Cluster: "other", UID: "web-uid"}.Labels()}}, true},
		"another Service's with our name":               {[]lb.State{{ID: 5, Name: "awebuid", Labels: lb.Owner{Cluster: "demo", UID: "other"}.Labels()}}, true},
		"the peer's label, copied to a second one":      {[]lb.State{peers("awebuid"), twice}, false},
		"our labels, copied before ours was made twice": {[]lb.State{copied, {ID: 21, Name: "copy-2", Labels: copied.Labels}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(c.balancers...), nodes(1), func(w *world) {
				before := fmt.Sprintf("%+v", w.cloud.all())
				svc := takenOver()
				svc.Annotations["underlay.dev/adopt"] = fmt.Sprint(c.adopt)
				w.create(svc)
				w.later()
				w.restart()
				w.later()
				if got := accepted(w.service("web")); got != "False LoadBalancerNotOwned" {
					t.Errorf("accepted %s", got)
				}
				if events := w.message(); len(events) != 1 || !strings.Contains(events[0], "LoadBalancerNotOwned") {
					t.Errorf("Events %q, want one", events)
				}
				if after := fmt.Sprintf("%+v", w.cloud.all()); after != before {
					t.Errorf("changed:\n%s\nwas\n%s", after, before)
				}
			})
		})
	}
}

func TestAdoption(t *testing.T) {
	bare := peers("web")
	bare.Labels = map[string]string{"team": "web"}
	inWorld(t, newCloud(bare), nodes(1), func(w *world) {
		svc := service("web")
		svc.Annotations[lb.AnnotationName] = "web"
		w.create(svc)
		if events := w.message(); accepted(w.service("web")) != "False LoadBalancerNotOwned" || len(events) != 1 || !strings.Contains(events[0], "underlay.dev/adopt") {
			t.Errorf("without being asked: accepted %s, Events %q", accepted(w.service("web")), events)
		}
		w.edit("web", func(svc *corev1.Service) { svc.Annotations["underlay.dev/adopt"] = "true" })
		command := "hcloud load-balancer add-label 17 underlay.dev/adopt-cluster=demo underlay.dev/adopt-namespace=default underlay.dev/adopt-service=web"
		if events := w.message(); accepted(w.service("web")) != "False LoadBalancerNotOwned" || len(events) != 1 || !strings.Contains(events[0], command) {
			t.Errorf("without consent: accepted %s, Events %q", accepted(w.service("web")), events)
		}
		w.cloud.counts()
		w.later()
		w.expect("still without consent")
		w.cloud.change(17, func(s *lb.State) {
			s.Labels["underlay.dev/adopt-cluster"] = "demo"
			s.Labels["underlay.dev/adopt-namespace"] = "default"
			s.Labels["underlay.dev/adopt-service"] = "web"
		})
		w.later()
		w.expect("adopted", `set 7 labels`)
		if got := w.service("web"); accepted(got) != "True Accepted" || len(w.cloud.all()) != 1 || w.cloud.all()[0].ID != 17 {
			t.Errorf("accepted %s:\n%s", accepted(got), w.cloud)
		}
	})
}

// A Service that couldn't adopt a load balancer doesn't delete it when the Service is deleted or
// changes its type.
func TestUnadoptedLoadBalancersAreNotDeleted(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"deleted": func(w *world) { w.delete("web") },
		"of ClusterIP": func(w *world) {
			w.edit("web", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
		},
	} {
		t.Run(name, func(t *testing.T) {
			capi := peers("web")
			capi.Labels = map[string]string{"caph-cluster-prod": "owned"}
			inWorld(t, newCloud(capi), nodes(1), func(w *world) {
				before := fmt.Sprintf("%+v", w.cloud.all())
				svc := service("web")
				svc.Annotations[lb.AnnotationName], svc.Annotations["underlay.dev/adopt"] = "web", "true"
				w.create(svc)
				w.later()
				end(w)
				w.later()
				if after := fmt.Sprintf("%+v", w.cloud.all()); after != before || len(w.service("web").Finalizers) != 0 {
					t.Errorf("finalizers %v, load balancers\n%s\nwere\n%s", w.service("web").Finalizers, after, before)
				}
			})
		})
	}
}

// Two Services claim one name: the first has it, the second gets a condition, and the name when the
// first is deleted.
func TestTwoServicesOneName(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		for _, name := range []string{"first", "second"} {
			svc := service(name)
			svc.Annotations[lb.AnnotationName] = "shared"
			w.create(svc)
		}
		w.later()
		owned := func(uid string) bool { return slices.Equal(w.cloud.all()[0].Services(), []string{uid}) }
		if len(w.cloud.all()) != 1 || !owned("first-uid") || accepted(w.service("second")) != "False LoadBalancerNotOwned" {
			t.Errorf("second: %s\n%+v", accepted(w.service("second")), w.cloud.all())
		}
		if text := w.service("second").Status.Conditions[0].Message; !strings.Contains(text, "has another owner") || !strings.Contains(text, "choose another name") {
			t.Errorf("the second is told %q, want that the name is taken", text)
		}
		w.delete("first")
		if err := w.api.CoreV1().Services("default").Delete(context.Background(), "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.later()
		if len(w.cloud.all()) != 1 || !owned("second-uid") || accepted(w.service("second")) != "True Accepted" {
			t.Errorf("second: %s\n%+v", accepted(w.service("second")), w.cloud.all())
		}
	})
}

// A setting without an annotation stays as it was found, also after a restart; one that was
// annotated once is reset when the annotation is removed.
func TestTakeoverKeepsSettingsWithoutAnnotation(t *testing.T) {
	found := peers("before")
	found.Type, found.Algorithm = "lb21", lb.LeastConnections
	inWorld(t, newCloud(found), nodes(30), func(w *world) {
		svc := takenOver()
		for port := range int32(6) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(port), Port: 8000 + port, Protocol: "TCP", NodePort: 31000 + port})
		}
		w.create(svc)
		w.later()
		w.restart()
		b := w.cloud.all()[0]
		if b.Name != "before" || b.Type != "lb21" || b.Algorithm != lb.LeastConnections || len(b.Targets) != 30 || len(b.Listeners) != 7 {
			t.Errorf("changed: %s %s %s, %d targets, %d listeners", b.Name, b.Type, b.Algorithm, len(b.Targets), len(b.Listeners))
		}
		if got := w.service("web"); accepted(got) != "True Accepted" || !strings.Contains(got.Status.Conditions[0].Message, "lb21") {
			t.Errorf("accepted %s: %s", accepted(got), got.Status.Conditions[0].Message)
		}
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) {
			svc.Annotations[lb.AnnotationType], svc.Annotations[lb.HetznerPrefix+"algorithm-type"] = "lb31", "least_connections"
		})
		w.expect("annotated", `set 6 labels`, "change type to lb31")
		w.edit("web", func(svc *corev1.Service) {
			svc.Annotations, svc.Spec.Ports = map[string]string{}, svc.Spec.Ports[:5]
			w.editNode("node-30", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
		})
		w.later()
		if b := w.cloud.all()[0]; b.Name != "before" || b.Type != "lb11" || b.Algorithm != lb.RoundRobin {
			t.Errorf("annotations removed: %s %s %s", b.Name, b.Type, b.Algorithm)
		}
	})
}

// A disabled public interface stays disabled if the nodes are reached in the network.
func TestTakeoverKeepsThePublicInterfaceOff(t *testing.T) {
	found := peers("awebuid")
	found.Public, found.Targets = false, []lb.Target{{Server: 1, Private: true}}
	inWorld(t, newCloud(found), nodes(1), func(w *world) {
		svc := takenOver()
		toPrivate(svc)
		w.create(svc)
		w.later()
		w.restart()
		w.expect("takeover", `set 6 labels`)
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"disable-public-network"] = "false" })
		w.expect("wanted", `set 5 labels`, "set public interface true")
	})
}

// Targets keep their public addresses with any configuration for all Services, also new targets,
// after a restart, or after there were none for a while, until the Service's annotation changes it.
func TestTakeoverKeepsHowTargetsAreReached(t *testing.T) {
	inWorld(t, newCloud(peers("awebuid")), nodes(1), func(w *world) {
		w.stop()
		w.defaults.UsePrivateIP = true
		w.start()
		w.create(takenOver())
		w.expect("takeover", `set 6 labels`)
		if got, message := w.service("web"), strings.Join(w.message(), "\n"); accepted(got) != "True Accepted" || !strings.Contains(message, "SettingsKept the load balancer was taken over and keeps its targets at their public addresses") {
			t.Errorf("accepted %s, Events:\n%s", accepted(got), message)
		}
		w.later()
		w.restart()
		w.later()
		w.expect("at rest")
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-2", 2), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("a node joins", "add server 2")
		exclude := func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" }
		w.editNode("node-1", exclude)
		w.editNode("node-2", exclude)
		w.restart()
		w.editNode("node-1", func(n *corev1.Node) { delete(n.Labels, corev1.LabelNodeExcludeBalancers) })
		w.expect("none is left, and one is back", "remove server 1", "remove server 2", "add server 1")
		if events := w.message(); len(events) > 1 || len(events) == 1 && !strings.Contains(events[0], "no node can be a target") {
			t.Errorf("Events %q", events)
		}
		w.edit("web", toPrivate)
		w.expect("annotated", `set 5 labels`, "remove server 1", "add server 1 (private)")
		w.edit("web", func(svc *corev1.Service) { svc.Annotations = map[string]string{} })
		w.later()
		w.expect("the annotation is removed")
	})
}

// The kind of the targets' addresses of a Service that is refused at the takeover is kept when the
// Service is corrected.
func TestTakeoverOfARefusedServiceKeepsHowTargetsAreReached(t *testing.T) {
	inWorld(t, newCloud(peers("awebuid")), nodes(2), func(w *world) {
		w.stop()
		w.defaults.UsePrivateIP = true
		w.start()
		svc := takenOver()
		svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9"
		w.create(svc)
		w.expect("refused", `set 6 labels`, "add server 2")
		w.edit("web", func(svc *corev1.Service) { svc.Annotations = map[string]string{} })
		w.later()
		w.restart()
		w.expect("corrected", `set 6 labels`)
	})
}

// A refused Service that the Hetzner controller served has a working load balancer. It is taken
// over and its targets follow the nodes; no listeners are added.
func TestRefusedServicesAreTakenOver(t *testing.T) {
	for name, c := range map[string]struct {
		refused  func(w *world, svc *corev1.Service)
		accepted string
		word     string
		serves   int // listeners in the end
	}{
		"source ranges": {func(_ *world, svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} }, "False UnsupportedField", "source-ranges-enforced-elsewhere", 1},
		"IPv6 only":     {func(_ *world, svc *corev1.Service) { svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }, "False UnsupportedField", "PreferDualStack", 1},
		"no place for new ones": {func(w *world, _ *corev1.Service) {
			w.stop()
			w.defaults.Location = ""
			w.start()
		}, "True Accepted", "HealthCheckKept", 2},
		"more ports than the type carries": {func(_ *world, svc *corev1.Service) {
			for port := range int32(6) {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(port), Port: 8000 + port, Protocol: "TCP", NodePort: 31000 + port})
			}
		}, "False InvalidField", "choose a larger type", 1},
		"a value that cannot be": {func(_ *world, svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "9" }, "False InvalidField", "its ports follow", 1},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(peers("awebuid")), nodes(1), func(w *world) {
				svc := takenOver()
				c.refused(w, svc)
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81, Protocol: "TCP", NodePort: 30081})
				w.create(svc)
				if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-2", 2), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.settle()
				message := strings.Join(w.message(), "\n")
				w.later()
				b := w.cloud.all()[0]
				if got := accepted(w.service("web")); got != c.accepted || !strings.Contains(message, c.word) || len(w.message()) != 0 {
					t.Errorf("accepted %s, Events:\n%s", got, message)
				}
				if len(w.cloud.all()) != 1 || b.ID != 17 || len(b.Targets) != 2 || len(b.Listeners) != c.serves || b.Listeners[0].Check.Protocol != "tcp" {
					t.Errorf("%s", w.cloud)
				}
				w.cloud.counts()
				w.written()
				w.restart()
				w.later()
				if _, writes := w.cloud.counts(); len(writes) != 0 || w.written() != 0 {
					t.Errorf("at rest: %q", writes)
				}
				// Its listener still follows the node port.
				w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].NodePort = 30099 })
				if port := w.cloud.all()[0].Listeners[0].DestinationPort; port != 30099 && c.word != "its ports follow" {
					t.Errorf("port 80 leads to %d", port)
				}
				w.delete("web")
				if len(w.cloud.all()) != 0 || len(w.service("web").Finalizers) != 0 {
					t.Errorf("left behind:\n%s", w.cloud)
				}
			})
		})
	}
}

// Source ranges keep a Service from adopting a load balancer that has served others until now.
func TestRefusedServicesAdoptNothing(t *testing.T) {
	bare := peers("awebuid")
	bare.Labels = nil
	inWorld(t, newCloud(bare), nodes(1), func(w *world) {
		svc := takenOver()
		svc.Annotations["underlay.dev/adopt"] = "true"
		svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.create(svc)
		w.later()
		w.expect("source ranges")
		if got := accepted(w.service("web")); got != "False UnsupportedField" {
			t.Errorf("accepted %s", got)
		}
	})
}

// A takeover that the cloud rejects changes nothing else. If the Service is deleted before the
// takeover succeeds, its load balancer is deleted too; if two load balancers have its label, both
// and the Service are kept.
func TestServiceDeletedBeforeItsTakeover(t *testing.T) {
	twice := peers("second")
	twice.ID = 18
	for name, c := range map[string]struct {
		balancers []lb.State
		left      int
	}{"one": {[]lb.State{peers("awebuid")}, 0}, "ambiguous": {[]lb.State{peers("awebuid"), twice}, 2}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(c.balancers...), nodes(3), func(w *world) {
				before := w.cloud.String()
				w.cloud.setFault(func(op lb.Op) error {
					switch op.(type) {
					case lb.SetLabels, lb.Rename:
						return &lb.RejectedError{Code: "invalid_input", Message: "labels"}
					}
					return nil
				})
				w.create(takenOver())
				w.later()
				if w.cloud.String() != before {
					t.Errorf("changed:\n%s\nwas\n%s", w.cloud, before)
				}
				w.delete("web")
				w.later()
				if got := w.service("web"); len(w.cloud.all()) != c.left || len(got.Finalizers) != min(c.left, 1) {
					t.Errorf("finalizers %v, cloud:\n%s", got.Finalizers, w.cloud)
				}
			})
		})
	}
}
