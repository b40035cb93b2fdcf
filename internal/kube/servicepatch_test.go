package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
)

func TestServicePatchNamesItsService(t *testing.T) {
	from := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "1-2", ResourceVersion: "7"}}
	to := from.DeepCopy()
	to.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	const status = `"status":{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}}`
	for versioned, want := range map[bool]string{
		false: `{"metadata":{"uid":"1-2"},` + status,
		true:  `{"metadata":{"resourceVersion":"7","uid":"1-2"},` + status,
	} {
		if got, err := kube.ServicePatch(from, to, versioned); err != nil || string(got) != want {
			t.Errorf("versioned %t: %s, %v; want %s", versioned, got, err, want)
		}
	}
}
