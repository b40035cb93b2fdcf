package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// The whole life of a Service: created, checked by its traffic policy, changed, followed by nodes
// that are added and removed, deleted, and created again with its former address.
func TestAServiceGetsALoadBalancer(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 100 * time.Millisecond})
	startManager(t, c, cluster.ManagerOptions{})
	for i := range 3 {
		addMachine(t, c, fmt.Sprint("node-", i))
	}
	eventually(t, 30*time.Second, "three Nodes are served", allServed(t, c, 3))
	ip, err := c.Cloud.CreatePrimaryIP(hcloudsim.PrimaryIPSeed{Name: "web", Labels: map[string]string{
		"underlay.dev/adopt-cluster": "kubernetes", "underlay.dev/adopt-namespace": "default", "underlay.dev/adopt-service": "web",
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Cloud.ResetRequests()

	createService(t, c, "web", corev1.ServiceExternalTrafficPolicyLocal, "underlay.dev/primary-ipv4", "web")
	eventually(t, 20*time.Second, "the Service has an address", hasAddress(t, c, "web"))
	svc := service(t, c, "web")
	balancer := balancers(t, c, 1)[0]
	if n := changes(c); !slices.Equal(n, []string{"POST /v1/load_balancers"}) {
		t.Errorf("a new load balancer cost the changes %q, want one request", n)
	}
	expectListener(t, balancer, svc, int(svc.Spec.HealthCheckNodePort))
	if len(balancer.Targets) != 3 {
		t.Errorf("%d targets, want 3", len(balancer.Targets))
	}

	patchService(t, c, "web", `{"spec":{"externalTrafficPolicy":"Cluster"}}`)
	eventually(t, 20*time.Second, "the check follows the policy", func(context.Context) (bool, string) {
		b := balancers(t, c, 1)[0]
		return b.Services[0].HealthCheck.Port == 10256, fmt.Sprintf("%+v", b.Services[0].HealthCheck)
	})

	addMachine(t, c, "node-3")
	eventually(t, 30*time.Second, "the fourth machine is a target", hasTargets(t, c, 4))
	if err := c.DeleteServer("node-0"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "the deleted server is none", hasTargets(t, c, 3))

	if err := c.Client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "load balancer and Service are gone", func(ctx context.Context) (bool, string) {
		_, err := c.Client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		n := len(c.Cloud.LoadBalancers())
		return err != nil && n == 0, fmt.Sprintf("%d load balancers, Service: %v", n, err)
	})
	if r := refused(c); len(r) > 0 {
		t.Errorf("the cloud refused writes: %q", r)
	}
	createService(t, c, "web", corev1.ServiceExternalTrafficPolicyLocal, "underlay.dev/primary-ipv4", "web")
	eventually(t, 20*time.Second, "the Service has its address again", hasAddress(t, c, "web"))
	if again := balancers(t, c, 1)[0]; again.ID == balancer.ID ||
		balancer.PublicNet.IPv4.IP != ip.IP || again.PublicNet.IPv4.IP != ip.IP {
		t.Errorf("load balancers %d with %s and %d with %s, want two with %s", balancer.ID, balancer.PublicNet.IPv4.IP, again.ID, again.PublicNet.IPv4.IP, ip.IP)
	}
	for _, e := range audited(t, c, "") {
		if e.Code == http.StatusForbidden {
			t.Errorf("forbidden: %s", e)
		}
	}
}

// If the manager is killed between the load balancer's creation and the Service's status, the load
// balancer is found again, and no second one is created.
func TestALoadBalancerIsNeverMadeTwice(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{
		ActionTime: 2 * time.Second, ActionTimes: map[string][]time.Duration{"create_load_balancer": {2 * time.Second}},
	})
	first := startManager(t, c, cluster.ManagerOptions{})
	addMachine(t, c, "node-0")
	eventually(t, 60*time.Second, "the Node is served", allServed(t, c, 1))
	createService(t, c, "web", corev1.ServiceExternalTrafficPolicyCluster)
	eventually(t, 20*time.Second, "a load balancer is being made", func(context.Context) (bool, string) {
		n := len(c.Cloud.LoadBalancers())
		return n == 1, fmt.Sprint(n)
	})
	first.Kill()
	startManager(t, c, cluster.ManagerOptions{})
	eventually(t, 60*time.Second, "the Service has an address", hasAddress(t, c, "web"))
	balancers(t, c, 1)
	creations := slices.DeleteFunc(changes(c), func(s string) bool { return s != "POST /v1/load_balancers" })
	if len(creations) != 1 {
		t.Errorf("%d creations, want 1", len(creations))
	}
}

