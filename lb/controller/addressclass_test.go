package controller_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb/controller"
)

// heldByNodes returns a Service with an address that a node holds, as the controller of addresses
// leaves it.
func heldByNodes(name string) *corev1.Service {
	svc := service(name)
	class := kube.AddressClass
	svc.Spec.LoadBalancerClass = &class
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.17"}}
	meta.SetStatusCondition(&svc.Status.Conditions, metav1.Condition{Type: controller.ConditionAccepted, Status: metav1.ConditionTrue, Reason: "Accepted"})
	return svc
}

// Another controller, with the same condition, serves addresses that nodes hold: this one writes
// nothing.
func TestServicesWithAddressesOfNodesAreLeftAlone(t *testing.T) {
	inWorld(t, newCloud(), append(nodes(1), heldByNodes("held")), func(w *world) {
		w.edit("held", func(svc *corev1.Service) { svc.Annotations["a"] = "b" })
		w.later()
		if n := w.written(); n > 0 {
			t.Errorf("%d writes", n)
		}
		w.expect("held by nodes")
		if got := w.service("held"); ingress(got) != "192.0.2.17" || accepted(got) != "True Accepted" {
			t.Errorf("%s, %s", ingress(got), accepted(got))
		}
	})
}

// A Service that had a load balancer, and still has the finalizer, is released, and keeps the
// status that the other controller wrote.
func TestAServiceMovesFromALoadBalancerToNodes(t *testing.T) {
	svc := heldByNodes("moved")
	svc.Finalizers = []string{finalizer}
	inWorld(t, newCloud(), append(nodes(1), svc), func(w *world) {
		w.later()
		got := w.service("moved")
		if slices.Contains(got.Finalizers, finalizer) || ingress(got) != "192.0.2.17" || accepted(got) != "True Accepted" {
			t.Errorf("finalizers %v, %s, %s", got.Finalizers, ingress(got), accepted(got))
		}
		if w.written(); w.written() > 0 {
			t.Error("it is written again")
		}
	})
}
