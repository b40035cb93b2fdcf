// Package e2e runs Underlay's real binaries against a real control plane and the simulated cloud,
// and checks results that a user can observe: Nodes, the cloud, the audit log, exit codes. Each
// scenario is named after the property that must hold.
package e2e_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
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
	"github.com/underlay-ccm/underlay/test/testenv/measured"
)

// manager is the path of the binary under test, set once before any test runs.
var manager string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	folder, err := os.MkdirTemp("", "underlay-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	if manager, err = cluster.BuildManager(context.Background(), folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// start starts a cluster without a manager.
func start(t *testing.T, cloud hcloudsim.Options) *cluster.Cluster {
	t.Helper()
	return startWith(t, cluster.Options{Cloud: cloud})
}

// startWith is start with given options.
func startWith(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	if file := os.Getenv(measured.Variable); file != "" {
		t.Logf("the cloud behaves as measured: %s=%s", measured.Variable, file)
	}
	dir := t.TempDir()
	o.Manager, o.ControlPlane.Dir, o.ControlPlane.Progress = manager, dir, io.Discard
	c, err := cluster.Start(context.WithoutCancel(t.Context()), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logs(c))
		}
		c.Stop()
		expectNoSecret(t, dir)
	})
	return c
}

// logs returns the ends of the managers' logs.
func logs(c *cluster.Cluster) string {
	var out strings.Builder
	for i := 1; ; i++ {
		path := fmt.Sprintf("%s/underlay-ccm-%d.log", c.ControlPlane.Dir(), i)
		content, err := os.ReadFile(path)
		if err != nil {
			return out.String()
		}
		lines := strings.Split(string(content), "\n")
		fmt.Fprintf(&out, "--- %s, last lines\n%s\n", path, strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// expectNoSecret searches all logs for the token.
func expectNoSecret(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	looked := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		content, err := os.ReadFile(dir + "/" + e.Name())
		if err != nil {
			t.Error(err)
		}
		looked++
		if strings.Contains(string(content), cluster.Token) {
			t.Errorf("%s holds the token", e.Name())
		}
	}
	if looked == 0 {
		t.Errorf("no logs in %s to look for the token in", dir)
	}
}

func startManager(t *testing.T, c *cluster.Cluster, o cluster.ManagerOptions) *cluster.Manager {
	t.Helper()
	m, err := c.StartManager(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && m.Ended() {
			t.Log(m.Failure(m.Died()))
		}
	})
	return m
}

// defaultLease are the arguments that set the default lease.
func defaultLease() []string {
	return []string{"--leader-elect-lease-duration=15s", "--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=2s"}
}

func addMachine(t *testing.T, c *cluster.Cluster, name string) {
	t.Helper()
	if err := c.AddMachine(context.WithoutCancel(t.Context()), cluster.Machine{
		Name: name,
	}); err != nil {
		t.Fatal(err)
	}
}

// busy is added to every limit: a busy machine is late, not wrong.
const busy = 2 * time.Minute

// eventually waits until a condition holds. limit is ample for an idle machine; a later success is
// logged. holds also returns the current state, for the message if it never does.
func eventually(
	t *testing.T, limit time.Duration, what string, holds func(context.Context) (bool, string),
) {
	t.Helper()
	last, start := "nothing was seen", time.Now()
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, limit+busy, true,
		func(ctx context.Context) (bool, error) {
			var ok bool
			ok, last = holds(ctx)
			return ok, nil
		})
	if err != nil {
		t.Fatalf("%s: not within %s; %s", what, limit+busy, last)
	}
	if took := time.Since(start); took > limit {
		t.Logf("%s: only after %s", what, took.Round(time.Second))
	}
}

