package e2e_test

import (
	"context"
	"fmt"
	"math/bits"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
	"github.com/underlay-ccm/underlay/test/testenv/faultproxy"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// startForIPAM starts a cluster in which only the allocators under test write Nodes.
func startForIPAM(t *testing.T) *cluster.Cluster {
	t.Helper()
	return startWith(t, cluster.Options{
		Cloud:        hcloudsim.Options{RateLimit: 100_000},
		ControlPlane: controlplane.Options{WithoutControllerManager: true},
	})
}

// poolsFor returns pools of both families with room for exactly this number of Nodes, a power of
// two.
func poolsFor(nodes int) string {
	n := bits.Len(uint(nodes)) - 1
	return fmt.Sprintf("--cluster-cidr=10.244.0.0/%d,fd00:10:244::/%d", 24-n, 64-n)
}

// startIPAM starts a manager that runs node IPAM only, with pools for exactly this number of Nodes.
func startIPAM(
	t *testing.T, c *cluster.Cluster, nodes int, config string, args ...string,
) *cluster.Manager {
	t.Helper()
	return startManager(t, c, cluster.ManagerOptions{
		Config: c.CloudConfig() + config,
		Args:   append([]string{"--controllers=node-ipam-controller", "--configure-cloud-routes=false", poolsFor(nodes)}, args...),
	})
}

// sharing counts the Nodes whose podCIDRs overlap those of another one, and names them.
func sharing(ns []corev1.Node) (int, string) {
	var all strings.Builder
	guilty := map[string]bool{}
	for i := range ns {
		mine, _ := kube.PodCIDRs(&ns[i]) // invalid podCIDRs overlap nothing
		for j := range ns[:i] {
			theirs, _ := kube.PodCIDRs(&ns[j])
			for _, p := range mine {
				for _, q := range theirs {
					if p.Overlaps(q) {
						guilty[ns[i].Name], guilty[ns[j].Name] = true, true
						fmt.Fprintf(&all, "%s of %s overlaps %s of %s\n", p, ns[i].Name, q, ns[j].Name)
					}
				}
			}
		}
	}
	return len(guilty), all.String()
}

func expectNoneShared(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if n, which := sharing(nodes(t.Context(), t, c)); n > 0 {
		t.Errorf("%d Nodes share podCIDRs:\n%s", n, which)
	}
}

func withPodCIDRs(ns []corev1.Node) int {
	n := 0
	for i := range ns {
		if kube.HasPodCIDRs(&ns[i]) {
			n++
		}
	}
	return n
}

// configMaps is the API path of the ConfigMaps in kube-system.
const configMaps = "/api/v1/namespaces/kube-system/configmaps"

// lossRound is the result of one run of the scenario below.
type lossRound struct {
	lost      int // lost replies
	patches   int // executed by the API server
	allocated int // Nodes with podCIDRs
	shared    int // Nodes that share a podCIDR with another
}

// The last range of a pool is assigned to a Node, and the reply to its PATCH is lost. The watch is
// stalled, and other Nodes wait for a range. An allocator that takes the lost reply for a failure
// assigns the range to two Nodes. The same is done to kube-controller-manager's allocator, whose
// results are only printed.
func TestLostReplyWithAFullPoolAndAStalledWatch(t *testing.T) {
	t.Parallel()
	const rounds = 2
	var table strings.Builder
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "allocator\tround\treplies lost\tPATCHes applied\tNodes with podCIDRs (of room for 4)\tNodes sharing one")
	for _, allocator := range []struct {
		name  string
		start func(*testing.T, *cluster.Cluster, string) *process.Process
	}{
		{"underlay", func(t *testing.T, c *cluster.Cluster, master string) *process.Process {
			return startIPAM(t, c, 4, "", "--master="+master).Process
		}},
		{"kube-controller-manager", func(t *testing.T, c *cluster.Cluster, master string) *process.Process {
			p, err := c.StartPeer(t.Context(), poolsFor(4), "--master="+master)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}},
	} {
		for round := range rounds {
			t.Run(fmt.Sprint(allocator.name, " ", round), func(t *testing.T) {
				got := loseReplies(t, allocator.start)
				fmt.Fprintf(rows, "%s\t%d\t%d\t%d\t%d\t%d\n", allocator.name, round+1, got.lost, got.patches, got.allocated, got.shared)
				if allocator.name == "underlay" && (got.shared != 0 || got.allocated != 4) {
					t.Errorf("%+v: want 4 Nodes with podCIDRs, none shared", got)
				}
			})
		}
	}
	_ = rows.Flush() // into memory
	t.Logf("reply lost after an applied PATCH, pool full, watch stalled:\n%s", &table)
}

func loseReplies(
	t *testing.T, start func(*testing.T, *cluster.Cluster, string) *process.Process,
) lossRound {
	c := startForIPAM(t)
	for i := range 3 {
		taken := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("holder-", i)}}
		taken.Spec.PodCIDR = fmt.Sprintf("10.244.%d.0/24", i+1)
		taken.Spec.PodCIDRs = []string{taken.Spec.PodCIDR, fmt.Sprintf("fd00:10:244:%d::/64", i+1)}
		if _, err := c.Client.CoreV1().Nodes().Create(t.Context(), taken,
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 5 {
		createNode(t, c.Client, fmt.Sprint("waiting-", i))
	}
	proxy, err := c.StartProxy()
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Set(loseFirstNode(proxy))
	running := start(t, c, proxy.URL())
	eventually(t, 90*time.Second, "a reply is lost", func(context.Context) (bool, string) {
		return proxy.Lost() > 0 && withPodCIDRs(nodes(t.Context(), t, c)) > 3 || running.Ended(), "none"
	})
	// Long enough for an allocator that releases the range and tries again.
	whileNothingNeedsToHappen(t, 3*time.Second)
	proxy.Set(nil)
	proxy.ResumeWatches()
	whileNothingNeedsToHappen(t, 3*time.Second)
	if running.Ended() {
		t.Fatal(running.Failure(running.Died()))
	}
	got := lossRound{lost: proxy.Lost(), allocated: withPodCIDRs(nodes(t.Context(), t, c))}
	got.shared, _ = sharing(nodes(t.Context(), t, c))
	events, err := c.ControlPlane.Audit()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if e.Verb == "patch" && e.Resource == "nodes" && e.Subresource == "" && e.Code == http.StatusOK {
			got.patches++
		}
	}
	return got
}

// loseFirstNode loses every reply to PATCHes of the Node that is written first, and stalls the
// watches before that write. Of the stored ledger, which kube-controller-manager doesn't have, the
// reply to the first write is lost.
func loseFirstNode(proxy *faultproxy.Proxy) faultproxy.Rule {
	var mu sync.Mutex
	victim, ledgerWritten := "", false
	return func(r *http.Request) faultproxy.Fate {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasPrefix(r.URL.Path, configMaps) && r.Method != http.MethodGet && !ledgerWritten {
			ledgerWritten = true
			return faultproxy.LoseReply
		}
		if r.Method != http.MethodPatch || path.Dir(r.URL.Path) != "/api/v1/nodes" {
			return faultproxy.Pass
		}
		if victim == "" {
			victim = r.URL.Path
			proxy.StallWatches()
		}
		if r.URL.Path == victim {
			return faultproxy.LoseReply
		}
		return faultproxy.Pass
	}
}

// whileNothingNeedsToHappen waits, so that an unwanted event has time to happen.
func whileNothingNeedsToHappen(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal(context.Cause(t.Context()))
	}
}
