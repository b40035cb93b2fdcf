package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

func TestThreeMachinesJoin(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{
		ActionTime: 300 * time.Millisecond, ActionJitter: 200 * time.Millisecond,
		Latency: 20 * time.Millisecond,
	})
	startManager(t, c, cluster.ManagerOptions{})
	for i := range 3 {
		addMachine(t, c, fmt.Sprint("node-", i))
	}
	eventually(t, 30*time.Second, "three Nodes are served", allServed(t, c, 3))
	expectSound(t, c)
	if n := len(routeTable(t, c)); n != 3 {
		t.Errorf("%d routes, want 3", n)
	}
	if r := refused(c); len(r) > 0 {
		t.Errorf("the cloud refused writes: %q", r)
	}
	expectFewWrites(t, c, 3)
	expectNodeDescribed(t, c, "node-0")
}

// expectFewWrites: per node at most podCIDRs, condition True, condition False; and the manager made
// no forbidden request.
func expectFewWrites(t *testing.T, c *cluster.Cluster, most int) {
	t.Helper()
	per := map[string][]string{}
	for _, e := range slices.Concat(audited(t, c, "node-ipam-controller"), audited(t, c, "node-route-controller")) {
		if e.Resource == "nodes" {
			per[e.Name] = append(per[e.Name], e.String())
		}
	}
	if len(per) == 0 {
		t.Error("the audit log has no write of our controllers")
	}
	for name, writes := range per {
		if len(writes) > most {
			t.Errorf("%d writes to node %s, want at most %d:\n%s", len(writes), name, most, strings.Join(writes, "\n"))
		}
	}
	for _, e := range audited(t, c, "") {
		if e.Code == 403 {
			t.Errorf("forbidden: %s", e)
		}
	}
}

// expectNodeDescribed checks the labels and addresses that users of the cloud's Nodes rely on.
func expectNodeDescribed(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{
		corev1.LabelInstanceTypeStable:       "cx22",
		corev1.LabelTopologyRegion:           "fsn1",
		corev1.LabelTopologyZone:             "fsn1-dc14",
		"instance.hetzner.cloud/provided-by": "cloud",
	} {
		if n.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, n.Labels[label], want)
		}
	}
	kinds := map[corev1.NodeAddressType]int{}
	for _, a := range n.Status.Addresses {
		kinds[a.Type]++
	}
	if kinds[corev1.NodeHostName] != 1 || kinds[corev1.NodeInternalIP] != 1 ||
		kinds[corev1.NodeExternalIP] != 1 {
		t.Errorf("addresses %v, want a host name, one internal and one external", n.Status.Addresses)
	}
	if !strings.HasPrefix(n.Spec.ProviderID, "hcloud://") {
		t.Errorf("provider ID %q", n.Spec.ProviderID)
	}
}

// A hundred routes, a hundred and twenty nodes: all routes are used, no request is sent that must
// fail, and each waiting Node shows the reason.
func TestMoreNodesThanRoutes(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{
		ActionTime: 20 * time.Millisecond, AttachmentLimit: 200, RateLimit: 100_000,
	})
	startManager(t, c, cluster.ManagerOptions{Args: append(defaultLease(), "--kube-api-qps=200", "--kube-api-burst=300")})
	for i := range 120 {
		addMachine(t, c, fmt.Sprintf("node-%03d", i))
	}
	eventually(t, 2*time.Minute, "100 Nodes are routed, 20 refused", func(ctx context.Context) (bool, string) {
		got := count(nodes(ctx, t, c))
		return got["False RouteCreated"] == 100 && got["True RouteTableFull"] == 20, fmt.Sprint(got)
	})
	expectSound(t, c)
	if n := len(routeTable(t, c)); n != 100 {
		t.Errorf("%d routes, want exactly 100", n)
	}
	if r := refused(c); len(r) > 0 {
		t.Errorf("the cloud refused writes: %q", r)
	}
	eventually(t, 20*time.Second, "20 Events say why", func(ctx context.Context) (bool, string) {
		got := eventsPerNode(ctx, t, c, "RouteTableFull")
		for name, n := range got {
			if n != 1 {
				t.Fatalf("%d Events for node %s, want one", n, name)
			}
		}
		return len(got) == 20, fmt.Sprintf("%d Nodes have one", len(got))
	})

	// A freed route is assigned to a Node that waits.
	routed := slices.IndexFunc(nodes(t.Context(), t, c), func(n corev1.Node) bool { return network(&n) == "False RouteCreated" })
	name := nodes(t.Context(), t, c)[routed].Name
	if err := c.DeleteServer(name); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "a waiting Node has the freed route", func(ctx context.Context) (bool, string) {
		got := count(nodes(ctx, t, c))
		return got["False RouteCreated"] == 100 && got["True RouteTableFull"] == 19, fmt.Sprint(got)
	})
}

func eventsPerNode(
	ctx context.Context, t *testing.T, c *cluster.Cluster, reason string,
) map[string]int {
	t.Helper()
	list, err := c.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"reason": reason, "involvedObject.kind": "Node"}.String(),
	})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, e := range list.Items {
		out[e.InvolvedObject.Name] += int(max(e.Count, 1))
	}
	return out
}