// A foreign load balancer with our name is not touched, and the Service reports it.
func TestAForeignLoadBalancerIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{})
	startManager(t, c, cluster.ManagerOptions{})
	createService(t, c, "first", corev1.ServiceExternalTrafficPolicyCluster)
	patchService(t, c, "first", `{"metadata":{"annotations":{"load-balancer.hetzner.cloud/name":"shared"}}}`)
	eventually(t, 20*time.Second, "the first Service has the name", func(context.Context) (bool, string) {
		all := c.Cloud.LoadBalancers()
		return len(all) == 1 && all[0].Name == "shared", fmt.Sprint(len(all))
	})
	before := balancers(t, c, 1)[0]
	createService(t, c, "second", corev1.ServiceExternalTrafficPolicyCluster, "load-balancer.hetzner.cloud/name", "shared")
	eventually(t, 30*time.Second, "the second Service is told", func(ctx context.Context) (bool, string) {
		list, err := c.Client.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=LoadBalancerNotOwned"})
		if err != nil {
			return false, err.Error()
		}
		return len(list.Items) == 1 && list.Items[0].InvolvedObject.Name == "second", fmt.Sprint(len(list.Items), " Events")
	})
	after := balancers(t, c, 1)[0]
	if after.ID != before.ID ||
		after.Services[0].DestinationPort != before.Services[0].DestinationPort {
		t.Errorf("the first Service's load balancer changed: %+v, was %+v", after, before)
	}
	// The controller relies on this when a name is reused by another Service: a UID in a patch must
	// be the Service's.
	_, err := c.Client.CoreV1().Services("default").Patch(t.Context(), "first", types.StrategicMergePatchType,
		[]byte(`{"metadata":{"uid":"another"},"status":{"loadBalancer":null}}`), metav1.PatchOptions{}, "status")
	if !apierrors.IsInvalid(err) && !apierrors.IsConflict(err) {
		t.Errorf("a patch for another Service of the name: %v, want it refused", err)
	}
}

func createService(
	t *testing.T, c *cluster.Cluster, name string, policy corev1.ServiceExternalTrafficPolicy,
	annotations ...string,
) {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: policy,
			Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		svc.Annotations[annotations[i]] = annotations[i+1]
	}
	if _, err := c.Client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func patchService(t *testing.T, c *cluster.Cluster, name, patch string) {
	t.Helper()
	_, err := c.Client.CoreV1().Services("default").Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func service(t *testing.T, c *cluster.Cluster, name string) *corev1.Service {
	t.Helper()
	svc, err := c.Client.CoreV1().Services("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return svc
}

func hasAddress(
	t *testing.T, c *cluster.Cluster, name string,
) func(context.Context) (bool, string) {
	return func(context.Context) (bool, string) {
		ingress := service(t, c, name).Status.LoadBalancer.Ingress
		return len(ingress) > 0 && ingress[0].IP != "", fmt.Sprint(ingress)
	}
}

func balancers(t *testing.T, c *cluster.Cluster, want int) []schema.LoadBalancer {
	t.Helper()
	all := c.Cloud.LoadBalancers()
	if len(all) != want {
		t.Fatalf("%d load balancers, want %d", len(all), want)
	}
	return all
}

func hasTargets(t *testing.T, c *cluster.Cluster, want int) func(context.Context) (bool, string) {
	return func(context.Context) (bool, string) {
		n := len(balancers(t, c, 1)[0].Targets)
		return n == want, fmt.Sprint(n, " targets")
	}
}

// changes are the writes about load balancers that the cloud received.
func changes(c *cluster.Cluster) []string {
	var out []string
	for _, r := range c.Cloud.Requests() {
		if r.Method != http.MethodGet && strings.Contains(r.Path, "load_balancers") {
			out = append(out, r.Method+" "+r.Path)
		}
	}
	return out
}

func expectListener(t *testing.T, b schema.LoadBalancer, svc *corev1.Service, checkPort int) {
	t.Helper()
	if len(b.Services) != 1 {
		t.Fatalf("%d listeners, want 1", len(b.Services))
	}
	s := b.Services[0]
	if s.ListenPort != 80 || s.DestinationPort != int(svc.Spec.Ports[0].NodePort) {
		t.Errorf("it forwards %d to %d, want 80 to the node port %d", s.ListenPort, s.DestinationPort, svc.Spec.Ports[0].NodePort)
	}
	check := s.HealthCheck
	if check == nil || check.Protocol != "http" || check.Port != checkPort || check.HTTP == nil || check.HTTP.Path != "/healthz" {
		t.Errorf("it checks %+v, want HTTP /healthz on %d", check, checkPort)
	}
}
