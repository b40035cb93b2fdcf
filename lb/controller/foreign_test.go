package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/lb"
)

// takenOver returns a Service that another controller served until now.
func takenOver() *corev1.Service {
	svc := service("web")
	svc.Finalizers = []string{finalizer}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.9"}}
	return svc
}

// A controller without a load balancer for the Service doesn't remove the addresses of another
// owner's load balancer from the status.
func TestAddressesOfOthersStay(t *testing.T) {
	quota := &lb.RejectedError{Code: "resource_limit_exceeded", Message: "no more load balancers"}
	for name, c := range map[string]struct {
		foreign []lb.State
		fault   error
		want    string // the condition
		left    string // a part of the Event at the Service's deletion
	}{
		"its name is taken":       {foreign: []lb.State{{ID: 1, Name: "awebuid"}}, want: "False LoadBalancerNotOwned", left: "the load balancer of another owner was left alone"},
		"the cloud is silent":     {fault: errors.New("unreachable"), want: "Unknown Pending", left: "198.51.100.9 was left alone"},
		"the cloud refuses a new": {fault: quota, want: "False Rejected", left: "198.51.100.9 was left alone"},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(c.foreign...), nodes(1), func(w *world) {
				if c.fault != nil {
					w.cloud.setFault(func(lb.Op) error { return c.fault })
				}
				w.create(takenOver())
				w.later()
				w.restart()
				w.later()
				if got := w.service("web"); ingress(got) != "198.51.100.9" || accepted(got) != c.want {
					t.Errorf("addresses %q, accepted %s", ingress(got), accepted(got))
				}
				w.message()
				w.delete("web")
				if got := w.service("web"); len(got.Finalizers) != 0 || len(w.cloud.all()) != len(c.foreign) {
					t.Errorf("finalizers %v, cloud:\n%s", got.Finalizers, w.cloud)
				}
				if events := w.message(); len(events) != 1 || !strings.Contains(events[0], c.left) {
					t.Errorf("the end of the Service was told as %q, want %q", events, c.left)
				}
			})
		})
	}
}

func TestAddressesAreReplacedAtTakeover(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(takenOver())
		if got := ingress(w.service("web")); !strings.HasPrefix(got, "198.18.0.2 VIP") {
			t.Errorf("addresses %q, want those of the new load balancer", got)
		}
	})
}

// With another --cluster-name, the controller's own load balancers count as another owner's; they
// keep working.
func TestClusterRenamed(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		before := ingress(w.service("web"))
		w.stop()
		w.defaults.Cluster = "another"
		w.cloud.setFault(func(lb.Op) error { return errors.New("unreachable") })
		w.start()
		w.later()
		w.cloud.setFault(nil)
		w.later()
		if got := w.service("web"); ingress(got) != before || accepted(got) != "False LoadBalancerNotOwned" {
			t.Errorf("addresses %q, accepted %s", ingress(got), accepted(got))
		}
	})
}

// The addresses of a lost load balancer are soon another customer's.
func TestAddressesOfALostLoadBalancerGo(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		if err := w.cloud.Apply(w.t.Context(), w.cloud.all()[0], lb.Delete{}); err != nil {
			t.Fatal(err)
		}
		w.cloud.setFault(func(lb.Op) error { return &lb.RejectedError{Code: "resource_limit_exceeded"} })
		w.later()
		if got := w.service("web"); ingress(got) != "" || accepted(got) != "False Rejected" {
			t.Errorf("addresses %q, accepted %s", ingress(got), accepted(got))
		}
	})
}

// The list of a new leader may be older than the deletion of a Service.
func TestNothingIsMadeForAServiceThatIsGone(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		stale := w.service("web")
		w.delete("web")
		w.stop()
		if err := w.api.CoreV1().Services("default").Delete(context.Background(), "web", metav1.DeleteOptions{}); err != nil {
			w.t.Fatal(err)
		}
		w.api.PrependReactor("list", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &corev1.ServiceList{Items: []corev1.Service{*stale}}, nil
		})
		w.written()
		w.start()
		w.later()
		if n := w.written(); len(w.cloud.all()) != 0 || n != 0 {
			t.Errorf("%d writes to the API server, cloud:\n%s", n, w.cloud)
		}
	})
}

func TestTheServiceIsReadBeforeACreation(t *testing.T) {
	for name, live := range map[string]func(*corev1.Service){
		"on its way out":      func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"replaced by another": func(svc *corev1.Service) { svc.UID = "another" },
		"of another type":     func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeNodePort },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(1), func(w *world) {
				w.api.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
					svc := service("web")
					live(svc)
					return true, svc, nil
				})
				w.create(service("web"))
				w.expect("a Service that the cache has not caught up with")
			})
		})
	}
}

func TestOrphansAreCountedAndKept(t *testing.T) {
	orphan := lb.State{ID: 7, Name: "orphan", Labels: lb.Owner{Cluster: "demo", UID: "gone"}.Labels()}
	other := lb.State{ID: 8, Name: "other", Labels: lb.Owner{Cluster: "another", UID: "gone"}.Labels()}
	inWorld(t, newCloud(orphan, other), nodes(1), func(w *world) {
		w.create(service("web"))
		w.later()
		if n := w.gauge("underlay_lb_orphaned_load_balancers"); n != 1 || len(w.cloud.all()) != 3 {
			t.Errorf("%v orphans counted, want 1; cloud:\n%s", n, w.cloud)
		}
		if err := w.cloud.Apply(w.t.Context(), orphan, lb.Delete{}); err != nil {
			t.Fatal(err)
		}
		w.later()
		if n := w.gauge("underlay_lb_orphaned_load_balancers"); n != 0 {
			t.Errorf("%v orphans counted, want none", n)
		}
	})
}

