package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// peerPrefix is the podCIDR that kube-controller-manager assigned to the i-th machine.
func peerPrefix(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24)
}

// A cluster that the Hetzner controller has run so far: Nodes with its provider IDs, labels and
// podCIDRs, its routes, its load balancer, its lease. Nothing of it is deleted or changed; the next
// machine joins as one of them.
func TestMovingFromTheHetznerController(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	for i := range 3 {
		addMachine(t, c, fmt.Sprint("node-", i))
		servedByThePeer(t, c, i)
	}
	before := balancerOfThePeer(t, c)
	leaseOfThePeer(t, c)
	conditions := watchConditions(t, c)
	table := routeTable(t, c)
	c.Cloud.ResetRequests()

	startManager(t, c, cluster.ManagerOptions{Args: []string{"--cluster-cidr=10.244.0.0/16"}})
	eventually(t, 60*time.Second, "the Service is served", func(context.Context) (bool, string) {
		svc := service(t, c, "web")
		return acceptedAs(svc, "Accepted"), fmt.Sprintf("%+v", svc.Status.Conditions)
	})
	addMachine(t, c, "node-3") // its podCIDR waits: Underlay may have lost a ledger
	eventually(t, 90*time.Second, "the next machine is served", func(ctx context.Context) (bool, string) {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, "node-3", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return network(n) == "False RouteCreated" && n.Spec.PodCIDR == peerPrefix(3).String(), fmt.Sprint(network(n), n.Spec)
	})
	eventually(t, 30*time.Second, "the next machine is a target", hasTargets(t, c, 4))

	for dst, via := range table {
		if got := routeTable(t, c)[dst]; got != via {
			t.Errorf("the route %s goes to %s, it went to %s", dst, got, via)
		}
	}
	for _, r := range c.Cloud.Requests() {
		if r.Method == http.MethodDelete || strings.Contains(r.Path, "delete") || strings.Contains(r.Path, "remove") || strings.Contains(r.Path, "detach") || strings.Contains(r.Path, "update_service") {
			t.Errorf("the cloud was asked to %s %s", r.Method, r.Path)
		}
	}
	after := balancers(t, c, 1)[0]
	if after.ID != before.ID ||
		after.Services[0].HealthCheck.Port != before.Services[0].HealthCheck.Port {
		t.Errorf("the load balancer was %+v, is %+v", before, after)
	}
	if n := privateTargets(after); n != 0 || after.Labels["underlay.dev/kept"] != "public-targets" {
		t.Errorf("%d targets are reached in the network, labels %v", n, after.Labels)
	}
	patchService(t, c, "web", annotate("use-private-ip", "true"))
	eventually(t, 30*time.Second, "all nodes are reached in the network when the Service asks for that", func(context.Context) (bool, string) {
		b := balancers(t, c, 1)[0]
		return len(b.Targets) == 4 && privateTargets(b) == 4 && b.Labels["underlay.dev/kept"] == "", fmt.Sprintf("%+v", b)
	})
	for i := range 3 {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), fmt.Sprint("node-", i), metav1.GetOptions{})
		if err != nil || n.Spec.PodCIDR != peerPrefix(i).String() {
			t.Errorf("node-%d has %v, %v; it had %s", i, n.Spec.PodCIDRs, err, peerPrefix(i))
		}
	}
	if seen := conditions(); len(seen) != 0 {
		t.Errorf("Nodes that were reachable were called otherwise: %q", seen)
	}
}

