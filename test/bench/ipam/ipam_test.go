// Package ipam measures how fast Nodes get their podCIDRs: Underlay's node IPAM,
// kube-controller-manager's, and as the bound of what an API server on this
// machine gives, a loop of 30 workers that decides nothing and only PATCHes. All
// in one run against one API server, dual-stack, one after the other. Times come
// from the API server's audit log, so that nobody's own clock or cache counts.
//
// Counts are asserted; times are printed and fail nothing. Run it with
// `make bench-ipam`.
package ipam_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const (
	nodeCount = 5000
	// peerDefaultCount is for kube-controller-manager with its own defaults, 20
	// requests a second: 5,000 would take four minutes.
	peerDefaultCount = 1000
	// backlogRounds shows how much figures of one run differ by themselves.
	backlogRounds = 2
	// limit bounds the whole run.
	limit = 20 * time.Minute

	podRanges = "--cluster-cidr=100.64.0.0/10,fd00:64::/48"
	unlimited = 10_000 // requests a second, which this machine doesn't reach
)

// A row is one line of the table.
type row struct {
	who, limits, phase string
	measured           measurement
	usage              usage
}

func BenchmarkNodeIPAM(b *testing.B) {
	for b.Loop() {
		ctx, cancel := context.WithTimeoutCause(b.Context(), limit, fmt.Errorf("the benchmark takes longer than %s", limit))
		runAll(ctx, b)
		cancel()
	}
}

func runAll(ctx context.Context, b *testing.B) {
	b.Helper()
	f := startField(ctx, b)
	var rows []row
	all := []contender{f.ours(unlimited), f.peer(unlimited), f.raw()}
	for _, c := range all {
		rows = append(rows, f.joining(ctx, b, c, nodeCount))
		if c.restarts {
			rows = append(rows, f.restart(ctx, b, c))
		}
		f.clear(ctx, b)
	}
	for range backlogRounds {
		for _, c := range all {
			rows = append(rows, f.backlog(ctx, b, c, nodeCount))
			f.clear(ctx, b)
		}
	}
	for _, c := range []struct {
		contender
		nodes int
	}{{f.ours(0), nodeCount}, {f.peer(0), peerDefaultCount}} {
		rows = append(rows, f.joining(ctx, b, c.contender, c.nodes))
		f.clear(ctx, b)
	}
	fmt.Printf("\nnode IPAM, dual-stack, one API server:\n%s", render(rows))
}

// field is the cluster in which all of them run, one at a time.
type field struct {
	*cluster.Cluster
	admin *kubernetes.Clientset
	runs  int
}

func startField(ctx context.Context, b *testing.B) *field {
	b.Helper()
	binary, err := cluster.BuildManager(ctx, b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	c, err := cluster.Start(ctx, cluster.Options{
		Manager:      binary,
		Cloud:        hcloudsim.Options{RateLimit: 1_000_000},
		ControlPlane: controlplane.Options{Progress: io.Discard, WithoutControllerManager: true},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Stop)
	config := c.ControlPlane.AdminConfig()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	admin, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	ledger := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: ledgerName}}
	if _, err := admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, ledger, metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	return &field{Cluster: c, admin: admin}
}

// joining: the allocator runs and has nothing to do when Nodes begin to be
// created, as fast as the API server takes them.
func (f *field) joining(ctx context.Context, b *testing.B, c contender, nodes int) row {
	b.Helper()
	run := f.begin(ctx, b, c)
	defer run.stop()
	f.createNodes(ctx, b, run.prefix("warm"), 1, run.created)
	f.await(ctx, b, run.prefix("warm"), 1)
	before := run.usage(b)
	f.createNodes(ctx, b, run.prefix("join"), nodes, run.created)
	f.await(ctx, b, run.prefix("join"), nodes)
	r := row{who: c.name, limits: c.limits, phase: "joining", usage: run.usage(b).since(before)}
	r.measured = f.measure(b, c, run.prefix("join"), nodes)
	f.check(b, c, r)
	return r
}

