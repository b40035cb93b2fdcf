package kube

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Light returns an informer's transform that removes the unused fields of a Node, which are most
// of it. Of the status it keeps the addresses and the conditions of the given types.
//
// A write that is based on such a Node must not delete the removed fields. Patches contain the
// difference of two such Nodes and don't change other fields. Upstream's node controller also
// updates whole Nodes when it initializes them: the API server ignores the status in that
// request, so only metadata and spec have to be complete. The API server manages managedFields
// itself as long as it can't decode the sent entries; see podCIDRsSetBy.
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

// onlyPodCIDRs are the fields of an entry that [PodCIDRSetter] needn't decode.
const onlyPodCIDRs = `{"f:spec":{"f:podCIDRs":{}}}`

// podCIDRsSetBy returns an entry that PodCIDRSetter reads. It lacks operation and version, which
// the API server requires: if it can't decode the entries, it assumes a client without support
// for them and keeps its own (decodeLiveOrNew in k8s.io/apimachinery/pkg/util/managedfields). A
// valid entry would replace all entries of the object.
func podCIDRsSetBy(manager string, at time.Time) metav1.ManagedFieldsEntry {
	set := metav1.NewTime(at)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Time: &set, FieldsV1: metav1.NewFieldsV1(onlyPodCIDRs),
	}
}
