package controller_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// A load balancer without the group's labels is never shared, and a shared one can't be adopted by
// one Service.
func TestSharedAndForeign(t *testing.T) {
	foreign := lb.State{ID: 50, Name: "shared-default.edge-" + "x", Type: "lb11", Location: "fsn1", Public: true, Labels: map[string]string{"a": "b"}}
	other := lb.State{ID: 51, Name: "theirs", Type: "lb11", Location: "fsn1", Public: true, Labels: map[string]string{lb.LabelCluster: "other", lb.LabelShared: "default.edge", "underlay.dev/svc-a-uid": ""}}
	orphan := lb.State{ID: 52, Name: "orphan", Type: "lb11", Location: "fsn1", Public: true, Labels: map[string]string{lb.LabelCluster: "demo", lb.LabelShared: "default.gone", "underlay.dev/svc-gone": ""}}
	inWorld(t, newCloud(foreign, other, orphan), nodes(1), func(w *world) {
		before := w.cloud.all()
		a := sharing("a", 1, 80)
		a.Annotations[lb.AnnotationName] = "theirs"
		w.createAll(a)
		if got := accepted(w.service("a")); got != "False LoadBalancerNotOwned" {
			t.Errorf("accepted: %s", got)
		}
		w.edit("a", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationName] = "edge" })
		adopter := service("adopter")
		adopter.Annotations[lb.AnnotationName], adopter.Annotations["underlay.dev/adopt"] = "edge", "true"
		w.createAll(adopter)
		if got := accepted(w.service("adopter")); got != "False LoadBalancerNotOwned" {
			t.Errorf("accepted: %s", got)
		}
		w.delete("adopter")
		w.delete("a")
		w.later()
		if after := w.cloud.all(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("others changed:\n%v\n%v", after, before)
		}
	})
}

// A cluster of the same name in the same project has a load balancer of the same group: neither is
// changed.
func TestGroupOfAnotherCluster(t *testing.T) {
	other := lb.State{
		ID: 51, Name: "theirs", Type: "lb11", Location: "fsn1", Public: true,
		Labels: map[string]string{lb.LabelCluster: "demo", lb.LabelShared: "default.edge", "underlay.dev/svc-theirs": "", "underlay.dev/port-80": "theirs"},
		Listeners: []lb.Listener{
			{
				Port: 80, DestinationPort: 30080, Protocol: lb.ProtocolTCP,
				Check: lb.HealthCheck{
					Protocol: lb.ProtocolTCP, Port: 30080, Interval: 10 * time.Second, Timeout: 5 * time.Second,
					Retries: 3,
				},
			},
		},
	}
	inWorld(t, newCloud(other), nodes(1), func(w *world) {
		before := w.cloud.all()
		w.createAll(sharing("a", 1, 81))
		w.later()
		if got := accepted(w.service("a")); got != "False LoadBalancerNotOwned" {
			t.Errorf("accepted: %s", got)
		}
		w.delete("a")
		w.later()
		if after := w.cloud.all(); fmt.Sprint(after) != fmt.Sprint(before) {
			t.Errorf("others changed:\n%v\n%v", after, before)
		}
	})
}

// A taken name keeps no Service from joining or leaving.
func TestNameOfAGroupIsTaken(t *testing.T) {
	foreign := lb.State{ID: 50, Name: "theirs", Type: "lb11", Location: "fsn1", Public: true, Labels: map[string]string{"a": "b"}}
	inWorld(t, newCloud(foreign), nodes(1), func(w *world) {
		w.createAll(sharing("a", 1, 80), sharing("b", 2, 81))
		w.edit("a", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationName] = "theirs" })
		w.createAll(sharing("c", 3, 82))
		w.delete("b")
		w.later()
		if got := w.shared(); !strings.Contains(got, "shared-default.edge [a c]: 80=a 82=c") {
			t.Errorf("shared:\n%s", got)
		}
		if svc := w.service("b"); len(svc.Finalizers) != 0 {
			t.Errorf("b keeps %v", svc.Finalizers)
		}
	})
}

