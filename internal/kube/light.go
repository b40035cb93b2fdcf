package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Light is an informer's transform: it takes from a Node what nobody here reads, which is most of
// it. Of the status the addresses stay, and the conditions that are read.
//
// What is written from such a Node must not lack what was taken. Patches are made of the difference
// between two of them, and leave the rest alone. Upstream's node controller also replaces whole
// Nodes when it initializes them: the API server takes no status from that request, so the status
// may lose fields, and metadata and spec may not. Who set which fields is a part of the metadata
// that the API server keeps itself, as long as it can't read what it is sent; see podCIDRsSetBy.
func Light(read ...corev1.NodeConditionType) cache.TransformFunc {
	return func(obj any) (any, error) {
		node, ok := obj.(*corev1.Node)
		if !ok {
			return obj, nil
		}
		status := corev1.NodeStatus{Addresses: node.Status.Addresses}
		for _, c := range node.Status.Conditions {
			if slices.Contains(read, c.Type) {
				status.Conditions = append(status.Conditions, c)
			}
		}
		node.Status = status
		if manager, at, ok := PodCIDRSetter(node); ok {
			node.ManagedFields = []metav1.ManagedFieldsEntry{podCIDRsSetBy(manager, at)}
		} else {
			node.ManagedFields = nil
		}
		return node, nil
	}
}

// podCIDRsSetBy is an entry that PodCIDRSetter reads. It lacks what an API server wants of one,
// operation and version: of entries that it can't decode, as of none, it concludes that the client
// doesn't know them, and keeps its own (decodeLiveOrNew in
// k8s.io/apimachinery/pkg/util/managedfields). A whole entry without its neighbors would replace
// them all.
func podCIDRsSetBy(manager string, at time.Time) metav1.ManagedFieldsEntry {
	set := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{Manager: manager, Time: &set, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:podCIDRs":{}}}`)}
}
