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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// edit is a change by a user, and its expected effect on the load balancer and the Service.
type edit struct {
	what  string
	patch string // of the Service
	holds func(b schema.LoadBalancer, svc *corev1.Service) bool
}

const annotation = `{"metadata":{"annotations":{"load-balancer.hetzner.cloud/%s":%s}}}`

func annotate(name, value string) string {
	if value == "" {
		return fmt.Sprintf(annotation, name, "null")
	}
	return fmt.Sprintf(annotation, name, fmt.Sprintf("%q", value))
}

func acceptedAs(svc *corev1.Service, want string) bool {
	cond := meta.FindStatusCondition(svc.Status.Conditions, "underlay.dev/Accepted")
	return cond != nil && cond.Reason == want
}

// edits change every field of a Service that affects a load balancer, one after the other.
func edits() []edit {
	ports := func(b schema.LoadBalancer) (ports []int) {
		for _, s := range b.Services {
			ports = append(ports, s.ListenPort)
		}
		slices.Sort(ports)
		return ports
	}
	return []edit{
		{"a port more", `{"spec":{"ports":[{"name":"web","port":80},{"name":"tls","port":443}]}}`, func(b schema.LoadBalancer, _ *corev1.Service) bool {
			return slices.Equal(ports(b), []int{80, 443})
		}},
		{"another port", `{"spec":{"ports":[{"name":"web","port":8080},{"name":"tls","port":443}]}}`, func(b schema.LoadBalancer, _ *corev1.Service) bool {
			return slices.Equal(ports(b), []int{443, 8080})
		}},
		{"another node port", `{"spec":{"ports":[{"name":"web","port":8080,"nodePort":31999}]}}`, func(b schema.LoadBalancer, _ *corev1.Service) bool {
			return len(b.Services) == 1 && b.Services[0].DestinationPort == 31999
		}},
		{"policy Local", `{"spec":{"externalTrafficPolicy":"Local"}}`, func(b schema.LoadBalancer, svc *corev1.Service) bool {
			return b.Services[0].HealthCheck.Port == int(svc.Spec.HealthCheckNodePort) &&
				svc.Spec.HealthCheckNodePort != 0
		}},
		{"policy Cluster", `{"spec":{"externalTrafficPolicy":"Cluster"}}`, func(b schema.LoadBalancer, _ *corev1.Service) bool {
			return b.Services[0].HealthCheck.Port == 10256
		}},
		{"its type", annotate("type", "lb21"), func(b schema.LoadBalancer, _ *corev1.Service) bool { return b.LoadBalancerType.Name == "lb21" }},
		{"its type by default again", annotate("type", ""), func(b schema.LoadBalancer, _ *corev1.Service) bool { return b.LoadBalancerType.Name == "lb11" }},
		{"its name", annotate("name", "shop"), func(b schema.LoadBalancer, _ *corev1.Service) bool { return b.Name == "shop" }},
		{"HTTP", annotate("protocol", "http"), func(b schema.LoadBalancer, svc *corev1.Service) bool {
			mode := svc.Status.LoadBalancer.Ingress[0].IPMode
			return b.Services[0].Protocol == "http" && mode != nil && *mode == corev1.LoadBalancerIPModeProxy
		}},
		{"TCP again", annotate("protocol", ""), func(b schema.LoadBalancer, svc *corev1.Service) bool {
			mode := svc.Status.LoadBalancer.Ingress[0].IPMode
			return b.Services[0].Protocol == "tcp" && mode != nil && *mode == corev1.LoadBalancerIPModeVIP
		}},
		{"reverse DNS", annotate("ipv4-rdns", "shop.example.com"), func(b schema.LoadBalancer, _ *corev1.Service) bool {
			return b.PublicNet.IPv4.DNSPtr == "shop.example.com"
		}},
		{"reverse DNS reset", annotate("ipv4-rdns", ""), func(b schema.LoadBalancer, _ *corev1.Service) bool {
			return b.PublicNet.IPv4.DNSPtr != "shop.example.com"
		}},
		{"a host name", annotate("hostname", "shop.example.com"), func(_ schema.LoadBalancer, svc *corev1.Service) bool {
			return svc.Status.LoadBalancer.Ingress[0].Hostname == "shop.example.com"
		}},
		{"addresses again", annotate("hostname", ""), func(_ schema.LoadBalancer, svc *corev1.Service) bool {
			return svc.Status.LoadBalancer.Ingress[0].IP != ""
		}},
		{"UDP beside TCP", `{"spec":{"ports":[{"name":"web","port":8080,"nodePort":31999},{"name":"quic","port":8443,"protocol":"UDP"}]}}`, func(b schema.LoadBalancer, svc *corev1.Service) bool {
			return len(b.Services) == 1 && acceptedAs(svc, "UnsupportedField")
		}},
		{"TCP alone", `{"spec":{"ports":[{"name":"web","port":8080,"nodePort":31999}]}}`, func(_ schema.LoadBalancer, svc *corev1.Service) bool {
			return acceptedAs(svc, "Accepted")
		}},
		{"session affinity", `{"spec":{"sessionAffinity":"ClientIP"}}`, func(_ schema.LoadBalancer, svc *corev1.Service) bool { return acceptedAs(svc, "UnsupportedField") }},
		{"none", `{"spec":{"sessionAffinity":"None"}}`, func(_ schema.LoadBalancer, svc *corev1.Service) bool { return acceptedAs(svc, "Accepted") }},
		{"source ranges hold everything", `{"spec":{"loadBalancerSourceRanges":["192.0.2.0/24"],"ports":[{"name":"web","port":9090,"nodePort":31999}]}}`, func(b schema.LoadBalancer, svc *corev1.Service) bool {
			return acceptedAs(svc, "UnsupportedField") && slices.Equal(ports(b), []int{8080})
		}},
		{"until somebody confirms", `{"metadata":{"annotations":{"underlay.dev/source-ranges-enforced-elsewhere":"true"}}}`, func(b schema.LoadBalancer, svc *corev1.Service) bool {
			return acceptedAs(svc, "Accepted") && slices.Equal(ports(b), []int{9090})
		}},
		{"a typing error", annotate("algorithm-typ", "least_connections"), func(_ schema.LoadBalancer, svc *corev1.Service) bool {
			cond := meta.FindStatusCondition(svc.Status.Conditions, "underlay.dev/Accepted")
			return strings.Contains(cond.Message, "did you mean load-balancer.hetzner.cloud/algorithm-type?")
		}},
		{"corrected", annotate("algorithm-type", "least_connections"), func(b schema.LoadBalancer, _ *corev1.Service) bool { return b.Algorithm.Type == "least_connections" }},
	}
}

