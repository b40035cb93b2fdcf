package controller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/lb/controller"
)

func TestLifeOfALoadBalancer(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		svc := w.service("web")
		if got, want := ingress(svc), "198.18.0.2 VIP, 2001:db8:0:2::1 VIP, 10.0.0.2 VIP"; got != want {
			t.Errorf("addresses are %q, want %q", got, want)
		}
		if got := accepted(svc); got != "True Accepted" || !slices.Equal(svc.Finalizers, []string{finalizer}) {
			t.Errorf("accepted: %s, finalizers %v", got, svc.Finalizers)
		}
		reads, writes := w.cloud.counts()
		if reads != 3 || len(writes) != 1 || w.written() != 2 { // the first read is the initial list
			t.Errorf("%d reads, changes %v, want 3 reads and one creation; and 2 writes to the API server", reads, writes)
		}

		w.edit("web", func(svc *corev1.Service) {
			svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
			svc.Spec.HealthCheckNodePort = 32000
		})
		w.expect("policy Local", "update listener 80 → 30080, http :32000/healthz every 10s, timeout 15s, 3 tries")
		w.edit("web", func(svc *corev1.Service) {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "tls", Port: 443, Protocol: corev1.ProtocolTCP, NodePort: 30443})
		})
		w.expect("another port", "add listener 443 → 30443, http :32000/healthz every 10s, timeout 15s, 3 tries")
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationType] = "lb21" })
		w.expect("annotation set", "change type to lb21")
		w.edit("web", func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationType) })
		w.expect("annotation removed", "change type to lb11")
		if n := w.written(); n != 0 {
			t.Errorf("%d writes to the API server, for changes that do not show in the status", n)
		}

		w.delete("web")
		w.expect("deleted", "delete")
		if svc := w.service("web"); len(svc.Finalizers) != 0 || w.written() != 1 {
			t.Errorf("finalizers %v after deletion, want none, with one write", svc.Finalizers)
		}
	})
}

func TestNothingHappensAtRest(t *testing.T) {
	inWorld(t, newCloud(), nodes(3), func(w *world) {
		for i := range 3 {
			w.create(service(fmt.Sprintf("web-%d", i)))
		}
		udp := service("dns")
		udp.Spec.Ports[0].Protocol = corev1.ProtocolUDP
		w.create(udp)
		w.cloud.counts()
		w.written()
		w.message()

		for range 60 {
			w.editNode("node-1", func(n *corev1.Node) { // a heartbeat, and changes of readiness
				n.Status.Conditions = []corev1.NodeCondition{
					{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastHeartbeatTime: metav1.Now()},
				}
			})
			time.Sleep(time.Minute)
		}
		reads, writes := w.cloud.counts()
		if reads < 10 || reads > 13 || len(writes) != 0 || w.written() != 0 || len(w.message()) != 0 {
			t.Errorf("in an hour: %d reads, changes %v; want a read every five minutes and nothing else", reads, writes)
		}
	})
}

func TestRestartOfAConvergedCluster(t *testing.T) {
	inWorld(t, newCloud(), nodes(3), func(w *world) {
		for i := range 20 {
			w.create(service(fmt.Sprintf("web-%d", i)))
		}
		w.cloud.counts()
		w.written()
		w.message()
		w.restart()
		reads, writes := w.cloud.counts()
		if reads != 1 || len(writes) != 0 || w.written() != 0 || len(w.message()) != 0 {
			t.Errorf("a restart with 20 Services: %d reads, changes %v; want 1 and none", reads, writes)
		}
	})
}

// Changes that were made while no controller ran are found at the start.
func TestRestartCatchesUp(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("gone"))
		w.create(service("changed"))
		w.cloud.counts()
		w.stop()
		w.delete("gone")
		w.edit("changed", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationName] = "renamed" })
		w.create(service("fresh"))
		w.start()
		var names []string
		for _, s := range w.cloud.all() {
			names = append(names, s.Name)
		}
		if want := []string{"renamed", "afreshuid"}; !slices.Equal(names, want) || len(w.service("gone").Finalizers) != 0 {
			t.Errorf("load balancers %v, want %v", names, want)
		}
	})
}

