package e2e_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
)

// rack is a metal cluster's configuration. The variables of a cloud are set, and the cloud exists,
// but must not receive requests.
func rack(c *cluster.Cluster) cluster.ManagerOptions {
	return cluster.ManagerOptions{
		Config: `apiVersion: underlay.dev/v1alpha1
kind: CloudConfig
provider: metal
inventory:
  - name: rack-7
    addresses: [192.0.2.7, 2001:db8::7]
    zone: hall-1
    region: berlin
    type: ex44
`,
		Args: []string{"--node-monitor-period=500ms"},
		Env:  []string{"HCLOUD_TOKEN=" + cluster.Token, "HCLOUD_ENDPOINT=" + c.CloudURL, "HCLOUD_NETWORK=cluster"},
	}
}

// joinRack joins a machine without a provider.
func joinRack(t *testing.T, c *cluster.Cluster, o kubelet.Options) *kubelet.Kubelet {
	t.Helper()
	config, err := c.ControlPlane.KubeletConfig(t.Context(), o.Name)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubelet.Join(context.WithoutCancel(t.Context()), config, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

// Machines that no API lists are initialized, get podCIDRs, and keep their Nodes when they become
// unresponsive. No cloud receives a request.
func TestMetalMachinesJoinAndStay(t *testing.T) {
	t.Parallel()
	c := startRack(t)
	m := startManager(t, c, rack(c))
	addrs := func(texts ...string) (all []netip.Addr) {
		for _, text := range texts {
			all = append(all, netip.MustParseAddr(text))
		}
		return all
	}
	listed := joinRack(t, c, kubelet.Options{Name: "rack-7", ReadyWithPodCIDR: true})
	joinRack(t, c, kubelet.Options{Name: "rack-8", InternalIPs: addrs("192.0.2.8", "2001:db8::8"), ReadyWithPodCIDR: true})
	foreign := joinRack(t, c, kubelet.Options{Name: "rack-9", InternalIPs: addrs("192.0.2.9"), ProviderID: "hcloud://4711", ReadyWithPodCIDR: true})
	eventually(t, 60*time.Second, "three Nodes are initialized and ready", func(ctx context.Context) (bool, string) {
		var missing []string
		ns := nodes(ctx, t, c)
		for i := range ns {
			if n := &ns[i]; len(n.Spec.Taints) > 0 || n.Spec.ProviderID == "" || len(n.Spec.PodCIDRs) != 2 || !kube.Ready(n) {
				missing = append(missing, fmt.Sprintf("%s: taints %v, provider %q, podCIDRs %v", n.Name, n.Spec.Taints, n.Spec.ProviderID, n.Spec.PodCIDRs))
			}
		}
		return len(ns) == 3 && len(missing) == 0, strings.Join(missing, "\n")
	})
	for name, want := range map[string]string{
		"rack-7": "underlay://rack-7 hall-1 berlin ex44 [192.0.2.7 2001:db8::7]",
		"rack-8": "underlay://rack-8    [192.0.2.8 2001:db8::8]",
		"rack-9": "hcloud://4711    [192.0.2.9]",
	} {
		n, err := c.Client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(n.Spec.ProviderID, " ", n.Labels[corev1.LabelTopologyZone], " ", n.Labels[corev1.LabelTopologyRegion], " ",
			n.Labels[corev1.LabelInstanceTypeStable], " ", kube.InternalIPs(n))
		if got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	expectSound(t, c)

	listed.Stop()
	foreign.Stop()
	expectKept(t, c, "rack-7", "rack-9")
	if r := c.Cloud.Requests(); len(r) > 0 {
		t.Errorf("the cloud was asked %d times, first %s %s", len(r), r[0].Method, r[0].Path)
	}
	if status, says := m.Health(t.Context()); status != 200 {
		t.Errorf("health: %d %s", status, says)
	}
	content, err := os.ReadFile(m.Log)
	if err != nil || !strings.Contains(string(content), "HCLOUD_TOKEN: has no effect with provider: metal") {
		t.Errorf("no word of the variables that have no effect (%v)", err)
	}
}

// startRack is start with a short grace period of Nodes.
func startRack(t *testing.T) *cluster.Cluster {
	t.Helper()
	return startWith(t, cluster.Options{
		ControlPlane: controlplane.Options{NodeMonitorGracePeriod: 6 * time.Second},
	})
}

// expectKept waits until the Nodes aren't ready, and then for a dozen intervals of their checks.
func expectKept(t *testing.T, c *cluster.Cluster, names ...string) {
	t.Helper()
	eventually(t, 60*time.Second, "silent Nodes are not ready", func(ctx context.Context) (bool, string) {
		var silent []string
		for _, n := range nodes(ctx, t, c) {
			if !kube.Ready(&n) {
				silent = append(silent, n.Name)
			}
		}
		return slices.Equal(silent, names), fmt.Sprintf("not ready are %q", silent)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 250*time.Millisecond, true,
		func(context.Context) (bool, error) {
			return len(nodes(t.Context(), t, c)) < 3, nil
		})
	if ctx.Err() == nil {
		t.Errorf("a Node was deleted because its machine is unknown (%v)", err)
	}
	for _, e := range audited(t, c, "") {
		if e.Resource == "nodes" && e.Verb == "delete" {
			t.Errorf("the manager asked for it: %s", e)
		}
	}
}
