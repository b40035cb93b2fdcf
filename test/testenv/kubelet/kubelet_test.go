package kubelet_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/kubelet"
)

// patience limits waits for actions of the cluster.
const patience = 2 * time.Minute

// grace is how long an unresponsive node remains ready in these tests.
const grace = 10 * time.Second

func TestNodeLivesAndDies(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Options{NodeMonitorGracePeriod: grace})
	admin := kubernetes.NewForConfigOrDie(cp.AdminConfig())
	k := join(t, cp, kubelet.Options{
		Name:             "n1",
		InternalIPs:      []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fd00::5")},
		Labels:           map[string]string{"example.com/rack": "7"},
		ReadyWithPodCIDR: true,
	})

	node := getNode(t, admin, "n1")
	wantTaints := []corev1.Taint{{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}}
	if diff := cmp.Diff(wantTaints, withoutNotReady(node.Spec.Taints)); diff != "" {
		t.Errorf("taints (-want +got):\n%s", diff)
	}
	wantAddresses := []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "10.0.0.5"},
		{Type: corev1.NodeInternalIP, Address: "fd00::5"},
		{Type: corev1.NodeHostName, Address: "n1"},
	}
	if diff := cmp.Diff(wantAddresses, node.Status.Addresses); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	if got := node.Annotations["alpha.kubernetes.io/provided-node-ip"]; got != "10.0.0.5,fd00::5" {
		t.Errorf("provided-node-ip %q, want both addresses", got)
	}
	if got := node.Labels["example.com/rack"]; got != "7" {
		t.Errorf("label example.com/rack %q, want 7", got)
	}
	if node.Spec.PodCIDR != "" || node.Spec.ProviderID != "" {
		t.Errorf("podCIDR %q and providerID %q, want neither", node.Spec.PodCIDR, node.Spec.ProviderID)
	}
	waitForReady(t, admin, "n1", corev1.ConditionFalse)

	patch := []byte(`{"spec":{"podCIDR":"10.244.0.0/24","podCIDRs":["10.244.0.0/24"]}}`)
	if _, err := admin.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForReady(t, admin, "n1", corev1.ConditionTrue)

	k.Stop()
	waitForReady(t, admin, "n1", corev1.ConditionUnknown)

	join(t, cp, kubelet.Options{Name: "n1"}) // the machine is back
	waitForReady(t, admin, "n1", corev1.ConditionTrue)
}

// TestManyStayAlive limits the cost: the heartbeats of hundreds of kubelets in one process must all
// be in time.
func TestManyStayAlive(t *testing.T) {
	const nodes = 200
	cp := controlplane.StartT(t, controlplane.Options{NodeMonitorGracePeriod: grace})
	admin := kubernetes.NewForConfigOrDie(cp.AdminConfig())

	began := time.Now()
	var group errgroup.Group
	group.SetLimit(16)
	for i := range nodes {
		group.Go(func() error {
			name := fmt.Sprintf("n%03d", i)
			config, err := cp.KubeletConfig(t.Context(), name)
			if err != nil {
				return err
			}
			k, err := kubelet.Join(t.Context(), config, kubelet.Options{Name: name})
			if err == nil {
				t.Cleanup(k.Stop)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d nodes joined in %.1f s", nodes, time.Since(began).Seconds())

	eventually(t, "every node to be Ready", func(ctx context.Context) (bool, error) {
		ready, _, err := count(ctx, admin)
		return ready == nodes, err
	})
	t.Logf("%d nodes ready after %.1f s", nodes, time.Since(began).Seconds())

	// From here no node may become unready, for longer than the grace period.
	ctx, cancel := context.WithTimeout(t.Context(), grace+2*time.Second)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true,
		func(ctx context.Context) (bool, error) {
			_, unknown, err := count(ctx, admin)
			return unknown > 0, err
		})
	if ctx.Err() == nil {
		t.Errorf("a node that is alive was taken for dead: %v", err)
	}
}

func count(ctx context.Context, client kubernetes.Interface) (ready, unknown int, err error) {
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return 0, 0, err
	}
	for _, node := range list.Items {
		switch readiness(&node) {
		case corev1.ConditionTrue:
			ready++
		case corev1.ConditionUnknown:
			unknown++
		}
	}
	return ready, unknown, nil
}

func join(t *testing.T, cp *controlplane.ControlPlane, options kubelet.Options) *kubelet.Kubelet {
	t.Helper()
	config, err := cp.KubeletConfig(t.Context(), options.Name)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kubelet.Join(t.Context(), config, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	return k
}

func getNode(t *testing.T, client kubernetes.Interface, name string) *corev1.Node {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// withoutNotReady leaves out the taints that the API server and the node lifecycle controller add.
func withoutNotReady(taints []corev1.Taint) []corev1.Taint {
	var own []corev1.Taint
	for _, taint := range taints {
		if taint.Key != corev1.TaintNodeNotReady {
			own = append(own, taint)
		}
	}
	return own
}

func waitForReady(
	t *testing.T, client kubernetes.Interface, name string, want corev1.ConditionStatus,
) {
	t.Helper()
	eventually(t, fmt.Sprintf("Ready=%s", want), func(ctx context.Context) (bool, error) {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		return err == nil && readiness(node) == want, err
	})
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return ""
}

func eventually(t *testing.T, what string, condition wait.ConditionWithContextFunc) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		condition); err != nil {
		t.Fatalf("wait for %s: %v", what, err)
	}
}
