package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/lb"
)

// sharing returns a Service with these TCP ports that shares the load balancer edge, created age
// minutes after a fixed time.
func sharing(name string, age int, ports ...int32) *corev1.Service {
	svc := service(name)
	svc.Annotations[lb.AnnotationShared] = "edge"
	svc.CreationTimestamp = metav1.NewTime(time.Date(2000, 1, 1, 0, age, 0, 0, time.UTC))
	svc.Spec.Ports = nil
	for _, p := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", p), Port: p, Protocol: corev1.ProtocolTCP, NodePort: 30000 + p})
	}
	return svc
}

// createAll creates Services at once.
func (w *world) createAll(all ...*corev1.Service) {
	w.t.Helper()
	for _, svc := range all {
		if _, err := w.api.CoreV1().Services(svc.Namespace).Create(context.Background(), svc,
			metav1.CreateOptions{}); err != nil {
			w.t.Fatal(err)
		}
	}
	w.settle()
}

// requests returns the requests since the last call: reads, including polls of actions, and
// changes.
func (w *world) requests() (reads, writes int) {
	for _, r := range w.cloud.sim.Requests() {
		if r.Method == http.MethodGet {
			reads++
		} else {
			writes++
		}
	}
	w.cloud.sim.ResetRequests()
	return reads, writes
}

// shared lists the owners of each shared load balancer's ports, and the ports of the others, one
// load balancer a line.
func (w *world) shared() string {
	var lines []string
	for _, s := range w.cloud.all() {
		var ports []string
		for _, l := range s.Listeners {
			ports = append(ports, strings.TrimSuffix(fmt.Sprintf("%d=%s", l.Port, strings.TrimSuffix(s.PortOwner(l.Port), "-uid")), "="))
		}
		var sharers []string
		for _, uid := range s.Services() {
			sharers = append(sharers, strings.TrimSuffix(uid, "-uid"))
		}
		name := s.Name
		if i := strings.LastIndex(name, "-"); strings.HasPrefix(name, "shared-") && i > 0 {
			name = name[:i]
		}
		lines = append(lines, fmt.Sprintf("%s %v: %s", name, sharers, strings.Join(ports, " ")))
	}
	return strings.Join(lines, "\n")
}

func (w *world) expectShared(what, want string) {
	w.t.Helper()
	if got := w.shared(); got != want {
		w.t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
	}
}

