// Package ipam measures how fast Nodes get their podCIDRs: from Underlay's node IPAM, from
// kube-controller-manager's, and as the limit of an API server on this machine, from a loop of 30
// workers that decides nothing and only PATCHes. All in one run against one API server, dual-stack,
// taking turns. Times come from the API server's audit log, so that no contender's own clock or
// cache counts.
//
// Counts are asserted; times are printed and fail nothing. Run it with `make bench-ipam`.
package ipam_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

const (
	nodeCount = 5000
	// peerDefaultCount is for kube-controller-manager with its own defaults, 20
	// requests a second: 5,000 would take four minutes.
	peerDefaultCount = 1000
	// rounds is how often all of them take their turn: the table has their medians.
	rounds = 5
	// replacedCount Nodes are replaced, one each replaceEvery, while nothing else changes.
	replacedCount = 100
	replaceEvery  = time.Second
	// limit is the time limit of the whole run.
	limit = 30 * time.Minute

	podRanges = "--cluster-cidr=100.64.0.0/10,fd00:64::/48"
	unlimited = 10_000 // requests a second, which this machine doesn't reach

	// joiningBytes and replacedBytes limit the bytes of the ledger written for each Node that joins
	// with many others, and for each that is replaced.
	joiningBytes, replacedBytes = 2_000, 70_000
)

func BenchmarkNodeIPAM(b *testing.B) {
	for b.Loop() {
		ctx, cancel := context.WithTimeoutCause(b.Context(), limit, fmt.Errorf("the benchmark takes longer than %s", limit))
		runAll(ctx, b)
		cancel()
	}
}

func runAll(ctx context.Context, b *testing.B) {
	b.Helper()
	explain(ctx, b)
	f := startField(ctx, b)
	var rows []row
	add := func(r row) {
		rows = append(rows, r)
		r.record(b)
		fmt.Println(r)
	}
	all := []contender{f.ours(unlimited), f.peer(unlimited), f.raw()}
	for round := range rounds {
		for i := range all {
			c := all[(round+i)%len(all)]
			add(f.joining(ctx, b, c, nodeCount))
			if round == 0 && c.restarts {
				add(f.restart(ctx, b, c))
			}
			if round == 0 && c.ledger {
				add(f.replacing(ctx, b, c))
			}
			f.clear(ctx, b)
		}
	}
	for round := range rounds {
		for i := range all {
			add(f.backlog(ctx, b, all[(round+i)%len(all)], nodeCount))
			f.clear(ctx, b)
		}
	}
	for _, c := range []struct {
		contender
		nodes int
	}{{f.ours(0), nodeCount}, {f.peer(0), peerDefaultCount}} {
		add(f.joining(ctx, b, c.contender, c.nodes))
		f.clear(ctx, b)
	}
	fmt.Printf("\nnode IPAM, dual-stack, one API server, medians:\n%s", render(medians(rows)))
}

// field is the cluster in which all of them run, one at a time.
type field struct {
	*cluster.Cluster
	admin   *kubernetes.Clientset
	metrics *http.Client // authenticates with the administrator's certificate
	runs    int
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
	if _, err := admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, ledger,
		metav1.CreateOptions{}); err != nil {
		b.Fatal(err)
	}
	insecure := rest.CopyConfig(config)
	// An allocator's certificate is self-signed.
	insecure.Insecure, insecure.CAData, insecure.CAFile = true, nil, ""
	metrics, err := rest.HTTPClientFor(insecure)
	if err != nil {
		b.Fatal(err)
	}
	return &field{Cluster: c, admin: admin, metrics: metrics}
}

// joining: the allocator runs and is idle when Nodes begin to be created, as fast as the API server
// accepts them.
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
	if c.ledger && r.usage.ledgerBytes > joiningBytes*float64(nodes) {
		b.Errorf("%s, %s: %.0f bytes of the ledger were written for %d Nodes, want at most %d each", r.who, r.phase, r.usage.ledgerBytes, nodes, joiningBytes)
	}
	return r
}

// replacing: in an idle cluster a Node is deleted and another created, repeatedly.
func (f *field) replacing(ctx context.Context, b *testing.B, c contender) row {
	b.Helper()
	list, err := f.admin.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: replacedCount})
	if err != nil {
		b.Fatal(err)
	}
	run := f.begin(ctx, b, c)
	defer run.stop()
	f.createNodes(ctx, b, run.prefix("warm"), 1, run.created)
	f.await(ctx, b, run.prefix("warm"), 1)
	before := run.usage(b)
	tick := time.NewTicker(replaceEvery)
	defer tick.Stop()
	for i := range list.Items {
		if err := f.admin.CoreV1().Nodes().Delete(ctx, list.Items[i].Name,
			metav1.DeleteOptions{}); err != nil {
			b.Fatal(err)
		}
		if err := f.create(ctx, fmt.Sprintf("%s%04d", run.prefix("replace"), i), run.created); err != nil {
			b.Fatal(err)
		}
		<-tick.C
	}
	f.await(ctx, b, run.prefix("replace"), len(list.Items))
	r := row{who: c.name, limits: c.limits, phase: fmt.Sprintf("replacing, one each %s", replaceEvery), usage: run.usage(b).since(before)}
	r.measured = f.measure(b, c, run.prefix("replace"), len(list.Items))
	f.check(b, c, r)
	if most := replacedBytes * len(list.Items); r.usage.ledgerBytes > float64(most) {
		b.Errorf("%s: %.0f bytes of the ledger were written for %d replaced Nodes, want at most %d", r.who, r.usage.ledgerBytes, len(list.Items), most)
	}
	return r
}

// backlog: the Nodes exist when the allocator starts.
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
	r.measured.seconds = r.measured.writing // without the creation, which was before
	r.measured.median, r.measured.late = 0, 0
	f.check(b, c, r)
	return r
}

// restart: all Nodes but one have podCIDRs when the allocator starts, and the time is that from the
// start of the process to the podCIDR of that one.
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

// check asserts the results that don't depend on the machine.
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
