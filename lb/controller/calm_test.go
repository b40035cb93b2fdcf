package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

// A failed list of certificates removes neither the addresses of a load balancer that works nor the
// access to its pods.
func TestAddressesStayWhileCertificatesCannotBeListed(t *testing.T) {
	inPodWorld(t, hcloudsim.Options{}, func(w *world, p *pods) {
		w.cloud.addCertificate("mine", "example.net")
		svc := podService()
		https(svc, "http-certificates", "mine")
		w.create(svc)
		p.are(map[lb.Target]string{podAt(1, 1): "ready", podAt(2, 1): "ready"})
		before, open := ingress(w.service("web")), w.openings()
		w.cloud.hideCertificates(errors.New("unreachable"))
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.HetznerPrefix+"algorithm-type"] = "least_connections" })
		w.later()
		if got := ingress(w.service("web")); got != before || before == "" {
			t.Errorf("addresses %q, were %q", got, before)
		}
		if got := w.openings(); got != open || open == "" {
			t.Errorf("open pods:\n%s\nwere:\n%s", got, open)
		}
		w.cloud.hideCertificates(nil)
		w.later()
		if got := w.cloud.all()[0].Algorithm; got != lb.LeastConnections {
			t.Errorf("afterwards the algorithm is %s", got)
		}
	})
}

// A port that is replaced does not remove the addresses if the new one can't be opened for now.
func TestAddressesStayWhileAPortIsReplaced(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		before := ingress(w.service("web"))
		w.cloud.setFault(func(op lb.Op) error {
			if _, add := op.(lb.AddListener); add {
				return errors.New("unreachable")
			}
			return nil
		})
		w.edit("web", func(svc *corev1.Service) { svc.Spec.Ports[0].Port = 8080 })
		if got := ingress(w.service("web")); got != before || before == "" {
			t.Errorf("addresses %q, were %q", got, before)
		}
	})
}

// A node that can't be a target costs Services with certificates no request in between the retries,
// and changes of nodes that change no target cost none at all.
func TestServicesWithCertificatesAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, newCloud(), nodes(2))
		w.reachable = func(context.Context, time.Time) (map[lb.Target]bool, error) {
			return map[lb.Target]bool{{Server: 3, Private: true}: false}, nil
		}
		w.start()
		defer func() { w.stop() }()
		w.cloud.setFault(func(op lb.Op) error {
			if add, ok := op.(lb.AddTarget); ok && add.Target.Server == 3 {
				return &lb.RejectedError{Code: "server_not_attached_to_network", Message: "server 3 is not attached", Target: true}
			}
			return nil
		})
		w.cloud.addCertificate("mine", "example.net")
		for i := range 3 {
			svc := inNetwork(fmt.Sprint("web-", i))
			https(svc, "http-certificates", "mine")
			w.create(svc)
		}
		w.createNode(node("node-3", 3))
		w.later()
		w.requests()
		time.Sleep(time.Hour)
		w.settle()
		// Each five minutes a list of load balancers and one of certificates, and some retries.
		if reads, _ := w.requests(); reads > 40 {
			t.Errorf("%d reads in an hour", reads)
		}
		for i := range 20 {
			w.editNode("node-1", func(n *corev1.Node) {
				n.Labels = map[string]string{"changed": fmt.Sprint(i)}
			})
			time.Sleep(2 * time.Second)
		}
		w.settle()
		if reads, _ := w.requests(); reads > 4 {
			t.Errorf("%d reads for 20 changes of a node", reads)
		}
	})
}

// A Service whose name is taken has no targets, so changes of nodes cost no request.
func TestATakenNameIsNotLookedUpWhenNodesChange(t *testing.T) {
	inWorld(t, newCloud(lb.State{ID: 1, Name: "awebuid"}), nodes(1), func(w *world) {
		w.create(takenOver())
		w.later()
		if got := accepted(w.service("web")); got != "False "+lb.ReasonNotOwned {
			t.Fatalf("accepted: %s", got)
		}
		w.requests()
		for i := range 20 {
			w.editNode("node-1", func(n *corev1.Node) {
				n.Labels = map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i)}
			})
			time.Sleep(2 * time.Second)
		}
		w.settle()
		if reads, _ := w.requests(); reads > 5 {
			t.Errorf("%d reads for 20 changes of a node", reads)
		}
	})
}

// A Service that begins to share leaves a load balancer that is protected, which costs money and
// whose targets nothing updates any more: an Event reports it.
func TestAProtectedLoadBalancerThatIsLeftIsReported(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		w.cloud.protect(w.cloud.all()[0].ID, true)
		w.edit("web", func(svc *corev1.Service) { svc.Annotations[lb.AnnotationShared] = "edge" })
		w.later()
		if all := w.cloud.all(); len(all) != 2 {
			t.Fatalf("load balancers:\n%s", w.cloud)
		}
		if events := strings.Join(w.message(), "\n"); !strings.Contains(events, "protect") {
			t.Errorf("Events:\n%s", events)
		}
		for i := range 5 {
			w.editNode("node-1", func(n *corev1.Node) {
				n.Labels = map[string]string{corev1.LabelTopologyZone: fmt.Sprint(i)}
			})
			w.settle()
		}
		if events := strings.Join(w.message(), "\n"); strings.Contains(events, "protect") {
			t.Errorf("again, although the deletion was not tried again:\n%s", events)
		}
	})
}
