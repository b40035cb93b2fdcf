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
				{Manager: "kubelet", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:images":{}}}`)},
				{Manager: "allocator", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:podCIDR":{},"f:podCIDRs":{}}}`)},
				{Manager: "labeller", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{}}}`)},
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24", ProviderID: "hcloud://1", Taints: []corev1.Taint{{Key: "taint"}}},
		Status: corev1.NodeStatus{
			Addresses:       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.2"}},
			Conditions:      []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"}},
			NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1.37.1"},
			Images:          []corev1.ContainerImage{{Names: []string{"pause"}}},
			VolumesInUse:    []corev1.UniqueVolumeName{"disk"},
			VolumesAttached: []corev1.AttachedVolume{{Name: "disk"}},
		},
	}
	want := node.DeepCopy()
	want.Status = corev1.NodeStatus{
		Addresses: want.Status.Addresses, Conditions: want.Status.Conditions[1:],
	}
	want.ManagedFields = nil
	light := kube.Light(corev1.NodeReady)
	// The informer may do it twice.
	for range 2 {
		got, err := light(node)
		if err != nil {
			t.Fatal(err)
		}
		made := got.(*corev1.Node)
		if manager, at, ok := kube.PodCIDRSetter(made); manager != "allocator" || !at.Equal(now.Time) || !ok {
			t.Errorf("podCIDRs set by %q at %s, %t", manager, at, ok)
		}
		for _, entry := range made.ManagedFields {
			if entry.Operation != "" || entry.APIVersion != "" {
				t.Errorf("an API server would take %+v for all that there is", entry)
			}
		}
		rest := made.DeepCopy()
		rest.ManagedFields = nil
		if !equality.Semantic.DeepEqual(rest, want) {
			t.Errorf("got %+v\nwant %+v", rest, want)
		}
	}
	if other, err := light("a tombstone"); other != "a tombstone" || err != nil {
		t.Errorf("of something else: %v, %v", other, err)
	}
}
