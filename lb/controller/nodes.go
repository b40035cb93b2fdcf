package controller

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

// toBeDeletedTaint is set by the cluster autoscaler before it removes a node.
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// Target returns the cloud server behind a node, and whether it may be a target: dedicated servers
// may not. Readiness is not asked for, as in upstream's controller: health checks judge nodes
// faster and more finely. It matters to a node that is no target yet, see [joins].
func Target(node *corev1.Node) (server int64, ok bool) {
	if !node.DeletionTimestamp.IsZero() || excluded(node) {
		return 0, false
	}
	server, err := kube.ParseProviderID(node.Spec.ProviderID)
	return server, err == nil
}

// joins reports whether a node may become a target. A new node waits until it is Ready, because the
// cloud may send traffic to targets that it has not judged yet; one that the autoscaler is about to
// remove is not worth it. Either stays if it is a target: its health check takes new connections
// away from it, and removing the target would cut those that are being drained.
func joins(node *corev1.Node) bool {
	_, ok := Target(node)
	return ok && kube.Ready(node) && !kube.Tainted(node, toBeDeletedTaint)
}

// isTarget reports whether a Service's last plan wanted the server as a target.
func (c *Controller) isTarget(svc *corev1.Service, server int64) bool {
	known, _ := c.targets.Load(nameOf(svc))
	servers, _ := known.([]int64)
	return slices.Contains(servers, server)
}

// selects reports whether a Service's node selector, if it can be read, matches a node.
func selects(svc *corev1.Service, node *corev1.Node) bool {
	selector, err := labels.Parse(svc.Annotations[lb.AnnotationNodeSelector])
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

// excluded reads the label that keeps a node away from load balancers. Any value excludes but one
// that says false.
func excluded(node *corev1.Node) bool {
	value, set := node.Labels[corev1.LabelNodeExcludeBalancers]
	if !set {
		return false
	}
	exclude, err := strconv.ParseBool(value)
	return err != nil || exclude
}

// reasonNoNodes is upstream's name for a load balancer without targets.
const reasonNoNodes = "UnAvailableLoadBalancer"

func noNodes() lb.Note {
	return lb.Note{
		Grade: lb.Warning, Reason: reasonNoNodes,
		Text: "no node can be a target: nodes need a provider ID hcloud://…, to be Ready when they join, no label " + corev1.LabelNodeExcludeBalancers + ", and to match the node selector if there is one",
	}
}