// A Service keeps pods as targets of its own load balancer while the shared one does not serve all
// of its ports.
func TestPodsWhileSharing(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		web := podService()
		web.CreationTimestamp = sharing("web", 2).CreationTimestamp
		p.states = map[lb.Target]string{podAt(1, 1): "ready"}
		p.publish()
		w.createAll(sharing("a", 1, web.Spec.Ports[0].Port), web)
		w.edit("web", func(svc *corev1.Service) {
			delete(svc.Annotations, lb.AnnotationTargets)
			svc.Annotations[lb.AnnotationShared] = "edge"
			svc.Spec.Ports[0].NodePort = 30080
		})
		w.later()
		p.are(map[lb.Target]string{podAt(2, 2): "ready"})
		w.later()
		i := slices.IndexFunc(w.cloud.all(), func(s lb.State) bool { return s.Name == "awebuid" })
		if i < 0 || !slices.Contains(w.cloud.all()[i].Targets, podAt(2, 2)) {
			t.Errorf("the new pod is no target:\n%s", w.cloud)
		}
		if got := w.openings(); !strings.Contains(got, podAt(2, 2).Address.String()) {
			t.Errorf("the new pod is closed: %s", got)
		}
	})
}

// The port of a Service that is deleted while no controller runs is closed, even if its annotation
// was removed, and the labels of missing Services are removed.
func TestGroupAfterARestart(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createAll(sharing("a", 1, 80), sharing("b", 2, 81), sharing("c", 3, 82), sharing("d", 4, 83))
		w.stop()
		w.edit("b", func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationShared) })
		w.delete("b")
		w.edit("c", func(svc *corev1.Service) {
			svc.Spec.Type, svc.Status = corev1.ServiceTypeClusterIP, corev1.ServiceStatus{}
		})
		if err := w.api.CoreV1().Services("default").Delete(context.Background(), "d", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		w.start()
		w.settle()
		w.later()
		w.expectShared("restarted", "shared-default.edge [a]: 80=a")
		for _, name := range []string{"b", "c"} {
			if svc := w.service(name); len(svc.Finalizers) != 0 {
				t.Errorf("%s keeps %v", name, svc.Finalizers)
			}
		}
	})
}

func TestNodesOfAGroup(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		b := sharing("b", 2, 81)
		b.Annotations[lb.AnnotationNodeSelector] = "role=edge"
		w.editNode("node-2", func(n *corev1.Node) { n.Labels["role"] = "edge" })
		w.createAll(sharing("a", 1, 80), b, sharing("c", 3, 82))
		if got := w.cloud.all()[0].Targets; len(got) != 1 || got[0].Server != 2 {
			t.Errorf("targets %v", got)
		}
		w.cloud.counts()
		w.editNode("node-1", func(n *corev1.Node) { n.Labels["role"] = "edge" })
		if reads, writes := w.cloud.counts(); reads != 1 || !slices.Equal(writes, []string{"add server 1"}) {
			t.Errorf("%d reads, %v", reads, writes)
		}
		w.edit("b", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationNodeSelector] = "role=none" })
		w.expectShared("no common node", "shared-default.edge [a b c]: 80=a 82=c")
		if got := accepted(w.service("b")); got != "False NoCommonNode" || len(w.cloud.all()[0].Targets) != 2 {
			t.Errorf("%s, targets %v", got, w.cloud.all()[0].Targets)
		}
	})
}

// A rejected port is reported at the Service that owns it, and the other Services keep working.
func TestRefusedPortOfAGroup(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createAll(sharing("a", 1, 80))
		w.cloud.setFault(func(op lb.Op) error {
			if add, ok := op.(lb.AddListener); ok && add.Listener.Port == 81 {
				return &lb.RejectedError{Code: "invalid_input", Message: "no"}
			}
			return nil
		})
		w.createAll(sharing("b", 2, 81), sharing("c", 3, 82))
		w.expectShared("refused", "shared-default.edge [a b c]: 80=a 82=c")
		if a, b, c := accepted(w.service("a")), accepted(w.service("b")), accepted(w.service("c")); a != "True Accepted" || b != "False Rejected" || c != "True Accepted" {
			t.Errorf("%s, %s, %s", a, b, c)
		}
	})
}