func TestClass(t *testing.T) {
	for _, c := range []struct {
		class     string
		classless bool
		served    bool
	}{
		{class: "", classless: true, served: true},
		{class: "", classless: false, served: false},
		{class: controller.LoadBalancerClass, classless: true, served: true},
		{class: controller.LoadBalancerClass, classless: false, served: true},
		{class: "example.com/other", classless: true, served: false},
	} {
		t.Run(fmt.Sprintf("%s classless %t", c.class, c.classless), func(t *testing.T) {
			inWorld(t, newCloud(), nodes(1), func(w *world) {
				w.stop()
				w.defaults.Classless = c.classless
				w.start()
				svc := service("web")
				if c.class != "" {
					svc.Spec.LoadBalancerClass = &c.class
				}
				// Another implementation's finalizer has the same name.
				if !c.served {
					svc.Finalizers = []string{finalizer}
				}
				w.create(svc)
				if served := len(w.cloud.all()) == 1; served != c.served {
					t.Errorf("served: %t, want %t", served, c.served)
				}
				if c.served {
					return
				}
				w.edit("web", func(svc *corev1.Service) { svc.Annotations["a"] = "b" })
				w.delete("web")
				w.later()
				if got := w.service("web"); w.written() != 0 || !slices.Equal(got.Finalizers, []string{finalizer}) {
					t.Errorf("a Service of others was touched: %+v", got)
				}
				// Two controllers began with a list of everything, and one listed again.
				if reads, writes := w.cloud.counts(); reads != 3 || len(writes) != 0 {
					t.Errorf("%d reads, changes %v, for a Service that is not ours", reads, writes)
				}
			})
		})
	}
}

// A setting must not interrupt traffic: an existing load balancer is kept until its Service is
// deleted.
func TestClasslessSwitchedOff(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		w.stop()
		w.defaults.Classless = false
		w.start()
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 81 })
		w.later()
		if all := w.cloud.all(); len(all) != 1 || all[0].Listeners[0].Port != 80 || ingress(w.service("web")) == "" {
			t.Errorf("not left alone:\n%s", w.cloud)
		}
		w.delete("web")
		if len(w.cloud.all()) != 0 || len(w.service("web").Finalizers) != 0 {
			t.Error("left behind with its Service gone")
		}
	})
}

func TestTypeChangedAway(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
		svc := w.service("web")
		if len(w.cloud.all()) != 0 || len(svc.Finalizers) != 0 || ingress(svc) != "" || accepted(svc) != "none" {
			t.Errorf("left behind: %d load balancers, finalizers %v, addresses %q, accepted %s",
				len(w.cloud.all()), svc.Finalizers, ingress(svc), accepted(svc))
		}
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeLoadBalancer })
		if len(w.cloud.all()) != 1 || ingress(w.service("web")) == "" {
			t.Error("no load balancer after the type came back")
		}
		// A change to another implementation's class deletes the load balancer too.
		w.edit("web", func(svc *corev1.Service) {
			other := "example.com/other"
			svc.Spec.LoadBalancerClass = &other
		})
		if svc := w.service("web"); len(w.cloud.all()) != 0 || accepted(svc) != "none" {
			t.Errorf("class changed: %d load balancers, accepted %s", len(w.cloud.all()), accepted(svc))
		}
	})
}

func TestFinalizerStandsBeforeTheLoadBalancer(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		var before []string
		w.cloud.setFault(func(lb.Op) error {
			svc := w.service("web")
			before = append(svc.Finalizers, accepted(svc))
			return nil
		})
		w.create(service("web"))
		if want := []string{finalizer, "Unknown Pending"}; !slices.Equal(before, want) {
			t.Errorf("at creation the Service had %v, want %v", before, want)
		}
	})
}