// backlog: the Nodes are there when the allocator starts.
func (f *field) backlog(ctx context.Context, b *testing.B, c contender, nodes int) row {
	b.Helper()
	prefix := fmt.Sprintf("backlog-%d-", f.runs)
	f.createNodes(ctx, b, prefix, nodes, nil)
	run := f.begin(ctx, b, c)
	defer run.stop()
	if run.created != nil {
		f.announce(ctx, b, prefix, run.created)
	}
	f.await(ctx, b, prefix, nodes)
	r := row{who: c.name, limits: c.limits, phase: "backlog", usage: run.usage(b)}
	r.measured = f.measure(b, c, prefix, nodes)
	r.measured.seconds = r.measured.writing // creation was before
	r.measured.median, r.measured.late = 0, 0
	f.check(b, c, r)
	return r
}

// restart: all Nodes but one have podCIDRs when the allocator starts, and the
// time is that from the start of the process to the podCIDR of the one.
func (f *field) restart(ctx context.Context, b *testing.B, c contender) row {
	b.Helper()
	name := fmt.Sprintf("restart-%d-", f.runs)
	f.createNodes(ctx, b, name, 1, nil)
	began := time.Now()
	run := f.begin(ctx, b, c)
	defer run.stop()
	f.await(ctx, b, name, 1)
	r := row{who: c.name, limits: c.limits, phase: fmt.Sprintf("restart with %d Nodes", nodeCount), usage: run.usage(b)}
	r.measured = f.measure(b, c, name, 1)
	r.measured.seconds = r.measured.last.Sub(began).Seconds()
	r.measured.median, r.measured.late = 0, 0
	f.check(b, c, r)
	return r
}

// check asserts what doesn't depend on the machine.
func (f *field) check(b *testing.B, c contender, r row) {
	b.Helper()
	if r.measured.patched != r.measured.nodes {
		b.Errorf("%s, %s: %d of %d Nodes were written", r.who, r.phase, r.measured.patched, r.measured.nodes)
	}
	if c.exact && r.measured.patches != r.measured.nodes {
		b.Errorf("%s, %s: %d PATCHes for %d Nodes, want one each", r.who, r.phase, r.measured.patches, r.measured.nodes)
	}
	if c.ledger && (r.measured.ledgerWrites == 0 || r.measured.ledgerWrites > r.measured.nodes) {
		b.Errorf("%s, %s: %d ledger writes for %d Nodes, want at least one and no more than Nodes", r.who, r.phase, r.measured.ledgerWrites, r.measured.nodes)
	}
}

func render(rows []row) string {
	var out strings.Builder
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "allocator\tclient limit\tphase\tNodes\tseconds\tNodes/s\tmedian ms\tp99 ms\tPATCHes/Node\tledger writes\tother writes\tCPU s\tRSS MB\t")
	for _, r := range rows {
		m := r.measured
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%.2f\t%s\t%s\t%s\t%.3f\t%s\t%d\t%s\t%s\t\n", r.who, r.limits, r.phase, m.nodes, m.seconds,
			number(float64(m.nodes)/m.seconds, m.nodes > 1), number(m.median*1000, m.median > 0), number(m.late*1000, m.late > 0),
			float64(m.patches)/float64(m.nodes), number(float64(m.ledgerWrites), m.ledgerWrites > 0), m.otherWrites,
			seconds(r.usage.cpu), number(r.usage.residentMB, r.usage.residentMB > 0))
	}
	_ = w.Flush() // into memory
	return out.String() + `joining: from the first Node's creation to the last one's podCIDR, allocator running; median and p99 from a Node's creation to its podCIDR.
backlog: from the first PATCH to the last, Nodes created before the allocator's start. restart: from the start of the process to the podCIDR.
`
}

func number(v float64, has bool) string {
	if !has {
		return "-"
	}
	return fmt.Sprintf("%.0f", v)
}

func seconds(v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", v)
}
