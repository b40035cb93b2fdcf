package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// ledgerName begins the names of the ConfigMaps in kube-system that record the podCIDRs of Nodes.
const ledgerName = "underlay-node-ipam"

// ledgerRecord is one line of the stored ledger, parsed from the text form that the documentation
// promises.
type ledgerRecord struct {
	node     string
	prefixes []string
	released bool
	line     string
}

// storedLedger reads the stored ledger, by UID.
func storedLedger(
	ctx context.Context, t *testing.T, c *cluster.Cluster,
) map[types.UID]ledgerRecord {
	t.Helper()
	stored, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatalf("the stored ledger: %v", err)
	}
	out := map[types.UID]ledgerRecord{}
	for _, shard := range stored.Items {
		for name, lines := range shard.Data {
			if !strings.HasPrefix(shard.Name, ledgerName) || strings.HasPrefix(name, "_") { // not about a Node
				continue
			}
			for line := range strings.SplitSeq(lines, "\n") {
				uid, r := readRecord(t, name, line)
				if part, ok := out[uid]; ok { // the families are in two ConfigMaps
					r.prefixes = append(part.prefixes, r.prefixes...)
				}
				slices.SortFunc(r.prefixes, ipv4First)
				out[uid] = r
			}
		}
	}
	return out
}

func ipv4First(a, b string) int { return strings.Count(a, ":") - strings.Count(b, ":") }

func readRecord(t *testing.T, name, line string) (types.UID, ledgerRecord) {
	t.Helper()
	r := ledgerRecord{node: name, line: line}
	var uid types.UID
	for word := range strings.FieldsSeq(line) {
		key, value, pair := strings.Cut(word, "=")
		switch {
		case !pair:
			prefix, _, _ := strings.Cut(word, "@")
			r.prefixes = append(r.prefixes, prefix)
		case key == "uid":
			uid = types.UID(value)
		case key == "released":
			r.released = true
		}
	}
	if uid == "" || len(r.prefixes) == 0 {
		t.Errorf("the record of %s can't be understood: %q", name, line)
	}
	return uid, r
}

// expectRecorded checks the main invariant while requests may be in flight: the podCIDRs of a Node
// were recorded in the stored ledger before.
func expectRecorded(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ns := nodes(t.Context(), t, c) // first: the ledger may only be newer
	stored := storedLedger(t.Context(), t, c)
	for i := range ns {
		n := &ns[i]
		if len(n.Spec.PodCIDRs) == 0 {
			continue
		}
		if r := stored[n.UID]; r.node != n.Name || !slices.Equal(r.prefixes, n.Spec.PodCIDRs) {
			t.Errorf("Node %s has %v, the ledger says %q", n.Name, n.Spec.PodCIDRs, r.line)
		}
	}
}

// expectLedgerAgrees checks that the stored ledger and the Nodes have the same podCIDRs when all
// have theirs.
func expectLedgerAgrees(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	expectRecorded(t, c)
	alive := map[types.UID]bool{}
	for _, n := range nodes(t.Context(), t, c) {
		alive[n.UID] = true
	}
	for uid, r := range storedLedger(t.Context(), t, c) {
		if !alive[uid] && !r.released {
			t.Errorf("the ledger keeps %s for no Node that there is: %q", r.node, r.line)
		}
	}
}

// createNodes creates Nodes named prefix-0 and so on.
func createNodes(t *testing.T, c *cluster.Cluster, prefix string, n int) {
	t.Helper()
	for i := range n {
		createNode(t, c.Client, fmt.Sprintf("%s-%02d", prefix, i))
	}
}

// awaitPodCIDRs waits until at least want Nodes have podCIDRs.
func awaitPodCIDRs(t *testing.T, c *cluster.Cluster, want int, limit time.Duration) {
	t.Helper()
	eventually(t, limit, fmt.Sprint(want, " Nodes have podCIDRs"), func(ctx context.Context) (bool, string) {
		ns := nodes(ctx, t, c)
		return withPodCIDRs(ns) >= want, fmt.Sprintf("%d of %d have", withPodCIDRs(ns), len(ns))
	})
}

// expectNothingLeaked adds Nodes until the pools must be full. A lost range would be missing, and a
// surplus one would have two owners.
func expectNothingLeaked(t *testing.T, c *cluster.Cluster, room int) {
	t.Helper()
	createNodes(t, c, "last", room-len(nodes(t.Context(), t, c)))
	awaitPodCIDRs(t, c, room, 3*time.Minute) // it may detect only now that its ledger was deleted
	expectNoneShared(t, c)
	expectLedgerAgrees(t, c)
	if ns := nodes(t.Context(), t, c); slices.ContainsFunc(ns, func(n corev1.Node) bool {
		return len(n.Spec.PodCIDRs) != 2
	}) {
		t.Error("not every Node has podCIDRs of both families")
	}
}