// nodes lists the Nodes from the API server.
func nodes(ctx context.Context, t *testing.T, c *cluster.Cluster) []corev1.Node {
	t.Helper()
	list, err := c.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// network returns the status and reason of a Node's condition NetworkUnavailable.
func network(n *corev1.Node) string {
	c := kube.Condition(n, corev1.NodeNetworkUnavailable)
	if c == nil {
		return "none"
	}
	return string(c.Status) + " " + c.Reason
}

// count counts Nodes by their condition NetworkUnavailable.
func count(ns []corev1.Node) map[string]int {
	out := map[string]int{}
	for i := range ns {
		out[network(&ns[i])]++
	}
	return out
}

func served(n *corev1.Node) bool {
	tainted := slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key != "node.kubernetes.io/not-ready"
	})
	return network(n) == "False RouteCreated" && len(n.Spec.PodCIDRs) == 2 && n.Spec.ProviderID != "" && !tainted
}

func allServed(t *testing.T, c *cluster.Cluster, want int) func(context.Context) (bool, string) {
	return func(ctx context.Context) (bool, string) {
		ns := nodes(ctx, t, c)
		var missing []string
		for i := range ns {
			if !served(&ns[i]) {
				missing = append(missing, fmt.Sprintf("%s: network %s, podCIDRs %v, provider %q, taints %v",
					ns[i].Name, network(&ns[i]), ns[i].Spec.PodCIDRs, ns[i].Spec.ProviderID, ns[i].Spec.Taints))
			}
		}
		return len(missing) == 0 && len(ns) == want, fmt.Sprintf("%d of %d Nodes\n%s", len(ns), want, strings.Join(missing, "\n"))
	}
}

// expectSound checks the invariants: no two podCIDRs overlap, and the gateway of every route is the
// server of the Node with the podCIDR.
func expectSound(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	owner := map[netip.Prefix]*corev1.Node{}
	ns := nodes(t.Context(), t, c)
	for i := range ns {
		prefixes, err := kube.PodCIDRs(&ns[i])
		if err != nil {
			t.Error(err)
		}
		for _, p := range prefixes {
			for q, other := range owner {
				if p.Overlaps(q) {
					t.Errorf("podCIDR %s of %s overlaps %s of %s", p, ns[i].Name, q, other.Name)
				}
			}
			owner[p] = &ns[i]
		}
	}
	for dst, via := range routeTable(t, c) {
		n := owner[dst]
		if n == nil {
			t.Errorf("route %s via %s is nobody's", dst, via)
			continue
		}
		if !slices.Contains(kube.InternalIPs(n), via) {
			t.Errorf("route %s leads to %s, its Node %s has %v", dst, via, n.Name, kube.InternalIPs(n))
		}
	}
}

func routeTable(t *testing.T, c *cluster.Cluster) map[netip.Prefix]netip.Addr {
	t.Helper()
	n, ok := c.Cloud.Network(c.Network.ID)
	if !ok {
		t.Fatal("the network is gone")
	}
	out := map[netip.Prefix]netip.Addr{}
	for _, r := range n.Routes {
		dst := netip.MustParsePrefix(r.Destination)
		if _, twice := out[dst]; twice {
			t.Errorf("two routes to %s", dst)
		}
		out[dst] = netip.MustParseAddr(r.Gateway)
	}
	return out
}

// refused returns the manager's writes that the cloud rejected.
func refused(c *cluster.Cluster) []string {
	var out []string
	for _, r := range c.Cloud.Requests() {
		if waits := r.Code == "conflict" || r.Code == "locked"; waits && os.Getenv(measured.Variable) != "" {
			continue // changes conflict with running ones, and are retried
		}
		if r.Method != http.MethodGet && r.Status >= 400 {
			out = append(out, fmt.Sprintf("%s %s: %d %s", r.Method, r.Path, r.Status, r.Code))
		}
	}
	return out
}

// audited returns the manager's writes with an agent in their User-Agent.
func audited(t *testing.T, c *cluster.Cluster, agent string) []controlplane.AuditEvent {
	t.Helper()
	all, err := c.ControlPlane.Audit()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e controlplane.AuditEvent) bool {
		return e.User != "system:serviceaccount:kube-system:underlay-ccm" || !strings.Contains(e.UserAgent, agent)
	})
}