func TestLifeOfASharedLoadBalancer(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.createAll(service("alone"))
		w.requests()
		w.createAll(service("single"))
		singleReads, singleWrites := w.requests()
		w.delete("single")
		w.requests()

		w.createAll(sharing("a", 1, 80), sharing("b", 2, 81), sharing("c", 3, 82), sharing("d", 4, 83), sharing("e", 5, 84))
		if reads, writes := w.requests(); reads != singleReads || writes != singleWrites {
			t.Errorf("five Services at once cost %d reads and %d changes, one alone %d and %d", reads, writes, singleReads, singleWrites)
		}
		w.expectShared("five Services", "aaloneuid [alone]: 80\nshared-default.edge [a b c d e]: 80=a 81=b 82=c 83=d 84=e")
		for _, name := range []string{"a", "e"} {
			svc := w.service(name)
			if accepted(svc) != "True Accepted" || ingress(svc) != ingress(w.service("a")) || ingress(svc) == "" || len(svc.Finalizers) != 1 {
				t.Errorf("%s: %s, addresses %q", name, accepted(svc), ingress(svc))
			}
		}
		w.edit("a", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationType] = "lb21" })
		w.requests()
		w.cloud.counts()

		w.createAll(sharing("f", 6, 85))
		if reads, writes := w.requests(); reads != 2 ||
			writes != 2 { // before and after; the labels, the port
			t.Errorf("a sixth that joins cost %d reads and %d changes", reads, writes)
		}
		w.expect("a sixth joins", "set 14 labels", "add listener 85 → 30085, http :10256/healthz every 10s, timeout 15s, 3 tries")
		w.delete("c")
		// One read of the group, and two for other load balancers of the Service; the port, the
		// labels.
		if reads, writes := w.requests(); reads != 3 || writes != 2 {
			t.Errorf("one that leaves cost %d reads and %d changes", reads, writes)
		}
		w.expect("one leaves", "delete listener 82", "set 12 labels")
		if svc := w.service("c"); len(svc.Finalizers) != 0 || ingress(svc) != "" || accepted(svc) != "none" {
			t.Errorf("after it left: %v %q %s", svc.Finalizers, ingress(svc), accepted(svc))
		}
		w.expectShared("one left", "aaloneuid [alone]: 80\nshared-default.edge [a b d e f]: 80=a 81=b 83=d 84=e 85=f")

		w.written()
		w.message()
		w.requests()
		w.later()
		if reads, writes := w.requests(); reads > 2 || writes != 0 || w.written() != 0 ||
			len(w.message()) != 0 {
			t.Errorf("at rest %d reads, %d changes", reads, writes)
		}
		w.restart()
		if reads, writes := w.requests(); reads != 1 || writes != 0 || w.written() != 0 {
			t.Errorf("a restart cost %d reads, %d changes", reads, writes)
		}
		for _, name := range []string{"a", "b", "d", "e"} {
			w.delete(name)
		}
		w.expectShared("all but one left", "aaloneuid [alone]: 80\nshared-default.edge [f]: 85=f")
		w.requests()
		w.cloud.counts()
		w.delete("f")
		w.expect("the last", "delete")
		// The group; other load balancers of the Service, by its labels and the peer's, and a
		// verification of that result.
		if reads, writes := w.requests(); reads != 4 || writes != 1 || len(w.service("f").Finalizers) != 0 {
			t.Errorf("the last cost %d reads and %d changes", reads, writes)
		}
		w.expectShared("the last left", "aaloneuid [alone]: 80")
	})
}

func TestConflictOfPorts(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createAll(sharing("b", 2, 80, 81))
		w.createAll(sharing("c", 3, 80))
		w.expectShared("the younger", "shared-default.edge [b c]: 80=b 81=b")
		message := strings.Join(w.message(), "\n")
		if accepted(w.service("b")) != "True Accepted" || accepted(w.service("c")) != "False PortConflict" || ingress(w.service("c")) != "" ||
			!strings.Contains(message, "default/b, which is older") || !strings.Contains(message, "default/c, which shares") {
			t.Errorf("%s; %s, %q; %s", accepted(w.service("b")), accepted(w.service("c")), ingress(w.service("c")), message)
		}
		w.createAll(sharing("a", 1, 80)) // as if its annotation were added later
		w.expectShared("an older one", "shared-default.edge [a b c]: 80=a 81=b")
		b := w.service("b")
		if accepted(b) != "False PortConflict" || len(b.Status.LoadBalancer.Ingress) == 0 {
			t.Errorf("%s %+v", accepted(b), b.Status)
		}
		w.delete("a")
		w.expectShared("gone", "shared-default.edge [b c]: 80=b 81=b")
		if b := w.service("b"); accepted(b) != "True Accepted" {
			t.Errorf("%s %+v", accepted(b), b.Status)
		}
	})
}

// A refused Service keeps its ports, and the others keep working.
func TestOneOfAGroupIsRefused(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createAll(sharing("a", 1, 80), sharing("b", 2, 81))
		was := ingress(w.service("a"))
		for what, change := range map[string]func(*corev1.Service){
			"a value":      func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "many" },
			"a selector":   func(svc *corev1.Service) { svc.Annotations[lb.AnnotationNodeSelector] = "a=b=c" },
			"the name":     func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "Edge" },
			"and adoption": func(svc *corev1.Service) { svc.Annotations["underlay.dev/adopt"] = "true" },
		} {
			before := w.service("a").DeepCopy()
			w.edit("a", change)
			w.edit("b", func(svc *corev1.Service) {
				svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "x", Port: 90, Protocol: "TCP", NodePort: 30090})
			})
			w.later()
			w.expectShared(what, "shared-default.edge [a b]: 80=a 81=b 90=b")
			if a, b := w.service("a"), w.service("b"); accepted(a) != "False InvalidField" || ingress(a) != was || accepted(b) != "True Accepted" {
				t.Errorf("%s: %s %q, %s", what, accepted(a), ingress(a), accepted(b))
			}
			w.edit("b", func(svc *corev1.Service) { svc.Spec.Ports = svc.Spec.Ports[:1] })
			w.edit("a", func(svc *corev1.Service) { svc.Annotations = before.Annotations })
			w.expectShared(what+", corrected", "shared-default.edge [a b]: 80=a 81=b")
		}
	})
}