// A certificate that is being obtained, or can't be, delays no other Service; and one for a port of
// an older Service is not obtained again and again.
func TestCertificatesOfAGroup(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		https := func(name string, age int, domain string, port int32) *corev1.Service {
			svc := sharing(name, age, port)
			for key, value := range map[string]string{"protocol": "https", "certificate-type": "managed", "http-managed-certificate-domains": domain} {
				svc.Annotations[lb.HetznerPrefix+key] = value
			}
			return svc
		}
		named := sharing("named", 4, 446)
		named.Annotations[lb.HetznerPrefix+"protocol"], named.Annotations[lb.HetznerPrefix+"http-certificates"] = "https", "nowhere"
		w.cloud.setFault(func(op lb.Op) error {
			if create, ok := op.(lb.CreateCertificate); ok && create.Owner.UID == "a-uid" {
				return &lb.RejectedError{Code: "invalid_input", Message: "no"}
			}
			return nil
		})
		w.createAll(https("a", 1, "a.example.com", 444), https("b", 2, "b.example.com", 445), sharing("c", 3, 80), named, https("e", 5, "e.example.com", 80))
		w.later()
		w.expectShared("one certificate refused", "shared-default.edge [a b c e named]: 80=c 445=b")
		for name, want := range map[string]string{"a": "False Rejected", "b": "True Accepted", "c": "True Accepted", "named": "False InvalidField", "e": "False PortConflict"} {
			if got := accepted(w.service(name)); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		w.cloud.setFault(nil)
		w.later()
		w.expectShared("in the end", "shared-default.edge [a b c e named]: 80=c 444=a 445=b")
		w.cloud.counts()
		w.later()
		if _, writes := w.cloud.counts(); len(writes) > 0 {
			t.Errorf("at rest: %v", writes)
		}
		for _, name := range []string{"a", "b", "c", "named", "e"} {
			w.delete(name)
		}
		w.settle()
		if all, err := w.cloud.client.Certificates(context.Background()); err != nil || len(all) > 0 ||
			len(w.cloud.all()) > 0 {
			t.Errorf("left behind: %v, %v\n%s", all, err, w.cloud)
		}
	})
}

// A Service that left and may not have its own load balancer is still served by the shared one, and
// shows its addresses.
func TestLeavingForNothing(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createAll(sharing("a", 1, 80), sharing("b", 2, 81))
		was := ingress(w.service("b"))
		w.edit("b", func(svc *corev1.Service) {
			delete(svc.Annotations, lb.AnnotationShared)
			svc.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		})
		w.later()
		w.expectShared("left", "shared-default.edge [a b]: 80=a 81=b")
		if b := w.service("b"); ingress(b) != was || accepted(b) != "False UnsupportedField" {
			t.Errorf("%s %q", accepted(b), ingress(b))
		}
		if _, err := w.api.CoreV1().Nodes().Create(context.Background(), node("node-2", 2), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if targets := w.cloud.all()[0].Targets; len(targets) != 2 {
			t.Errorf("targets %v", targets)
		}
		w.edit("b", func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = nil })
		w.settle()
		w.expectShared("may have its own", "shared-default.edge [a]: 80=a\nabuid [b]: 81")
	})
}

