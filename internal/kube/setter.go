package kube

import (
	"bytes"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodCIDRSetter returns the field manager that set the node's podCIDRs and the time, in seconds.
// It returns false if the API server did not track it.
func PodCIDRSetter(node *corev1.Node) (manager string, at time.Time, ok bool) {
	for _, entry := range node.ManagedFields {
		if entry.Time != nil && setsPodCIDRs(entry) && (!ok || entry.Time.After(at)) {
			manager, at, ok = entry.Manager, entry.Time.Time, true
		}
	}
	return manager, at, ok
}

func setsPodCIDRs(entry metav1.ManagedFieldsEntry) bool {
	var owned struct {
		Spec map[string]json.RawMessage `json:"f:spec"`
	}
	if entry.FieldsV1 == nil || entry.Subresource != "" {
		return false
	}
	if entry.FieldsV1.GetRawString() == onlyPodCIDRs {
		return true
	}
	fields := entry.FieldsV1.GetRawBytes()
	// Skips decoding for most entries: each version of each Node is checked here.
	if !bytes.Contains(fields, []byte(`"f:podCIDR`)) || json.Unmarshal(fields, &owned) != nil {
		return false
	}
	_, list := owned.Spec["f:podCIDRs"]
	_, single := owned.Spec["f:podCIDR"]
	return list || single
}
