package kube

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// ServicePatch returns the strategic merge patch from one state of a Service to another. It
// contains the UID, so that the API server refuses it for a recreated Service. If versioned, it
// also contains the resource version, so that a changed Service is a conflict.
func ServicePatch(from, to *corev1.Service, versioned bool) ([]byte, error) {
	old := from.DeepCopy()
	old.UID = "" // a patch contains only differences
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
