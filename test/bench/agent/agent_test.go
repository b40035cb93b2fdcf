//go:build linux

// Package agent_test measures the node agent's routes on a real kernel, in a network namespace of
// its own: how long it takes to fill a table, in comparison with `ip -batch` and a loop that opens
// a socket for each route, in the same run; how soon a change of one node and the repair of one
// deleted route are in the kernel; the memory of the program; and the throughput of a tunnel beside
// that of a plain route. Counts are asserted, times are
// printed.
package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/directory/directorytest"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/routes/kernel"
	"github.com/underlay-ccm/underlay/routes/kernel/kerneltest"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

func TestMain(m *testing.M) {
	if setting := os.Getenv(generatedNodes); setting != "" {
		if err := serveNodes(setting); err != nil {
			fmt.Fprintln(os.Stderr, "serving Nodes:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := netlab.Enter(); err != nil && !errors.Is(err, netlab.ErrNotRoot) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	kerneltest.Main(m)
}

const (
	nodeCount = 15000
	// rounds is how often each fills the table.
	rounds = 5
	// own is the machine's Node, whose prefixes it doesn't route.
	own = "node-0000"
	// limit is how long waits may take before they fail.
	limit = time.Minute
)

// nodeAddress is the address of the i-th node, and podPrefix its podCIDR, of the given family.
func nodeAddress(i int, ipv4 bool) netip.Addr {
	if ipv4 {
		return netip.AddrFrom4([4]byte{10, 0, byte((i + 1) >> 8), byte(i + 1)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 14: byte((i + 1) >> 8), 15: byte(i + 1)})
}

func podPrefix(i int, ipv4 bool) netip.Prefix {
	if ipv4 {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(64 + i>>8), byte(i), 0}), 24)
	}
	return netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 6: byte(i >> 8), 7: byte(i)}), 64)
}

func node(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%04d", i), UID: types.UID(fmt.Sprint("uid-", i))}}
	for _, ipv4 := range []bool{true, false} {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, podPrefix(i, ipv4).String())
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: nodeAddress(i, ipv4).String(),
		})
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	return n
}

// cable is the segment of all nodes.
func cable(b *testing.B) *kerneltest.Segment {
	return kerneltest.NewSegment(b, "uplink",
		netip.PrefixFrom(nodeAddress(0, true), 16).String(),
		netip.PrefixFrom(nodeAddress(0, false), 64).String())
}

// observer receives the kernel's events by a socket of its own.
type observer struct {
	mu    sync.Mutex
	set   map[agent.Entry]time.Time
	count int
	want  int
	full  chan struct{}
}

func observe(b *testing.B, k *kernel.Kernel) *observer {
	o := &observer{set: map[agent.Entry]time.Time{}, full: make(chan struct{})}
	started := make(chan struct{})
	ctx, cancel := context.WithCancel(b.Context())
	var done sync.WaitGroup
	done.Go(func() {
		_ = k.Watch(ctx, func(e agent.Event) {
			switch {
			case e.Kind == agent.EventsLost:
				close(started) // twice: after an overflow the figures are invalid
			case e.Kind == agent.RouteSet && e.Route.Ours():
				o.note(e.Route)
			}
		})
	})
	b.Cleanup(func() { cancel(); done.Wait() })
	<-started
	return o
}

func (o *observer) note(e agent.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set[e] = time.Now()
	o.count++
	if o.count == o.want {
		close(o.full)
	}
}

// expect prepares a wait for n routes.
func (o *observer) expect(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.set, o.count, o.want, o.full = map[agent.Entry]time.Time{}, 0, n, make(chan struct{})
}

func (o *observer) await(b *testing.B, what string) {
	b.Helper()
	o.mu.Lock()
	full := o.full
	o.mu.Unlock()
	select {
	case <-full:
	case <-time.After(limit):
		b.Fatalf("%s: %d of %d routes", what, o.count, o.want)
	}
}

// at is the time when a route was set last.
func (o *observer) at(e agent.Entry) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.set[e]
}

// running is an agent with a fake API server, whose Nodes are in its cache.
type running struct {
	client *fake.Clientset
	agent  *agent.Agent
}

// prepare creates an agent with filled caches that has not started. Its period is so long that only
// events trigger a reconcile.
func prepare(b *testing.B, k agent.Kernel, count int) *running {
	b.Helper()
	var objects []runtime.Object
	for i := range count {
		objects = append(objects, node(i))
	}
	client := fake.NewClientset(objects...)
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTransform(kube.Light(corev1.NodeReady)))
	a, err := agent.New(agent.Config{
		Client: client, Kernel: k,
		Nodes:    directorytest.Nodes{Self: own, Informer: factory.Core().V1().Nodes().Informer()},
		Recorder: &record.FakeRecorder{},
		Registry: metrics.NewKubeRegistry(), Period: time.Hour,
		Settings: agent.Settings{
			Self: own, Modes: routes.Modes{IPv4: routes.ByNodes, IPv6: routes.ByNodes},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(func() { cancel(); factory.Shutdown() })
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	return &running{client: client, agent: a}
}

// run starts the agent, and returns a function that stops it.
func (r *running) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = r.agent.Run(ctx) })
	return func() { cancel(); done.Wait() }
}

// clear removes the routes of a measurement, after its agent has ended.
func clear(b *testing.B, k *kernel.Kernel) {
	b.Helper()
	if _, err := agent.Cleanup(context.Background(), k); err != nil {
		b.Fatal(err)
	}
}

func open(b *testing.B) *kernel.Kernel {
	b.Helper()
	k, err := kernel.Open()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(k.Close)
	return k
}

// percentile returns the time that so many in a hundred don't exceed.
func percentile(times []time.Duration, of int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[min(len(sorted)-1, len(sorted)*of/100)]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func report(b *testing.B, what string, times []time.Duration) {
	best, p50, p99, worst := slices.Min(times), percentile(times, 50), percentile(times,
		99), slices.Max(times)
	b.ReportMetric(milliseconds(p50), "p50-ms")
	b.ReportMetric(milliseconds(p99), "p99-ms")
	b.ReportMetric(0, "ns/op")
	fmt.Printf("\n  %-52s best %8.3f   p50 %8.3f   p99 %8.3f   worst %8.3f ms (%d)\n", what, milliseconds(best), milliseconds(p50), milliseconds(p99), milliseconds(worst), len(times))
}