// allEvents returns all Events since the last call.
func (w *world) allEvents() (all []string) {
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return all
		}
	}
}

// A Service that stops sharing has its own load balancer before its port is closed, and one that
// starts to share is served by the shared one before its own is deleted.
func TestBetweenOwnAndShared(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restart), func(t *testing.T) {
			inWorld(t, newCloud(), nodes(1), func(w *world) {
				a, b := sharing("a", 1, 80), sharing("b", 2, 81)
				delete(b.Annotations, lb.AnnotationShared)
				b.Annotations[lb.AnnotationName] = "front" // a name that only one can have
				w.createAll(a, b)
				own := ingress(w.service("b"))
				w.cloud.counts()
				// At every change, the addresses in the Service's status serve it.
				w.cloud.setFault(func(op lb.Op) error {
					served := false
					svc := w.service("b")
					for _, s := range w.cloud.all() {
						for _, l := range s.Listeners {
							served = served || l.Port == 81 && svc.Status.LoadBalancer.Ingress[0].IP == s.IPv4.String()
						}
					}
					if !served {
						t.Errorf("%s while %q serves nothing", op, ingress(svc))
					}
					return nil
				})
				edit := func(change func(*corev1.Service)) {
					if restart {
						w.stop()
					}
					w.edit("b", change)
					if restart {
						w.start()
					}
					w.settle()
					w.settle()
				}
				edit(func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "edge" })
				w.expectShared("joined", "front [a b]: 80=a 81=b")
				if now := ingress(w.service("b")); now == own || now != ingress(w.service("a")) {
					t.Errorf("addresses %q, before %q", now, own)
				}
				if all := strings.Join(w.allEvents(), "\n"); !strings.Contains(all, "Normal SharingLoadBalancer") {
					t.Errorf("Events %s", all)
				}
				edit(func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationShared) })
				w.later()
				w.expectShared("left", "shared-default.edge [a]: 80=a\nfront [b]: 81")
				if now := ingress(w.service("b")); now == ingress(w.service("a")) {
					t.Errorf("addresses %q", now)
				}
				edit(func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "other" })
				w.expectShared("in another group", "shared-default.edge [a]: 80=a\nfront [b]: 81=b")
				w.edit("a", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "other" })
				w.settle()
				w.later()
				w.expectShared("from one group to another", "front [a b]: 80=a 81=b")
				for _, name := range []string{"a", "b"} {
					w.edit(name, func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationShared) })
				}
				w.later()
				w.expectShared("all left", "aauid [a]: 80\nfront [b]: 81")
			})
		})
	}
}

// A Service keeps its own load balancer while the shared one does not serve all of its ports.
func TestOwnStaysWhileSharedIsNotEnough(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		a, b := sharing("a", 1, 80), sharing("b", 2, 80, 81)
		delete(b.Annotations, lb.AnnotationShared)
		w.createAll(a, b)
		own := ingress(w.service("b"))
		w.edit("b", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "edge" })
		w.later()
		if got := ingress(w.service("b")); got != own || accepted(w.service("b")) != "False PortConflict" {
			t.Errorf("addresses %q, want %q; %s", got, own, accepted(w.service("b")))
		}
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-2", 2), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		for _, s := range w.cloud.all() {
			if len(s.Targets) != 2 {
				t.Errorf("targets of %s: %v", s.Name, s.Targets)
			}
		}
		// It also keeps it when it is refused, although one of its ports is shared.
		w.edit("b", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"health-check-retries"] = "many" })
		w.later()
		if got := ingress(w.service("b")); got != own || len(w.cloud.all()) != 2 {
			t.Errorf("refused: addresses %q, want %q\n%s", got, own, w.cloud)
		}
		w.edit("b", func(svc *corev1.Service) { delete(svc.Annotations, lb.HetznerPrefix+"health-check-retries") })
		w.edit("a", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 90 })
		w.settle()
		w.expectShared("without the conflict", "shared-default.edge [a b]: 80=b 81=b 90=a")
	})
}

