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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
)

// addressRack is a metal cluster whose nodes hold addresses for Services.
func addressRack(ranges string) cluster.ManagerOptions {
	return cluster.ManagerOptions{
		Config: fmt.Sprintf(`apiVersion: underlay.dev/v1alpha1
kind: CloudConfig
provider: metal
addresses:
  pools:
    - name: segment
      ranges: [%s]
`, ranges),
		Args: []string{"--node-monitor-period=500ms"},
	}
}

const bothFamilies = "192.0.2.16-192.0.2.31, 2001:db8:1::100/124"

// Services get addresses of both families, and nodes that hold them. They keep both after a change
// of leader and after the ledger was deleted; a node that is reported as unreachable loses its own
// at once; a configuration that lacks an address in use ends the manager with the Service's name.
func TestServicesGetAddressesOfNodes(t *testing.T) {
	t.Parallel()
	c := startRack(t)
	first := startManager(t, c, addressRack(bothFamilies))
	names := []string{"rack-7", "rack-8", "rack-9"}
	for i, name := range names {
		own := netip.AddrFrom4([4]byte{192, 0, 2, byte(7 + i)})
		joinRack(t, c, kubelet.Options{
			Name: name, InternalIPs: []netip.Addr{own}, ReadyWithPodCIDR: true,
		})
		reports(t, c, name, addresses.Report{})
	}
	createAddressed(t, c, "web", corev1.IPv4Protocol, corev1.IPv6Protocol)
	eventually(t, 60*time.Second, "the Service has an address of each family", func(context.Context) (bool, string) {
		got := shownBy(t, c, "web")
		return got == "192.0.2.16 2001:db8:1::100", got
	})
	eventually(t, 60*time.Second, "nodes hold both", func(ctx context.Context) (bool, string) {
		h := holders(ctx, t, c)
		return len(h) == 2 && !slices.Contains(h, ""), fmt.Sprint(h)
	})

	startManager(t, c, addressRack(bothFamilies))
	first.Kill()
	createAddressed(t, c, "api", corev1.IPv6Protocol)
	eventually(t, 60*time.Second, "the next leader serves another Service", func(context.Context) (bool, string) {
		got := shownBy(t, c, "api")
		return got == "2001:db8:1::101", got
	})
	// A new leader relies on the reports of others: two of three nodes report the holder as
	// unreachable.
	silent := holders(t.Context(), t, c)[0]
	said := time.Now()
	for _, name := range names {
		if name != silent {
			reports(t, c, name, addresses.Report{
				Silent: []addresses.Endpoint{{Node: silent, Port: addresses.ProxyPort}},
			})
		}
	}
	eventually(t, 30*time.Second, "a silent node holds nothing", func(ctx context.Context) (bool, string) {
		h := holders(ctx, t, c)
		return !slices.Contains(h, silent), fmt.Sprint(h)
	})
	t.Logf("The ledger moved the addresses of %s within %v of the watchers' reports", silent, time.Since(said).Round(time.Millisecond))

	if err := c.Client.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), ledgerOfAddresses, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, 90*time.Second, "the ledger is made anew", func(ctx context.Context) (bool, string) {
		h := holders(ctx, t, c)
		return len(h) == 3, fmt.Sprint(h)
	})
	if web, api := shownBy(t, c, "web"), shownBy(t, c, "api"); web != "192.0.2.16 2001:db8:1::100" || api != "2001:db8:1::101" {
		t.Errorf("afterwards the Services show %q and %q", web, api)
	}

	smaller := startManager(t, c, addressRack("192.0.2.16-192.0.2.31"))
	eventually(t, 30*time.Second, "a configuration without addresses in use is refused", func(context.Context) (bool, string) {
		return smaller.Ended(), "it runs"
	})
	if text := smaller.Failure(smaller.Died()).Error(); !strings.Contains(text, "default/web") || !strings.Contains(text, "2001:db8:1::100") || !strings.Contains(text, "default/api") {
		t.Errorf("it says %s", text)
	}
	expectAllowed(t, c)
}

// expectAllowed checks that the manager made no request that its role forbids.
func expectAllowed(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, e := range audited(t, c, "") {
		if e.Code == http.StatusForbidden {
			t.Errorf("forbidden: %s", e)
		}
	}
}

const ledgerOfAddresses = "underlay-addresses"

// createAddressed creates a Service of these families that requires an address held by a node.
func createAddressed(t *testing.T, c *cluster.Cluster, name string, families ...corev1.IPFamily) {
	t.Helper()
	class, policy := kube.AddressClass, corev1.IPFamilyPolicySingleStack
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class, IPFamilyPolicy: &policy,
			IPFamilies: families,
			Selector:   map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}},
		},
	}
	if len(families) == 2 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	if _, err := c.Client.CoreV1().Services("default").Create(t.Context(), svc, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// shownBy returns the addresses in a Service's status.
func shownBy(t *testing.T, c *cluster.Cluster, name string) string {
	t.Helper()
	var all []string
	for _, in := range service(t, c, name).Status.LoadBalancer.Ingress {
		all = append(all, in.IP)
	}
	return strings.Join(all, " ")
}

// reports writes an agent's report to a Node, once the Node exists.
func reports(t *testing.T, c *cluster.Cluster, name string, r addresses.Report) {
	t.Helper()
	text, err := r.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, addresses.ReportAnnotation, text)
	eventually(t, 30*time.Second, "the Node "+name+" takes what its agent says", func(ctx context.Context) (bool, string) {
		_, err := c.Client.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// holders are the nodes that hold addresses, from the stored ledger, in the order of the addresses.
func holders(ctx context.Context, t *testing.T, c *cluster.Cluster) (nodes []string) {
	t.Helper()
	stored, err := c.Client.CoreV1().ConfigMaps("kube-system").Get(ctx, ledgerOfAddresses, metav1.GetOptions{})
	if err != nil {
		return nil
	}
	l, err := addresses.ParseLedger([]byte(stored.Data["ledger"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range l.Entries() {
		if len(e.Shares) > 0 {
			nodes = append(nodes, e.Holder)
		}
	}
	return nodes
}
