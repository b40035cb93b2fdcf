package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Light is an informer's transform: it takes from a Node what is large and what nobody here reads,
// which is most of it: images and volumes, and who set other fields than podCIDRs. Patches are made
// of the difference between two such Nodes, and so leave those fields alone.
func Light(obj any) (any, error) {
	if node, ok := obj.(*corev1.Node); ok {
		node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
		node.ManagedFields = slices.DeleteFunc(node.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return !setsPodCIDRs(entry) })
	}
	return obj, nil
}
