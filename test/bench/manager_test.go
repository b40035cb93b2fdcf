// Package bench measures the real manager on a real control plane. Counts are
// asserted; times and sizes are reported and fail nothing. Run it with
// `make bench`.
package bench_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const nodeCount = 1000

// BenchmarkManagerWithAThousandNodes reports how long a manager takes from its start until it
// serves, until a thousand new Nodes have podCIDRs and routes, and its memory then.
func BenchmarkManagerWithAThousandNodes(b *testing.B) {
	for b.Loop() {
		measure(b)
	}
}

func measure(b *testing.B) {
	b.Helper()
	ctx := b.Context()
	binary, err := cluster.BuildManager(ctx, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Manager: binary,
		Cloud: hcloudsim.Options{
			AttachmentLimit: hcloudsim.Unlimited, RouteLimit: nodeCount, RateLimit: 1_000_000,
			ActionTime: 5 * time.Millisecond,
		},
		ControlPlane: controlplane.Options{Progress: io.Discard, NodeMonitorGracePeriod: time.Hour},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Stop()
	for i := range nodeCount {
		addNode(b, c, fmt.Sprintf("node-%04d", i))
	}

	began := time.Now()
	m, err := c.StartManager(ctx, cluster.ManagerOptions{
		Config: c.CloudConfig() + fmt.Sprintf("routes: {limit: %d}\n", nodeCount),
		Args:   []string{"--cluster-cidr=10.240.0.0/12,fd00:10:240::/52", "--kube-api-qps=500", "--kube-api-burst=500", "--node-cidr-mask-size-ipv6=64"},
	})
	if err != nil {
		b.Fatal(err)
	}
	until(b, "it serves", func(ctx context.Context) bool { status, _ := m.Health(ctx); return status == 200 })
	b.ReportMetric(time.Since(began).Seconds(), "s-to-healthy")
	until(b, "all Nodes have podCIDRs", func(ctx context.Context) bool { return countNodes(ctx, b, c, allocated) == nodeCount })
	b.ReportMetric(time.Since(began).Seconds(), "s-to-podCIDRs")
	until(b, "all Nodes are routed", func(ctx context.Context) bool { return countNodes(ctx, b, c, routed) == nodeCount })
	b.ReportMetric(time.Since(began).Seconds(), "s-to-routes")
	b.ReportMetric(residentMB(b, m.PID()), "MB-resident")

	refused := 0
	for _, r := range c.Cloud.Requests() {
		if r.Status >= 400 {
			refused++
		}
	}
	if refused > 0 {
		b.Errorf("%d requests were refused", refused)
	}
}

// addNode creates a server and its Node as a kubelet would, without heartbeats.
func addNode(b *testing.B, c *cluster.Cluster, name string) {
	b.Helper()
	if _, err := c.Cloud.CreateServer(hcloudsim.ServerSeed{
		Name: name, Network: c.Network.ID,
	}); err != nil {
		b.Fatal(err)
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	if _, err := c.Client.CoreV1().Nodes().Create(b.Context(), node,
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func allocated(n *corev1.Node) bool { return len(n.Spec.PodCIDRs) == 2 }

func routed(n *corev1.Node) bool {
	c := kube.Condition(n, corev1.NodeNetworkUnavailable)
	return c != nil && c.Status == corev1.ConditionFalse
}

func countNodes(
	ctx context.Context, b *testing.B, c *cluster.Cluster, is func(*corev1.Node) bool,
) int {
	b.Helper()
	// From the API server's cache, so that polling disturbs little.
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	for i := range list.Items {
		if is(&list.Items[i]) {
			n++
		}
	}
	return n
}

func until(b *testing.B, what string, holds func(context.Context) bool) {
	b.Helper()
	err := wait.PollUntilContextTimeout(b.Context(), 200*time.Millisecond, 5*time.Minute, true,
		func(ctx context.Context) (bool, error) { return holds(ctx), nil })
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

// residentMB is a process's resident memory, from Linux' own account.
func residentMB(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 64)
			if err != nil {
				b.Fatal(err)
			}
			return kb / 1024
		}
	}
	b.Fatal("no VmRSS in the process's status")
	return 0
}
