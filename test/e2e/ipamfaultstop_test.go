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

// The scenarios below let a manager allocate for 50 Nodes from pools for 64, slowly enough for a
// fault in the middle.
const (
	batch = 50
	room  = 64
	slow  = "ipamQPS: 10\n"
	some  = 8 // Nodes that have podCIDRs at the time of the fault
)

// beginBatch creates the Nodes and waits until the manager has allocated for some.
func beginBatch(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	createNodes(t, c, "node", batch)
	awaitPodCIDRs(t, c, some, time.Minute)
}

// expectInTheMiddle fails if the fault was too late.
func expectInTheMiddle(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	if n := withPodCIDRs(nodes(t.Context(), t, c)); n >= batch {
		t.Fatalf("%d Nodes have podCIDRs: it was not in the middle", n)
	}
	expectRecorded(t, c)
}

// A leader is stopped in the middle, replaced, and continues with requests that it was about to
// send. With leader election it exits after the requests that it had begun; without it, both run
// beside each other.
func TestStoppedLeaderWakesUp(t *testing.T) {
	t.Parallel()
	for name, election := range map[string]bool{"with leader election": true, "without leader election": false} {
		t.Run(name, func(t *testing.T) {
			var args []string
			if !election {
				args = append(args, "--leader-elect=false")
			}
			c := startForIPAM(t)
			createLedger(t, c) // otherwise it waits first: a ledger may be lost
			first := startIPAM(t, c, room, slow, args...)
			beginBatch(t, c)
			signal(t, first, syscall.SIGSTOP)
			expectInTheMiddle(t, c)

			second := startIPAM(t, c, room, slow, args...)
			awaitPodCIDRs(t, c, batch/2, time.Minute)
			// The other is in the middle too: ranges that the first was about to write belong to
			// other Nodes by now, and its own Nodes still have none.
			expectInTheMiddle(t, c) // before: delayed requests of the first are sent at once
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

// A leader that receives SIGTERM in the middle releases its lease; otherwise the next one would
// have to wait an hour here.
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

// Killed in the middle: the ranges recorded in the ledger, written to a Node or not, are those that
// the next leader assigns to the Nodes.
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

// The API server is killed in the middle and restarted with the same data: requests in flight end
// in every possible way.
func TestAPIServerRestartedWhileAllocating(t *testing.T) {
	t.Parallel()
	c := startForIPAM(t)
	// Longer than the API server is unreachable, so that the same process continues.
	m := startIPAM(t, c, room, slow,
		"--leader-elect-lease-duration=60s", "--leader-elect-renew-deadline=50s", "--leader-elect-retry-period=1s")
	beginBatch(t, c)
	expectInTheMiddle(t, c) // before: delayed requests are sent at once after it
	if err := c.ControlPlane.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitPodCIDRs(t, c, batch, 2*time.Minute)
	if m.Ended() {
		t.Fatal(m.Failure(m.Died()))
	}
	expectNothingLeaked(t, c, room)
}

// The ledger is deleted while a leader runs. The leader still writes the podCIDRs that it had
// recorded; new ones wait, if there was ever another leader before, until that one can have no
// request in flight.
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

// pretendATakeover leaves the state of a leader that took over from another and died long ago: the
// lease with a transition, and a ledger.
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
	if _, err := c.Client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), lease,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	createLedger(t, c)
}

// createLedger stores an empty ledger.
func createLedger(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ledger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledgerName}}
	if _, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), ledger,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The ledger is deleted while no manager runs. The next one can't determine which requests of a
// former one, dead or only stalled, are in flight, so it waits.
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

// expectWaited checks that the Nodes of a prefix were not written before the lease of StartManager
// that was held when the ledger was deleted could have expired.
func expectWaited(t *testing.T, c *cluster.Cluster, prefix string, deleted time.Time) {
	t.Helper()
	writes := slices.DeleteFunc(podCIDRWrites(t, c), func(e controlplane.AuditEvent) bool {
		return !strings.HasPrefix(e.Name, prefix)
	})
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
	ctx := context.WithoutCancel(t.Context())
	maps := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	list, err := maps.List(ctx, metav1.ListOptions{})
	for _, shard := range list.Items {
		if err == nil && strings.HasPrefix(shard.Name, ledgerName) {
			err = maps.Delete(ctx, shard.Name, metav1.DeleteOptions{})
		}
	}
	if err != nil {
		t.Fatalf("deleting the stored ledger: %v", err)
	}
}

// podCIDRWrites are the successful writes of Nodes by node IPAM, in order.
func podCIDRWrites(t *testing.T, c *cluster.Cluster) []controlplane.AuditEvent {
	t.Helper()
	return slices.DeleteFunc(audited(t, c, "node-ipam-controller"), func(e controlplane.AuditEvent) bool {
		return e.Resource != "nodes" || e.Subresource != "" || e.Code != 200
	})
}