// It also keeps it while its status can't be updated with the other addresses.
func TestOwnStaysWhileTheStatusCannotBeWritten(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		a, b := sharing("a", 1, 80), sharing("b", 2, 81)
		delete(b.Annotations, lb.AnnotationShared)
		w.createAll(a, b)
		var failing atomic.Bool
		failing.Store(true)
		w.api.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if failing.Load() && a.(clienttesting.PatchAction).GetName() == "b" {
				return true, nil, errors.New("a webhook says no")
			}
			return false, nil, nil
		})
		w.edit("b", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "edge" })
		w.later()
		if got := w.shared(); !strings.Contains(got, "[b]: 81") {
			t.Errorf("its own is gone:\n%s", got)
		}
		failing.Store(false)
		w.later()
		w.later()
		w.expectShared("in the end", "shared-default.edge [a b]: 80=a 81=b")
	})
}

// Only the configuration allows namespaces to share.
func TestSharingAcrossNamespaces(t *testing.T) {
	project := newCloud()
	inWorld(t, project, nodes(1), func(w *world) {
		w.stop()
		w.defaults.Shared = []lb.SharedName{{Name: "edge", Namespaces: []string{"default", "shop"}}}
		w.start()
		shop, blog := sharing("b", 2, 81), sharing("c", 3, 82)
		shop.Namespace, blog.Namespace = "shop", "blog"
		w.createAll(sharing("a", 1, 80), shop, blog)
		w.expectShared("listed", "shared-edge [a b]: 80=a 81=b")
		if message := strings.Join(w.message(), "\n"); !strings.Contains(message, `underlay.dev/shared="edge": the configuration gives this name to other namespaces`) {
			t.Errorf("said %s", message)
		}
		// After a change of the list, Services that may not share any more keep the load balancer,
		// and their condition reports it.
		w.stop()
		w.defaults.Shared[0].Namespaces = []string{"shop"}
		w.start()
		w.later()
		w.expectShared("not listed any more", "shared-edge [a b]: 80=a 81=b")
		if got := accepted(w.service("a")); got != "False InvalidField" {
			t.Errorf("accepted: %s", got)
		}
		w.delete("a")
		w.settle()
		w.expectShared("deleted", "shared-edge [b]: 81=b")
	})
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		shop := sharing("b", 2, 80)
		shop.Namespace = "shop"
		w.createAll(sharing("a", 1, 80), shop)
		if got := strings.Split(w.shared(), "\n"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"shared-default.edge [a]: 80=a", "shared-shop.edge [b]: 80=b"}) {
			t.Errorf("not listed: %v", got)
		}
	})
}

// A name that is listed later is another load balancer, to which the Services move without an
// interruption.
func TestNameIsListedLater(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		shop := sharing("b", 2, 80)
		shop.Namespace = "shop"
		w.createAll(sharing("a", 1, 80, 81), shop)
		w.stop()
		w.defaults.Shared = []lb.SharedName{{Name: "edge", Namespaces: []string{"default", "shop"}}}
		w.start()
		w.later()
		// Both request the same port, so the younger one keeps its current load balancer.
		if got := strings.Split(w.shared(), "\n"); !slices.Equal(slices.Sorted(slices.Values(got)), []string{"shared-edge [a b]: 80=a 81=a", "shared-shop.edge [b]: 80=b"}) {
			t.Errorf("listed later: %v", got)
		}
		svc, err := w.api.CoreV1().Services("shop").Get(context.Background(), "b", metav1.GetOptions{})
		if err != nil || accepted(svc) != "False PortConflict" || ingress(svc) == "" || ingress(svc) == ingress(w.service("a")) {
			t.Errorf("%v: %s %q", err, accepted(svc), ingress(svc))
		}
	})
}
