package e2e_test

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

// The scenarios below let a manager allocate for 50 Nodes out of pools for 64,
// slowly enough to interfere in the middle of it.
const (
	batch = 50
	room  = 64
	slow  = "ipamQPS: 10\n"
	some  = 8 // Nodes that have podCIDRs when the fault comes
)

// beginBatch creates the Nodes and waits until the manager is in the middle.
func beginBatch(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	createNodes(t, c, "node", batch)
	awaitPodCIDRs(t, c, some, time.Minute)
}

// expectInTheMiddle fails if the fault came too late to be one.
func expectInTheMiddle(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if n := withPodCIDRs(nodes(t.Context(), t, c)); n >= batch {
		t.Fatalf("%d Nodes have podCIDRs: it was not in the middle", n)
	}
	expectRecorded(t, c)
}

// A leader that stops in the middle, is replaced, and wakes up with requests
// about to be sent. With leader election it ends itself, after what it had begun
// to send; without any, it goes on beside the other.
func TestStoppedLeaderWakesUp(t *testing.T) {
	t.Parallel()
	for name, election := range map[string]bool{"with leader election": true, "without leader election": false} {
		t.Run(name, func(t *testing.T) {
			var args []string
			if !election {
				args = append(args, "--leader-elect=false")
			}
			c := startForIPAM(t)
			createLedger(t, c) // else one that elects nobody waits first, in case it was lost
			first := startIPAM(t, c, room, slow, args...)
			beginBatch(t, c)
			signal(t, first, syscall.SIGSTOP)
			expectInTheMiddle(t, c)

			second := startIPAM(t, c, room, slow, args...)
			awaitPodCIDRs(t, c, batch/2, time.Minute)
			// The other is in the middle too: ranges that the first was about to
			// write are other Nodes' by now, and its Nodes still have none.
			expectInTheMiddle(t, c) // before: what the first held back meanwhile goes out at once
			signal(t, first, syscall.SIGCONT)
			if election {
				awaitEnd(t, first)
			}
			awaitPodCIDRs(t, c, batch, time.Minute)
			expectNothingLeaked(t, c, room)
			for _, m := range []*cluster.Manager{first, second} {
				if m.Ended() && (m == second || !election) {
					t.Error(m.Failure(m.Died()))
				}
			}
		})
	}
}

func signal(t *testing.T, m *cluster.Manager, s syscall.Signal) {
	t.Helper()
	if err := m.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func awaitEnd(t *testing.T, m *cluster.Manager) {
	t.Helper()
	select {
	case <-m.Done():
	case <-time.After(30 * time.Second):
		t.Error("the former leader goes on")
	}
}

// A leader that is told to stop in the middle gives its lease back, or the next
// one would have to wait an hour here.
func TestLeaderStepsDown(t *testing.T) {
	t.Parallel()
	hour := []string{"--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=59m", "--leader-elect-retry-period=500ms"}
	c := startForIPAM(t)
	first := startIPAM(t, c, room, slow, hour...)
	beginBatch(t, c)
	signal(t, first, syscall.SIGTERM)
	awaitEnd(t, first)
	expectInTheMiddle(t, c)

	startIPAM(t, c, room, "", hour...)
	awaitPodCIDRs(t, c, batch, time.Minute)
	expectNothingLeaked(t, c, room)
}

// Killed in the middle: what stood in the ledger, written to a Node or not, is
// what its Node gets from the next one.
func TestKilledWhileAllocating(t *testing.T) {
	t.Parallel()
	c := startForIPAM(t)
	first := startIPAM(t, c, room, slow)
	beginBatch(t, c)
	first.Kill()
	expectInTheMiddle(t, c)
	reserved := storedLedger(t.Context(), t, c)

	startIPAM(t, c, room, "")
	awaitPodCIDRs(t, c, batch, time.Minute)
	for _, n := range nodes(t.Context(), t, c) {
		if r, ok := reserved[n.UID]; ok && !slices.Equal(r.prefixes, n.Spec.PodCIDRs) {
			t.Errorf("Node %s has %v, reserved was %q", n.Name, n.Spec.PodCIDRs, r.line)
		}
	}
	expectNothingLeaked(t, c, room)
}

// The API server is killed in the middle and comes back with the same data:
// requests under way end in every possible way.
func TestAPIServerRestartedWhileAllocating(t *testing.T) {
	t.Parallel()
	c := startForIPAM(t)
	// Longer than the API server is away, so that the same process goes on.
	m := startIPAM(t, c, room, slow,
		"--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s", "--leader-elect-retry-period=1s")
	beginBatch(t, c)
	expectInTheMiddle(t, c) // before: what was held up meanwhile goes out at once after it
	if err := c.ControlPlane.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitPodCIDRs(t, c, batch, 2*time.Minute)
	if m.Ended() {
		t.Fatal(m.Failure(m.Died()))
	}
	expectNothingLeaked(t, c, room)
}

// The ledger is deleted under a leader. What it had recorded it goes on to
// write; what is new waits, if there was ever another leader before, until that
// one can't have anything under way.
func TestLedgerDeletedWhileAllocating(t *testing.T) {
	t.Parallel()
	for name, takenOver := range map[string]bool{"by the first leader ever": false, "after a takeover": true} {
		t.Run(name, func(t *testing.T) {
			c := startForIPAM(t)
			if takenOver {
				pretendATakeover(t, c)
			}
			m := startIPAM(t, c, room, slow)
			beginBatch(t, c)
			expectInTheMiddle(t, c)
			deleteLedger(t, c)
			deleted := time.Now()
			expectNothingLeaked(t, c, room)
			if m.Ended() {
				t.Fatal(m.Failure(m.Died()))
			}
			if takenOver {
				expectWaited(t, c, "last-", deleted)
			}
		})
	}
}

// pretendATakeover leaves what a leader leaves that took over from another and
// died long ago: the lease that has changed hands, and a ledger.
func pretendATakeover(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ended := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "cloud-controller-manager"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("former"), LeaseDurationSeconds: ptr.To[int32](1),
			AcquireTime: &ended, RenewTime: &ended, LeaseTransitions: ptr.To[int32](3),
		},
	}
	if _, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createLedger(t, c)
}