func (w *world) gauge(name string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	w.t.Fatalf("no metric %s", name)
	return 0
}

// A Service moved to another implementation before its load balancer was removed: the other one's
// status and finalizer are kept, also if the Service is deleted before the removal ends.
func TestHandedOver(t *testing.T) {
	for name, deleted := range map[string]bool{"stays": false, "is deleted": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, newCloud(), nodes(1), func(w *world) {
				w.create(service("web"))
				id := w.cloud.all()[0].ID
				w.cloud.protect(id, true)
				w.edit("web", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
				w.edit("web", toAnother)
				if deleted {
					w.delete("web")
				}
				w.cloud.protect(id, false)
				w.later()
				got := w.service("web")
				if len(got.Finalizers) != 1 || ingress(got) != "192.0.2.77" || accepted(got) != "none" || len(w.cloud.all()) != 0 {
					t.Errorf("finalizers %v, addresses %q, accepted %s, cloud:\n%s", got.Finalizers, ingress(got), accepted(got), w.cloud)
				}
			})
		})
	}
}

func toAnother(svc *corev1.Service) {
	other := "example.com/other"
	svc.Spec.Type, svc.Spec.LoadBalancerClass = corev1.ServiceTypeLoadBalancer, &other
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.77"}}
}

// The Service is handed over while its load balancer is being deleted, and the cache is not updated
// yet.
func TestHandedOverInTheMeantime(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		conflicts := 0
		w.api.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			// The API server rejects a patch of an object that was changed since.
			patch := string(a.(clienttesting.PatchAction).GetPatch())
			if conflicts > 0 || !strings.Contains(patch, `"resourceVersion"`) {
				return false, nil, nil
			}
			conflicts++
			return true, nil, apierrors.NewConflict(corev1.Resource("services"), "web", nil)
		})
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
		w.edit("web", toAnother)
		w.later()
		if got := w.service("web"); conflicts != 1 || len(got.Finalizers) != 1 || ingress(got) != "192.0.2.77" || accepted(got) != "none" {
			t.Errorf("%d conflicts, finalizers %v, addresses %q, accepted %s", conflicts, got.Finalizers, ingress(got), accepted(got))
		}
	})
}

// A refused Service has a working load balancer: its targets still follow the nodes.
func TestRefusedServiceKeepsItsTargetsUpToDate(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		svc := service("web")
		svc.Annotations[lb.HetznerPrefix+"use-private-ip"] = "true"
		w.create(svc)
		w.edit("web", func(svc *corev1.Service) {
			svc.Annotations = map[string]string{lb.HetznerPrefix + "health-check-retries": "9"}
			svc.Spec.Ports[0].Port = 81
		})
		w.cloud.counts()
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-2", 2), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("a node joins", "add server 2 (private)")
		if err := w.api.CoreV1().Nodes().Delete(context.Background(), "node-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		w.expect("a node leaves", "remove server 1 (private)")
		got := w.service("web")
		if message := got.Status.Conditions[0].Message; accepted(got) != "False InvalidField" || ingress(got) == "" || !strings.Contains(message, "its ports follow") {
			t.Errorf("accepted %s, addresses %q: %s", accepted(got), ingress(got), message)
		}
		w.message()
		w.written()
		w.later()
		w.restart()
		if n := w.written(); n != 0 || len(w.message()) != 0 {
			t.Errorf("%d writes to the API server at rest", n)
		}
		// Without a valid selector it is unknown which nodes are selected.
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationNodeSelector] = "===" })
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-3", 3), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.later()
		w.expect("a selector that says nothing")
	})
}

func TestOneCauseIsAnnouncedOnce(t *testing.T) {
	for _, mistakes := range []int{0, 80} { // 80 are more than a condition has room for
		inWorld(t, newCloud(), nodes(1), func(w *world) {
			w.cloud.setFault(func(lb.Op) error {
				return &lb.RejectedError{Code: "resource_limit_exceeded", Message: "load balancer limit exceeded"}
			})
			svc := service("web")
			for i := range mistakes {
				svc.Annotations[lb.HetznerPrefix+strings.Repeat("x", i+1)] = "1"
			}
			w.create(svc)
			first := len(w.message())
			for i := range 5 {
				if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node(fmt.Sprint("new-", i), 100+i), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.settle()
			}
			w.later()
			if n := len(w.message()); first == 0 || n != 0 {
				t.Errorf("%d mistakes: %d Events at first, %d more for the same causes", mistakes, first, n)
			}
		})
	}
}

// The cloud doesn't distinguish the target that could not be removed from the wanted one.
func TestTargetThatCannotBeRemovedIsNotAdded(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		w.cloud.setFault(func(op lb.Op) error {
			if remove, ok := op.(lb.RemoveTarget); ok && remove.Target.Server == 1 {
				return errors.New("unreachable")
			}
			return nil
		})
		w.cloud.counts()
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"use-private-ip"] = "true" })
		w.expect("targets become private", "remove server 1")
	})
}
