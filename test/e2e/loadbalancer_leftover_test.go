package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// The Hetzner controller's Service is changed to ClusterIP, and deleted, while no controller runs.
// Its load balancer is identified by its exact label and deleted, and then the Service; the
// finalizer of a Service without such a load balancer is kept, as is a foreign load balancer.
func TestAServiceThatChangedWhileNoControllerRan(t *testing.T) {
	c := start(t, hcloudsim.Options{})
	ctx := t.Context()
	for _, name := range []string{"web", "unknown"} {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
			},
		}
		svc, err := c.Client.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		uid := string(svc.UID)
		if name == "unknown" {
			uid = "0a1b2c3d-0000-4000-8000-000000000001"
		}
		request(t, c, "/load_balancers", fmt.Sprintf(`{"name":%q,"load_balancer_type":"lb11","location":"fsn1","labels":{"hcloud-ccm/service-uid":%q}}`, name, uid))
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}
		if _, err := c.Client.CoreV1().Services("default").UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		patchService(t, c, name, `{"spec":{"type":"ClusterIP"}}`)
		if err := c.Client.CoreV1().Services("default").Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	startManager(t, c, cluster.ManagerOptions{})
	eventually(t, 30*time.Second, "Service and load balancer are gone", func(ctx context.Context) (bool, string) {
		_, err := c.Client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		all := c.Cloud.LoadBalancers()
		return apierrors.IsNotFound(err) && len(all) == 1 && all[0].Name == "unknown", fmt.Sprintf("%d load balancers, Service: %v", len(all), err)
	})
	eventually(t, 30*time.Second, "an Event says what is in the way", func(ctx context.Context) (bool, string) {
		events, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=unknown,reason=LoadBalancerNotOwned"})
		return err == nil && len(events.Items) == 1, fmt.Sprintf("%v, %v", events, err)
	})
	if svc := service(t, c, "unknown"); len(svc.Finalizers) != 1 {
		t.Errorf("finalizers %v", svc.Finalizers)
	}
}