// followed waits until an edit has its effect.
func followed(t *testing.T, c *cluster.Cluster, e edit) {
	t.Helper()
	eventually(t, 20*time.Second, e.what, func(context.Context) (bool, string) {
		all, svc := c.Cloud.LoadBalancers(), service(t, c, "web")
		if len(all) != 1 || len(all[0].Services) == 0 || len(svc.Status.LoadBalancer.Ingress) == 0 {
			return false, fmt.Sprintf("%d load balancers, %+v", len(all), svc.Status)
		}
		return e.holds(all[0], svc), fmt.Sprintf("%+v\n%+v", all[0], svc.Status)
	})
}

// Every field of a Service is followed, also if it changes while no manager runs, and after the
// deletion no resources remain. The API server is the real one, which handles finalizers, status
// and conditions.
func TestEveryFieldOfAServiceIsFollowed(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	m := startManager(t, c, cluster.ManagerOptions{})
	for i := range 2 {
		addMachine(t, c, fmt.Sprint("node-", i))
	}
	eventually(t, 30*time.Second, "two Nodes are served", allServed(t, c, 2))
	createService(t, c, "web", corev1.ServiceExternalTrafficPolicyCluster)
	eventually(t, 20*time.Second, "the Service has an address", hasAddress(t, c, "web"))
	id := balancers(t, c, 1)[0].ID
	for i, e := range edits() {
		if i%8 == 7 { // changes while no manager runs
			m.Kill()
			patchService(t, c, "web", e.patch)
			m = startManager(t, c, cluster.ManagerOptions{})
			followed(t, c, e)
			continue
		}
		patchService(t, c, "web", e.patch)
		followed(t, c, e)
	}
	if got := balancers(t, c, 1)[0].ID; got != id {
		t.Errorf("it is load balancer %d now and was %d: traffic had to find another address", got, id)
	}

	nodeChurn(t, c)
	drift(t, c, m)
	deletion(t, c, id)
	for _, e := range audited(t, c, "") {
		if e.Code == http.StatusForbidden {
			t.Errorf("forbidden: %s", e)
		}
	}
}

