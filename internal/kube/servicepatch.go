package kube

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// ServicePatch is the strategic merge patch from one state of a Service to another. It names the
// UID, so that the API server refuses it for another Service of the name; versioned, it names the
// version too, and is refused for one that changed.
func ServicePatch(from, to *corev1.Service, versioned bool) ([]byte, error) {
	old := from.DeepCopy()
	old.UID = "" // a patch holds what differs
	if versioned {
		old.ResourceVersion = ""
	}
	before, err := json.Marshal(old)
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(to)
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Service{})
}