// createLedger stores a ledger that says nothing yet.
func createLedger(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ledger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledgerName}}
	if _, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), ledger, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// While nobody runs, the ledger is deleted. The next one can't know what a
// former one, dead or only stalled, has under way: it waits.
func TestLedgerDeletedWhileStopped(t *testing.T) {
	t.Parallel()
	c := startForIPAM(t)
	first := startIPAM(t, c, room, slow)
	beginBatch(t, c)
	first.Kill()
	expectInTheMiddle(t, c)
	before := len(podCIDRWrites(t, c))
	deleteLedger(t, c)
	deleted := time.Now()

	startIPAM(t, c, room, "")
	awaitPodCIDRs(t, c, batch, 3*time.Minute)
	expectWaited(t, c, podCIDRWrites(t, c)[before].Name, deleted)
	expectNothingLeaked(t, c, room)
}

// expectWaited checks that the Nodes of a prefix were not written before the
// lease of StartManager could have ended that was held when the ledger went.
func expectWaited(t *testing.T, c *cluster.Cluster, prefix string, deleted time.Time) {
	t.Helper()
	writes := slices.DeleteFunc(podCIDRWrites(t, c), func(e controlplane.AuditEvent) bool { return !strings.HasPrefix(e.Name, prefix) })
	if len(writes) == 0 {
		t.Fatalf("no podCIDR was written to Nodes %s*", prefix)
	}
	waited := writes[0].Time.Sub(deleted)
	t.Logf("Node %s was written %.1f s after the ledger was deleted", writes[0].Name, waited.Seconds())
	if waited < cluster.Lease {
		t.Errorf("that is within the lease of %s", cluster.Lease)
	}
}

func deleteLedger(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Delete(context.WithoutCancel(t.Context()), ledgerName, metav1.DeleteOptions{})
	if err != nil {
		t.Fatalf("deleting the stored ledger: %v", err)
	}
}

// podCIDRWrites are the writes of Nodes by node IPAM that were carried out, in order.
func podCIDRWrites(t *testing.T, c *cluster.Cluster) []controlplane.AuditEvent {
	t.Helper()
	return slices.DeleteFunc(audited(t, c, "node-ipam-controller"), func(e controlplane.AuditEvent) bool {
		return e.Resource != "nodes" || e.Subresource != "" || e.Code != 200
	})
}
