package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// A changed health check is kept, also if no node passes it, and the Service's condition reports
// that, whichever process writes it.
func TestAHealthCheckWithoutResponsesIsReported(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	m := startManager(t, c, cluster.ManagerOptions{})
	addMachine(t, c, "node-0")
	eventually(t, 30*time.Second, "the Node is served", allServed(t, c, 1))
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{
			// The condition is written after interval x retries + timeout + 5 s.
			"load-balancer.hetzner.cloud/health-check-interval": "3", "load-balancer.hetzner.cloud/health-check-timeout": "1s",
			"load-balancer.hetzner.cloud/health-check-retries": "1",
		}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	if _, err := c.Client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	serveFrom(t, c, "web", "node-0")
	eventually(t, 20*time.Second, "the Service has an address", hasAddress(t, c, "web"))
	eventually(t, 20*time.Second, "the machine is a target", hasTargets(t, c, 1))
	b := balancers(t, c, 1)[0]
	health := func(h hcloudsim.Health) {
		if err := c.Cloud.SetTargetHealth(b.ID, hcloudsim.TargetID{Server: b.Targets[0].Server.ID}, 0,
			h); err != nil {
			t.Fatal(err)
		}
	}
	b = balancers(t, c, 1)[0]
	health(hcloudsim.HealthHealthy)

	checkPort := func(want int) func(context.Context) (bool, string) {
		return func(context.Context) (bool, string) {
			got := balancers(t, c, 1)[0].Services[0].HealthCheck.Port
			return got == want, fmt.Sprintf("it checks port %d, want %d", got, want)
		}
	}
	patchService(t, c, "web", annotate("health-check-port", "4711"))
	eventually(t, 20*time.Second, "the new check is set", checkPort(4711))
	health(hcloudsim.HealthUnhealthy)
	m.Kill() // the next process writes the condition
	startManager(t, c, cluster.ManagerOptions{})
	eventually(t, 60*time.Second, "the Service tells", func(context.Context) (bool, string) {
		svc := service(t, c, "web")
		return acceptedAs(svc, "NoHealthyTarget"), fmt.Sprintf("%+v", svc.Status.Conditions)
	})
	if ok, text := checkPort(4711)(t.Context()); !ok {
		t.Error(text)
	}
	health(hcloudsim.HealthHealthy)
	patchService(t, c, "web", annotate("health-check-retries", "2"))
	eventually(t, 60*time.Second, "its nodes answer", func(context.Context) (bool, string) {
		svc := service(t, c, "web")
		return acceptedAs(svc, "Accepted"), fmt.Sprintf("%+v", svc.Status.Conditions)
	})
}

// serveFrom creates a Service's endpoint on a node. Nothing runs there.
func serveFrom(t *testing.T, c *cluster.Cluster, service, node string) {
	t.Helper()
	ready, port := true, int32(8080)
	_, err := c.Client.DiscoveryV1().EndpointSlices("default").Create(t.Context(), &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: service + "-by-hand", Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "test"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.5"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}
