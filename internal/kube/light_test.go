package kube_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func TestLight(t *testing.T) {
	now := metav1.NewTime(time.Unix(1_000_000, 0))
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Labels: map[string]string{"zone": "fsn1"}, Annotations: map[string]string{"who": "somebody"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: "kubelet", Time: &now, Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:images":{}}}`)},
				{Manager: "allocator", Time: &now, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:podCIDR":{},"f:podCIDRs":{}}}`)},
				{Manager: "labeller", Time: &now, FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)},
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24", ProviderID: "hcloud://1"},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}},
			Images:          []corev1.ContainerImage{{Names: []string{"pause"}}},
			VolumesInUse:    []corev1.UniqueVolumeName{"disk"},
			VolumesAttached: []corev1.AttachedVolume{{Name: "disk"}},
		},
	}
	want := node.DeepCopy()
	want.Status.Images, want.Status.VolumesInUse, want.Status.VolumesAttached = nil, nil, nil
	want.ManagedFields = want.ManagedFields[1:2]
	got, err := kube.Light(node)
	if err != nil {
		t.Fatal(err)
	}
	if !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if manager, at, ok := kube.PodCIDRSetter(got.(*corev1.Node)); manager != "allocator" || !at.Equal(now.Time) || !ok {
		t.Errorf("podCIDRs set by %q at %s, %t", manager, at, ok)
	}
	if other, err := kube.Light("a tombstone"); other != "a tombstone" || err != nil {
		t.Errorf("of something else: %v, %v", other, err)
	}
}
