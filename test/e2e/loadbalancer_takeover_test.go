package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// After a move from the Hetzner controller no Service has to be changed: its load balancer keeps
// its address, name and checks, for one write; a load balancer without a Service is not touched.
func TestALoadBalancerIsTakenOver(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	ctx := t.Context()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	svc, err := c.Client.CoreV1().Services("default").Create(ctx, svc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodePort := svc.Spec.Ports[0].NodePort
	for i, owner := range []struct{ name, uid string }{
		{"of-old-times", string(svc.UID)}, {"of-a-service-that-is-gone", "0a1b2c3d-0000-4000-8000-000000000001"},
	} {
		request(t, c, "/load_balancers", fmt.Sprintf(`{"name":%q,"load_balancer_type":"lb11","location":"fsn1","network":%d,"labels":{"hcloud-ccm/service-uid":%q},
			"services":[{"protocol":"tcp","listen_port":80,"destination_port":%d,"health_check":{"protocol":"tcp","port":%d,"interval":15,"timeout":10,"retries":3}}]}`,
			owner.name, c.Network.ID, owner.uid, nodePort, nodePort))
		eventually(t, 5*time.Second, "the cloud is done", func(context.Context) (bool, string) {
			return len(balancers(t, c, i+1)[i].PrivateNet) == 1, ""
		})
	}
	before := balancers(t, c, 2)
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
		{IP: before[0].PublicNet.IPv4.IP}, {IP: before[0].PublicNet.IPv6.IP},
	}
	if _, err := c.Client.CoreV1().Services("default").UpdateStatus(ctx, svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Cloud.ResetRequests()

	startManager(t, c, cluster.ManagerOptions{})
	eventually(t, 30*time.Second, "the Service is served", func(context.Context) (bool, string) {
		svc := service(t, c, "web")
		return acceptedAs(svc, "Accepted"), fmt.Sprintf("%+v", svc.Status.Conditions)
	})
	after := balancers(t, c, 2)
	check := after[0].Services[0].HealthCheck
	if after[0].Name != "of-old-times" || after[0].ID != before[0].ID || check.Protocol != "tcp" || check.Port != int(nodePort) || check.Interval != 15 {
		t.Errorf("%+v, check %+v", after[0], check)
	}
	if after[0].Labels["hcloud-ccm/service-uid"] != string(svc.UID) || after[0].Labels["underlay.dev/svc-"+string(svc.UID)] != "" || after[0].Labels["underlay.dev/kept"] != "name" || len(after[0].Labels) != 5 {
		t.Errorf("labels %v", after[0].Labels)
	}
	if n := changes(c); !slices.Equal(n, []string{fmt.Sprintf("PUT /v1/load_balancers/%d", before[0].ID)}) {
		t.Errorf("the takeover cost the changes %q", n)
	}
	if len(after[1].Labels) != 1 || after[1].Name != before[1].Name {
		t.Errorf("somebody else's was touched: %+v", after[1])
	}
	// IPv4 is the Service's only family, but clients use the IPv6 address already.
	if in := service(t, c, "web").Status.LoadBalancer.Ingress; len(in) < 2 || in[0].IP != before[0].PublicNet.IPv4.IP || in[1].IP != before[0].PublicNet.IPv6.IP {
		t.Errorf("addresses %+v", in)
	}
}

// request sends a request to the cloud that the manager would not.
func request(t *testing.T, c *cluster.Cluster, path, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.CloudURL+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+cluster.Token)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("POST %s: %s", path, answer.Status)
	}
}
