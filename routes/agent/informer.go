package agent

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
)

// PeersReachable is the Node condition that is True while the agent has routes to all Nodes.
const PeersReachable corev1.NodeConditionType = "underlay.dev/PeersReachable"

func aboutTargets(annotation string) bool {
	_, ok := podingress.Service(annotation)
	return ok
}

// Targets returns a Node's annotations of pods that load balancers may reach, or nil.
func Targets(node *corev1.Node) map[string]string {
	var found map[string]string
	for key, value := range node.Annotations {
		if aboutTargets(key) {
			if found == nil {
				found = map[string]string{}
			}
			found[key] = value
		}
	}
	return found
}

// Trim returns the transform for an informer of this machine's own Node. It keeps what the agent
// uses, and the annotations keep for other components. Heartbeats don't change the result.
func Trim(keep ...string) cache.TransformFunc {
	return func(obj any) (any, error) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		trimmed := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
				CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
				Annotations: Targets(node),
			},
			Spec: corev1.NodeSpec{
				PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs, ProviderID: node.Spec.ProviderID,
			},
		}
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
				trimmed.Status.Addresses = append(trimmed.Status.Addresses, a)
			}
		}
		for _, key := range append(slices.Clip(keep), kube.ReachAnnotation, kube.WireGuardAnnotation) {
			if value, there := node.Annotations[key]; there {
				metav1.SetMetaDataAnnotation(&trimmed.ObjectMeta, key, value)
			}
		}
		for _, c := range node.Status.Conditions {
			switch c.Type {
			case corev1.NodeReady:
				c = corev1.NodeCondition{Type: c.Type, Status: c.Status}
			case corev1.NodeNetworkUnavailable, PeersReachable:
			default:
				continue
			}
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
		}
		return trimmed, nil
	}
}

// changed reports whether any input of a decision differs in the own Node. Heartbeats don't count.
func changed(old, now *corev1.Node) bool {
	return old == nil || now == nil || !maps.Equal(Targets(old), Targets(now)) ||
		!kube.NodeOf(old).Equal(kube.NodeOf(now))
}
