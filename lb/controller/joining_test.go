package controller_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

func (w *world) createNode(n *corev1.Node) {
	w.t.Helper()
	if _, err := w.api.CoreV1().Nodes().Create(context.Background(), n,
		metav1.CreateOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

func (w *world) deleteNode(name string) {
	w.t.Helper()
	if err := w.api.CoreV1().Nodes().Delete(context.Background(), name,
		metav1.DeleteOptions{}); err != nil {
		w.t.Fatal(err)
	}
	w.settle()
}

func readiness(status corev1.ConditionStatus) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	}
}

func toBeDeleted(n *corev1.Node) {
	n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
}

// A node is no target before it was Ready, as the cloud may send traffic to targets without a
// verdict. A target stays while its node is not Ready, without requests.
func TestNodesBecomeTargetsOnceTheyAreReady(t *testing.T) {
	inWorld(t, newCloud(), nodes(1), func(w *world) {
		w.create(service("web"))
		edge := service("edge")
		edge.Annotations[lb.AnnotationNodeSelector] = "role=edge"
		w.create(edge)
		w.cloud.counts()

		for _, joining := range []func(*corev1.Node){
			func(n *corev1.Node) { n.Status.Conditions = nil }, readiness(corev1.ConditionFalse),
			readiness(corev1.ConditionUnknown),
		} {
			n := node("new", 2)
			joining(n)
			w.createNode(n)
			w.editNode("new", func(n *corev1.Node) { n.Labels["other"] = "label" })
			w.later()
			w.expect("a node that is not Ready yet")
			w.deleteNode("new")
		}
		n := node("new", 2)
		readiness(corev1.ConditionFalse)(n)
		w.createNode(n)
		w.editNode("new", readiness(corev1.ConditionTrue))
		w.expect("Ready for the first time", "add server 2")

		w.cloud.counts()
		for _, status := range []corev1.ConditionStatus{
			corev1.ConditionFalse, corev1.ConditionTrue, corev1.ConditionUnknown, corev1.ConditionTrue,
			corev1.ConditionUnknown,
		} {
			w.editNode("new", readiness(status))
		}
		if reads, writes := w.cloud.counts(); reads != 0 || len(writes) != 0 {
			t.Errorf("readiness that comes and goes cost %d reads and %v", reads, writes)
		}
		w.later()
		w.restart()
		w.edit("web", func(svc *corev1.Service) { svc.Annotations["example.com/touched"] = "1" })
		w.expect("a target that is not Ready")
		w.create(service("api"))
		w.expect("a Service that is created meanwhile", `create "aapiuid" with 1 listeners and 1 targets`)
		w.editNode("new", readiness(corev1.ConditionTrue))
		w.expect("Ready again", "add server 2")
		w.editNode("new", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		w.expect("cordoned")
		w.deleteNode("new")
		w.expect("gone", "remove server 2", "remove server 2")
	})
}

// Existing targets stay when no node is Ready; a new load balancer without targets is reported.
func TestNoNodeIsReady(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		for _, name := range []string{"node-1", "node-2"} {
			w.editNode(name, readiness(corev1.ConditionUnknown))
		}
		w.message()
		w.cloud.counts()
		w.restart()
		w.later()
		w.expect("no node is Ready")
		if events := w.message(); accepted(w.service("web")) != "True Accepted" || len(events) != 0 {
			t.Errorf("accepted %s, Events %q", accepted(w.service("web")), events)
		}
		w.create(service("api"))
		if events := w.message(); len(events) != 1 || !strings.Contains(events[0], "to be Ready when they join") {
			t.Errorf("a new load balancer without targets is told as %q", events)
		}
	})
}

// The autoscaler's taint keeps a node from being added. A target stays until its Node is deleted:
// its health check keeps new connections away, and removing it would cut those that are being
// drained.
func TestTheAutoscalersTaintRemovesNoTarget(t *testing.T) {
	inWorld(t, newCloud(), nodes(2), func(w *world) {
		w.create(service("web"))
		w.cloud.counts()
		w.editNode("node-2", toBeDeleted)
		w.later()
		w.edit("web", func(svc *corev1.Service) { svc.Annotations["example.com/touched"] = "1" })
		w.restart()
		w.later()
		w.expect("the autoscaler's taint")
		w.create(service("api"))
		w.expect("a load balancer that is made meanwhile", `create "aapiuid" with 1 listeners and 1 targets`)
		w.editNode("node-2", func(n *corev1.Node) { n.Spec.Taints = nil })
		w.expect("the autoscaler thinks better of it", "add server 2")
		w.editNode("node-2", toBeDeleted)
		w.expect("the taint again")
		w.deleteNode("node-2")
		w.expect("the Node is gone", "remove server 2", "remove server 2")
		leaving := node("node-3", 3)
		toBeDeleted(leaving)
		w.createNode(leaving)
		w.expect("a new node with the taint")
		w.editNode("node-1", func(n *corev1.Node) {
			toBeDeleted(n)
			n.Labels[corev1.LabelNodeExcludeBalancers] = "true"
		})
		w.expect("the exclude label beside the taint", "remove server 1", "remove server 1")
	})
}
