package agent

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
)

// PeersReachable is the condition of a Node that says whether its agent can
// route to every other Node.
const PeersReachable corev1.NodeConditionType = "underlay.dev/PeersReachable"

const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// Read are the fields of a Node that Trim looks at, and the annotation with which an API server
// ends its first listing on a watch (k8s.io/api/core/v1/generated.proto, and
// k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto). keep are Trim's.
func Read(self string, keep ...string) kube.Fields {
	const name, uid, resourceVersion, created, deleted, labels, annotations = 1, 5, 6, 8, 9, 11, 12
	const podCIDR, podCIDRs = 1, 7
	const conditions, addresses = 4, 5
	read := kube.Annotations(func(node, key string) bool {
		return key == metav1.InitialEventsAnnotationKey || node == self && (aboutTargets(key) || slices.Contains(keep, key))
	})
	return kube.Fields{
		1: {Of: kube.Fields{name: {}, uid: {}, resourceVersion: {}, created: {}, deleted: {}, labels: {}, annotations: read}},
		2: {Of: kube.Fields{podCIDR: {}, podCIDRs: {}}},
		3: {Of: kube.Fields{conditions: {}, addresses: {}}},
	}
}

func aboutTargets(annotation string) bool {
	_, ok := podingress.Service(annotation)
	return ok
}

// Targets are the annotations of a Node that say which of its pods load balancers may reach; nil:
// none.
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

// Trim makes the informer's transform: it keeps of a Node only what the agent uses,
// and of all but this machine's only what leads to its pods. A cluster's Nodes are
// nearly all images, labels and annotations, and every machine holds all of them in
// memory. Of this machine's own it keeps the labels, and the annotations with the keys
// keep, which are others' business.
func Trim(self string, keep ...string) cache.TransformFunc {
	return func(obj any) (any, error) {
		if unknown, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			return unknown, nil
		}
		node, ok := obj.(*corev1.Node)
		if !ok {
			return nil, fmt.Errorf("trimming a Node: it is a %T", obj)
		}
		small := trimmed(node, node.Name == self)
		if node.Name == self {
			for _, key := range keep {
				if value, there := node.Annotations[key]; there {
					metav1.SetMetaDataAnnotation(&small.ObjectMeta, key, value)
				}
			}
		}
		return small, nil
	}
}

// trimmed writes types and states as constants, so that thousands of Nodes share them.
func trimmed(node *corev1.Node, own bool) *corev1.Node {
	trimmed := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion,
			CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec: corev1.NodeSpec{PodCIDR: node.Spec.PodCIDR, PodCIDRs: node.Spec.PodCIDRs},
	}
	if len(node.Spec.PodCIDRs) > 0 && node.Spec.PodCIDRs[0] == node.Spec.PodCIDR {
		trimmed.Spec.PodCIDR = node.Spec.PodCIDRs[0]
	}
	if own {
		trimmed.Annotations, trimmed.Labels = Targets(node), node.Labels
	} else if _, ok := node.Labels[controlPlaneLabel]; ok {
		trimmed.Labels = map[string]string{controlPlaneLabel: ""}
	}
	for _, a := range node.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP:
			a.Type = corev1.NodeInternalIP
		case corev1.NodeExternalIP:
			a.Type = corev1.NodeExternalIP
		default:
			continue
		}
		trimmed.Status.Addresses = append(trimmed.Status.Addresses, a)
	}
	for _, c := range node.Status.Conditions {
		switch c.Type {
		case corev1.NodeReady:
			ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}
			if c.Status == corev1.ConditionTrue {
				ready.Status = corev1.ConditionTrue
			}
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, ready)
		case corev1.NodeNetworkUnavailable, PeersReachable:
			if own {
				trimmed.Status.Conditions = append(trimmed.Status.Conditions, c)
			}
		}
	}
	return trimmed
}

// changed reports whether anything that the decision of a machine rests on differs, self being
// its Node. Heartbeats don't.
func changed(self string, old, node *corev1.Node) bool {
	return node.Name == self && !maps.Equal(Targets(old), Targets(node)) ||
		old.UID != node.UID ||
		old.Spec.PodCIDR != node.Spec.PodCIDR ||
		!slices.Equal(old.Spec.PodCIDRs, node.Spec.PodCIDRs) ||
		!slices.Equal(old.Status.Addresses, node.Status.Addresses) ||
		kube.Ready(old) != kube.Ready(node) ||
		kube.ControlPlane(old) != kube.ControlPlane(node)
}

// FromKube reads a Node. What can't be read of it is returned as an error beside
// what can.
func FromKube(node *corev1.Node) (Node, error) {
	podCIDRs, err := kube.PodCIDRs(node)
	read := Node{
		Name: node.Name, UID: string(node.UID), PodCIDRs: podCIDRs, InternalIPs: kube.InternalIPs(node), ExternalIPs: kube.ExternalIPs(node),
		ControlPlane: kube.ControlPlane(node), Ready: kube.Ready(node), Created: node.CreationTimestamp.Time,
	}
	return read, err
}