// servedByThePeer gives a Node the state that the Hetzner controller and kube-controller-manager
// leave.
func servedByThePeer(t *testing.T, c *cluster.Cluster, i int) {
	t.Helper()
	ctx, name := t.Context(), fmt.Sprint("node-", i)
	servers := c.Cloud.Servers()
	at := slices.IndexFunc(servers, func(s schema.Server) bool { return s.Name == name })
	inside := servers[at].PrivateNet[0].IP
	seed := hcloudsim.RouteSeed{Destination: peerPrefix(i), Gateway: netip.MustParseAddr(inside)}
	if err := c.Cloud.AddRoute(c.Network.ID, seed); err != nil {
		t.Fatal(err)
	}
	nodes := c.Client.CoreV1().Nodes()
	change := func(update func(*corev1.Node) error) {
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			n, err := nodes.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			return update(n)
		}); err != nil {
			t.Fatal(err)
		}
	}
	change(func(n *corev1.Node) error {
		n.Spec.ProviderID = fmt.Sprint("hcloud://", servers[at].ID)
		n.Spec.PodCIDR, n.Spec.PodCIDRs = peerPrefix(i).String(), []string{peerPrefix(i).String()}
		n.Spec.Taints = nil
		for key, value := range map[string]string{
			corev1.LabelInstanceTypeStable: servers[at].ServerType.Name, corev1.LabelTopologyRegion: "fsn1",
			corev1.LabelTopologyZone: "fsn1-dc14", "instance.hetzner.cloud/provided-by": "cloud",
		} {
			n.Labels[key] = value
		}
		_, err := nodes.Update(ctx, n, metav1.UpdateOptions{})
		return err
	})
	change(func(n *corev1.Node) error {
		n.Status.Addresses = []corev1.NodeAddress{
			{Type: corev1.NodeHostName, Address: name},
			{Type: corev1.NodeExternalIP, Address: servers[at].PublicNet.IPv4.IP},
			{Type: corev1.NodeInternalIP, Address: inside},
		}
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
			Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated",
			Message: "RouteController created a route", LastTransitionTime: metav1.Now(), LastHeartbeatTime: metav1.Now(),
		})
		_, err := nodes.UpdateStatus(ctx, n, metav1.UpdateOptions{})
		return err
	})
}

// balancerOfThePeer creates a Service that the Hetzner controller served, and its load balancer. It
// uses public addresses of nodes, which is the default there and not the value configured here.
func balancerOfThePeer(t *testing.T, c *cluster.Cluster) schema.LoadBalancer {
	t.Helper()
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"},
			Annotations: map[string]string{
				"load-balancer.hetzner.cloud/location": "fsn1", "load-balancer.hetzner.cloud/name": "shop",
			},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	svc, err := c.Client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, s := range c.Cloud.Servers() {
		targets = append(targets, fmt.Sprintf(`{"type":"server","server":{"id":%d}}`, s.ID))
	}
	port := svc.Spec.Ports[0].NodePort
	request(t, c, "/load_balancers", fmt.Sprintf(`{"name":"shop","load_balancer_type":"lb11","location":"fsn1","network":%d,"labels":{"hcloud-ccm/service-uid":%q},
		"targets":[%s],"services":[{"protocol":"tcp","listen_port":80,"destination_port":%d,"health_check":{"protocol":"tcp","port":%d,"interval":15,"timeout":10,"retries":3}}]}`,
		c.Network.ID, svc.UID, strings.Join(targets, ","), port, port))
	eventually(t, 5*time.Second, "the cloud is done", func(context.Context) (bool, string) {
		b := balancers(t, c, 1)[0]
		return len(b.PrivateNet) == 1 && len(b.Targets) == 3, fmt.Sprintf("%+v", b)
	})
	made := balancers(t, c, 1)[0]
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
		{IP: made.PublicNet.IPv4.IP}, {IP: made.PublicNet.IPv6.IP},
	}
	if _, err := c.Client.CoreV1().Services("default").UpdateStatus(t.Context(), svc, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	return made
}

func privateTargets(b schema.LoadBalancer) (count int) {
	for _, target := range b.Targets {
		if target.UsePrivateIP {
			count++
		}
	}
	return count
}

// leaseOfThePeer is the lease of a leader that was stopped a minute ago.
func leaseOfThePeer(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	holder, seconds := "hcloud-cloud-controller-manager-7d9f", int32(15)
	renewed := metav1.NewMicroTime(time.Now().Add(-time.Minute))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "cloud-controller-manager"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &renewed,
			AcquireTime: &renewed,
		},
	}
	if _, err := c.Client.CoordinationV1().Leases("kube-system").Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// watchConditions watches the first three Nodes' NetworkUnavailable. The returned function ends the
// watch and lists all states other than False.
func watchConditions(t *testing.T, c *cluster.Cluster) func() []string {
	t.Helper()
	w, err := c.Client.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	looked := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			if !ok || n.Name == "node-3" {
				continue
			}
			looked++
			if says := network(n); !strings.HasPrefix(says, "False") {
				seen = append(seen, n.Name+" "+says)
			}
		}
	}()
	return func() []string {
		w.Stop()
		<-ended
		if looked == 0 {
			t.Error("the watch saw no Node")
		}
		return seen
	}
}