// nodeChurn changes the properties of nodes that make them targets.
func nodeChurn(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, step := range []struct {
		what, node, patch, service string
		targets                    int
	}{
		{"a node is excluded", "node-0", `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":""}}}`, "", 1},
		{"and back", "node-0", `{"metadata":{"labels":{"node.kubernetes.io/exclude-from-external-load-balancers":null}}}`, "", 2},
		{"a selector that nobody matches", "", "", annotate("node-selector", "role=edge"), 0},
		{"a label that it wants", "node-1", `{"metadata":{"labels":{"role":"edge"}}}`, "", 1},
		{"the label goes", "node-1", `{"metadata":{"labels":{"role":null}}}`, "", 0},
		{"the selector goes", "", "", annotate("node-selector", ""), 2},
	} {
		if step.node != "" {
			if _, err := c.Client.CoreV1().Nodes().Patch(t.Context(), step.node, types.MergePatchType,
				[]byte(step.patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if step.service != "" {
			patchService(t, c, "web", step.service)
		}
		eventually(t, 20*time.Second, step.what, hasTargets(t, c, step.targets))
	}
}

// act changes a load balancer without the manager.
func act(t *testing.T, c *cluster.Cluster, id int64, action, body string) {
	t.Helper()
	request(t, c, fmt.Sprintf("/load_balancers/%d/actions/%s", id, action), body)
}

// drift changes the load balancer in the cloud. The manager checks all of them when it starts, and
// every five minutes.
func drift(t *testing.T, c *cluster.Cluster, m *cluster.Manager) {
	t.Helper()
	b := balancers(t, c, 1)[0]
	act(t, c, b.ID, "change_algorithm", `{"type":"round_robin"}`)
	eventually(t, 5*time.Second, "the cloud has drifted", func(context.Context) (bool, string) {
		return balancers(t, c, 1)[0].Algorithm.Type == "round_robin", ""
	})
	m.Kill()
	startManager(t, c, cluster.ManagerOptions{})
	followed(t, c, edit{what: "drift is repaired", holds: func(b schema.LoadBalancer, _ *corev1.Service) bool { return b.Algorithm.Type == "least_connections" }})
}

func protect(t *testing.T, c *cluster.Cluster, id int64, on bool) {
	t.Helper()
	act(t, c, id, "change_protection", fmt.Sprintf(`{"delete":%t}`, on))
	eventually(t, 5*time.Second, "the protection is switched", func(context.Context) (bool, string) {
		b, _ := c.Cloud.LoadBalancer(id)
		return b.Protection.Delete == on, ""
	})
}

// deletion keeps the Service while its load balancer is protected.
func deletion(t *testing.T, c *cluster.Cluster, id int64) {
	t.Helper()
	protect(t, c, id, true)
	if err := c.Client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "the protection is told of", func(context.Context) (bool, string) {
		svc := service(t, c, "web")
		return acceptedAs(svc, "Rejected") && len(svc.Finalizers) == 1, fmt.Sprintf("%+v", svc.Status.Conditions)
	})
	protect(t, c, id, false)
	patchService(t, c, "web", annotate("name", "try-again"))
	eventually(t, 20*time.Second, "Service and load balancer are gone", func(ctx context.Context) (bool, string) {
		_, err := c.Client.CoreV1().Services("default").Get(ctx, "web", metav1.GetOptions{})
		n := len(c.Cloud.LoadBalancers())
		return apierrors.IsNotFound(err) && n == 0, fmt.Sprintf("%d load balancers, Service: %v", n, err)
	})
}

// Only Services of our class are served. A Service can't move between classes by mistake: the class
// is immutable while the type is LoadBalancer.
func TestOnlyOurClassIsServed(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{})
	startManager(t, c, cluster.ManagerOptions{Config: c.CloudConfig() + "  classless: false\n"})
	for name, class := range map[string]string{"ours": "underlay.dev/hcloud", "theirs": "example.com/other", "classless": ""} {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
			},
		}
		if class != "" {
			svc.Spec.LoadBalancerClass = &class
		}
		if _, err := c.Client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 30*time.Second, "our class has an address", hasAddress(t, c, "ours"))
	balancers(t, c, 1)
	for _, name := range []string{"theirs", "classless"} {
		if svc := service(t, c, name); len(svc.Finalizers) != 0 || len(svc.Status.Conditions) != 0 ||
			len(svc.Status.LoadBalancer.Ingress) != 0 {
			t.Errorf("%s was touched: %v, %+v", name, svc.Finalizers, svc.Status)
		}
	}
	_, err := c.Client.CoreV1().Services("default").Patch(t.Context(), "theirs", types.MergePatchType, []byte(`{"spec":{"loadBalancerClass":"underlay.dev/hcloud"}}`), metav1.PatchOptions{})
	if !apierrors.IsInvalid(err) {
		t.Errorf("the class of a Service was changed: %v", err)
	}
}
