package controller

import (
	"context"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/ipam"
)

func TestMain(m *testing.M) {
	// Informers complain about every fault.
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// dualStack has room for as many Nodes as asked, rounded up to a power of two.
func dualStack(nodes int) []ipam.PoolConfig {
	bits := 0
	for 1<<bits < nodes {
		bits++
	}
	return []ipam.PoolConfig{
		{Prefix: netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 24-bits), NodeMask: 24},
		{Prefix: netip.PrefixFrom(netip.MustParseAddr("fd00::"), 64-bits), NodeMask: 64},
	}
}

// eventLog is an event recorder that remembers.
type eventLog struct {
	mu     sync.Mutex
	events []string
}

func (e *eventLog) Event(obj runtime.Object, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, strings.Join([]string{obj.(*corev1.ObjectReference).Name, kind, reason, message}, " "))
}

func (e *eventLog) Eventf(runtime.Object, string, string, string, ...any) { panic("not used") }

func (e *eventLog) AnnotatedEventf(runtime.Object, map[string]string, string, string, string, ...any) {
	panic("not used")
}

// of returns the events that begin with the given text.
func (e *eventLog) of(prefix string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []string
	for _, event := range e.events {
		if strings.HasPrefix(event, prefix) {
			found = append(found, event)
		}
	}
	return found
}

// process is one run of the controller with its own informer, as after a restart.
type process struct {
	*Controller
	events   *eventLog
	registry metrics.KubeRegistry
	stop     func()
}

// start runs a controller against the API until stop. alter may change it before it runs.
func start(t *testing.T, api *fakeAPI, pools []ipam.PoolConfig, alter func(*Controller), exclusions ...netip.Prefix) *process {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://fake", Transport: api, QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &process{events: &eventLog{}, registry: metrics.NewKubeRegistry()}
	p.Controller, err = New(Config{
		Client: client, Nodes: factory.Core().V1().Nodes(), Pools: pools, Exclusions: exclusions,
		Recorder: p.events, Registry: p.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	if alter != nil {
		alter(p.Controller)
	}
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		factory.Shutdown()
	})
	return p
}

// bubble runs a test on virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// pass lets virtual time go by, and everything that is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func wantPodCIDRs(t *testing.T, api *fakeAPI, name string, want ...string) {
	t.Helper()
	var prefixes []netip.Prefix
	for _, text := range want {
		prefixes = append(prefixes, pfx(text))
	}
	if got := api.podCIDRs(name); !slices.Equal(got, prefixes) {
		t.Errorf("Node %s has the podCIDRs %v, want %v\n%s", name, got, want, api)
	}
}

// wantMetric compares the sum over all label values, or those of one state.
func (p *process) wantMetric(t *testing.T, name, state string, want float64) {
	t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got, found := 0.0, false
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			matches := state == ""
			for _, label := range m.GetLabel() {
				matches = matches || label.GetValue() == state
			}
			if matches {
				got += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				found = true
			}
		}
	}
	if !found || got != want {
		t.Errorf("metric %s{%s} is %v (there: %t), want %v", name, state, got, found, want)
	}
}