// The manager is killed while 50 nodes join, and restarted.
func TestKilledInTheMiddle(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 100 * time.Millisecond, RateLimit: 100_000})
	first := startManager(t, c, cluster.ManagerOptions{})
	for i := range 50 {
		addMachine(t, c, fmt.Sprintf("node-%02d", i))
	}
	eventually(t, time.Minute, "some Nodes are routed", func(ctx context.Context) (bool, string) {
		n := len(routeTable(t, c))
		return n >= 10, fmt.Sprint(n, " routes")
	})
	first.Kill()
	if n := len(routeTable(t, c)); n >= 50 {
		t.Fatalf("%d routes: it was not killed in the middle", n)
	}
	startManager(t, c, cluster.ManagerOptions{})
	eventually(t, 90*time.Second, "all 50 Nodes are served", allServed(t, c, 50))
	expectSound(t, c)
	expectLedgerAgrees(t, c)
	if n := len(routeTable(t, c)); n != 50 {
		t.Errorf("%d routes, want 50", n)
	}
}

// A second manager takes over without changing anything.
func TestATakeoverChangesNothing(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	first := startManager(t, c, cluster.ManagerOptions{})
	for i := range 3 {
		addMachine(t, c, fmt.Sprint("node-", i))
	}
	eventually(t, 30*time.Second, "three Nodes are served", allServed(t, c, 3))
	before, table := len(nodeWrites(t, c)), routeTable(t, c)
	first.Kill()
	c.Cloud.ResetRequests()
	second := startManager(t, c, cluster.ManagerOptions{})
	eventually(t, 30*time.Second, "the second one leads and looks at the network", func(ctx context.Context) (bool, string) {
		status, says := second.Health(ctx)
		looks := 0
		for _, r := range c.Cloud.Requests() {
			if strings.HasPrefix(r.Path, "/v1/networks") {
				looks++
			}
		}
		return status == 200 && looks >= 2, fmt.Sprintf("%d %s, %d looks", status, says, looks)
	})
	addMachine(t, c, "node-3") // once it is initialized, the others have been checked
	eventually(t, 30*time.Second, "four Nodes are served", allServed(t, c, 4))
	after := slices.DeleteFunc(nodeWrites(t, c), func(s string) bool { return strings.Contains(s, "node-3") })
	if len(after) != before {
		t.Errorf("the second manager wrote to Nodes that were served: %q", after[before:])
	}
	for dst, via := range table {
		if routeTable(t, c)[dst] != via {
			t.Errorf("route %s changed from %s", dst, via)
		}
	}
}

func nodeWrites(t *testing.T, c *cluster.Cluster) []string {
	t.Helper()
	var out []string
	for _, e := range audited(t, c, "") {
		if e.Resource == "nodes" {
			out = append(out, e.String())
		}
	}
	return out
}

// The Node and the route of a deleted server are deleted; nothing else is.
func TestADeletedServerTakesItsNodeAndRoute(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	startManager(t, c, cluster.ManagerOptions{})
	for i := range 3 {
		addMachine(t, c, fmt.Sprint("node-", i))
	}
	eventually(t, 30*time.Second, "three Nodes are served", allServed(t, c, 3))
	if err := c.DeleteServer("node-1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "its Node and route are gone", func(ctx context.Context) (bool, string) {
		ns, n := nodes(ctx, t, c), len(routeTable(t, c))
		return len(ns) == 2 && n == 2, fmt.Sprintf("%d Nodes, %d routes", len(ns), n)
	})
	expectSound(t, c)
}

// Existing routes and podCIDRs are respected: a foreign route is kept, and an existing podCIDR is
// never assigned to another Node.
func TestExistingRoutesAndPodCIDRs(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 50 * time.Millisecond})
	foreign := hcloudsim.RouteSeed{Destination: netip.MustParsePrefix("192.168.7.0/24"), Gateway: netip.MustParseAddr("10.0.255.1")}
	if err := c.Cloud.AddRoute(c.Network.ID, foreign); err != nil {
		t.Fatal(err)
	}
	taken := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "old"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.0.0/24", PodCIDRs: []string{"10.244.0.0/24", "fd00:10:244::/64"}, ProviderID: "hrobot://77"},
	}
	if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), taken,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	startManager(t, c, cluster.ManagerOptions{})
	addMachine(t, c, "node-0")
	eventually(t, 30*time.Second, "the new Node is served", func(ctx context.Context) (bool, string) {
		n, err := c.Client.CoreV1().Nodes().Get(ctx, "node-0", metav1.GetOptions{})
		return err == nil && served(n), fmt.Sprint(n.Spec, err)
	})
	n, err := c.Client.CoreV1().Nodes().Get(t.Context(), "node-0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	prefixes, err := kube.PodCIDRs(n)
	if err != nil || slices.Contains(prefixes, netip.MustParsePrefix("10.244.0.0/24")) {
		t.Errorf("the new Node has %v, %v", prefixes, err)
	}
	if routeTable(t, c)[foreign.Destination] != foreign.Gateway {
		t.Error("the foreign route is gone")
	}
	// The dedicated server's Node is never treated as deleted, ready or not.
	if _, err := c.Client.CoreV1().Nodes().Get(t.Context(), "old", metav1.GetOptions{}); err != nil {
		t.Errorf("the dedicated server's Node: %v", err)
	}
}