// A setting that the whole load balancer can't have is reported at the Service that requests it,
// and the verdicts on a port's targets at the Service that owns the port.
func TestNotesGoToTheRightService(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		b := sharing("b", 2, 81)
		w.createAll(sharing("a", 1, 80), b, sharing("c", 3, 82))
		w.edit("b", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationLocation] = "nbg1" })
		if a, b := accepted(w.service("a")), accepted(w.service("b")); a != "True Accepted" || b != "False ImmutableField" {
			t.Errorf("%s, %s", a, b)
		}
		w.edit("b", func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationLocation) })
		have := w.cloud.all()[0]
		w.cloud.change(have.ID, func(s *lb.State) {
			s.Verdicts = map[int]map[lb.Target]lb.Verdict{
				80: verdicts(s.Targets, 2, 0), 81: verdicts(s.Targets, 0, 2), 82: verdicts(s.Targets, 1, 1),
			}
		})
		w.later()
		w.later()
		if a, b, c := accepted(w.service("a")), accepted(w.service("b")), accepted(w.service("c")); a != "True Accepted" || b != "False NoHealthyTarget" || c != "True Accepted" {
			t.Errorf("%s, %s, %s", a, b, c)
		}
	})
}

// If a Service starts to share while its own load balancer is being created, that is deleted; if
// one leaves while its port is being opened, the port is closed.
func TestChangesOfMindMeanwhile(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.createAll(sharing("a", 1, 80))
		w.cloud.setFault(func(lb.Op) error {
			time.Sleep(5 * time.Second)
			return nil
		})
		b := sharing("b", 2, 81)
		delete(b.Annotations, lb.AnnotationShared)
		w.createAll(b)
		edit := func(change func(*corev1.Service)) {
			w.edit("b", change)
			time.Sleep(20 * time.Second)
			w.settle()
		}
		edit(func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "edge" })
		time.Sleep(20 * time.Second)
		w.settle()
		w.expectShared("began meanwhile", "shared-default.edge [a b]: 80=a 81=b")
		if got := ingress(w.service("b")); got != ingress(w.service("a")) {
			t.Errorf("addresses %q", got)
		}
		w.edit("b", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 90 })
		edit(func(svc *corev1.Service) { delete(svc.Annotations, lb.AnnotationShared) })
		w.later()
		w.expectShared("left meanwhile", "shared-default.edge [a]: 80=a\nabuid [b]: 90")
		if got := ingress(w.service("b")); got == ingress(w.service("a")) || got == "" {
			t.Errorf("addresses %q", got)
		}
	})
}

// A Service that the API server refuses to update doesn't delay the others.
func TestOneOfAGroupCannotBeWritten(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.api.PrependReactor("patch", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if a.(clienttesting.PatchAction).GetName() == "b" {
				return true, nil, errors.New("a webhook says no")
			}
			return false, nil, nil
		})
		w.createAll(sharing("a", 1, 80), sharing("b", 2, 81), sharing("c", 3, 82))
		w.expectShared("the others", "shared-default.edge [a c]: 80=a 82=c")
		if a, c := accepted(w.service("a")), accepted(w.service("c")); a != "True Accepted" || c != a {
			t.Errorf("%s, %s", a, c)
		}
	})
}

// A load balancer is kept when a setting excludes its Services, and deleted with them; another
// class deletes it.
func TestClassOfAGroup(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		a := sharing("a", 1, 80)
		a.Annotations[lb.AnnotationName], a.Annotations[lb.AnnotationType] = "front", "lb21"
		w.createAll(a, sharing("b", 2, 81), sharing("c", 3, 82))
		w.edit("c", func(svc *corev1.Service) {
			other := "example.com/other"
			svc.Spec.LoadBalancerClass = &other
		})
		w.expectShared("another class", "front [a b]: 80=a 81=b")
		if c := w.service("c"); accepted(c) != "none" {
			t.Errorf("accepted: %s", accepted(c))
		}
		w.stop()
		w.defaults.Classless = false
		w.start()
		w.cloud.counts()
		w.edit("a", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 90 })
		w.later()
		w.expect("switched off")
		if a := w.service("a"); ingress(a) == "" {
			t.Error("no addresses")
		}
		w.delete("a")
		w.later()
		w.expectShared("deleted", "front [b]: 81=b")
		w.delete("b")
		w.later()
		if len(w.cloud.all()) != 0 || len(w.service("a").Finalizers)+len(w.service("b").Finalizers) != 0 {
			t.Errorf("left behind:\n%s", w.cloud)
		}
	})
}