func TestNodes(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		edge := service("edge")
		edge.Annotations[lb.AnnotationNodeSelector] = "role=edge"
		w.create(edge)
		w.expect("at the start", `create "awebuid" with 1 listeners and 2 targets`, `create "aedgeuid" with 1 listeners and 0 targets`)
		if got := accepted(w.service("edge")); got != "True Accepted" || !strings.Contains(strings.Join(w.message(), "\n"), "UnAvailableLoadBalancer") {
			t.Errorf("without targets: accepted %s, want True and an Event", got)
		}

		for _, n := range []*corev1.Node{node("node-3", 3), {ObjectMeta: metav1.ObjectMeta{Name: "metal"}, Spec: corev1.NodeSpec{ProviderID: "hrobot://7"}}, node("new", 0)} {
			if _, err := w.api.CoreV1().Nodes().Create(context.Background(), n,
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		w.expect("three nodes, one with a cloud server", "add server 3")
		w.editNode("new", func(n *corev1.Node) { n.Spec.ProviderID = "hcloud://4" })
		w.expect("a provider ID", "add server 4")
		w.editNode("new", func(n *corev1.Node) { n.Labels = map[string]string{"role": "edge"} })
		w.expect("a label that a selector wants", "add server 4")
		w.editNode("node-1", func(n *corev1.Node) { n.Labels["other"] = "label" })
		w.expect("a label that nobody wants")
		w.editNode("node-1", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "" })
		w.expect("the exclude label", "remove server 1")
		w.editNode("node-1", func(n *corev1.Node) { n.Labels[corev1.LabelNodeExcludeBalancers] = "false" })
		w.expect("the exclude label that says false", "add server 1")
		w.editNode("node-3", func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		w.expect("a node about to go", "remove server 3")
		if err := w.api.CoreV1().Nodes().Delete(context.Background(), "node-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("a node gone", "remove server 1")
	})
}

// A batch of nodes takes one read of each load balancer, not one for each node.
func TestManyNodesAtOnce(t *testing.T) {
	inWorld(t, newCloud(), nil, func(w *world) {
		w.create(service("web"))
		w.cloud.counts()
		for i := range 20 {
			if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node(fmt.Sprintf("node-%d", i+1), i+1), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		w.settle()
		if reads, writes := w.cloud.counts(); reads != 1 || len(writes) != 20 {
			t.Errorf("%d reads, %d changes, want 1 and 20", reads, len(writes))
		}
	})
}

func TestStatus(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.Service)
		want   string
	}{
		"proxy": {
			change: func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"uses-proxyprotocol"] = "true" },
			want:   "198.18.0.2 Proxy, 2001:db8:0:2::1 Proxy, 10.0.0.2 Proxy",
		},
		"host name": {
			change: func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"hostname"] = "lb.example.com" },
			want:   "lb.example.com",
		},
		"no IPv6": {
			change: func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"ipv6-disabled"] = "true" },
			want:   "198.18.0.2 VIP, 10.0.0.2 VIP",
		},
		"UDP beside TCP": {
			change: func(svc *corev1.Service) {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "quic", Port: 80, Protocol: corev1.ProtocolUDP, NodePort: 30080})
				svc.Annotations[lb.HetznerPrefix+"disable-private-ingress"] = "true"
				svc.Annotations[lb.HetznerPrefix+"ipv6-disabled"] = "true"
			},
			want: "198.18.0.2 VIP",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(1), func(w *world) {
				svc := service("web")
				c.change(svc)
				w.create(svc)
				got := w.service("web")
				if ingress(got) != c.want {
					t.Errorf("got %q, want %q", ingress(got), c.want)
				}
			})
		})
	}
}

// A Service that was replaced by another of the same name gets no load balancer, which would have
// no owner.
func TestReplacedServiceGetsNothing(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		refused := 0
		w.api.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			// The API server rejects a patch with another Service's UID; the name belongs to a new
			// Service now.
			if strings.Contains(string(a.(clienttesting.PatchAction).GetPatch()), `"uid":"web-uid"`) {
				refused++
				return true, nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "web", nil)
			}
			return false, nil, nil
		})
		w.create(service("web"))
		if reads, writes := w.cloud.counts(); reads > 2 || len(writes) != 0 || refused == 0 {
			t.Errorf("%d reads, changes %v for a Service that is gone; %d patches carried its UID", reads, writes, refused)
		}
	})
}
