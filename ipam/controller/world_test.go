package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	// Informers log every fault.
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

func pfx(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// dualStack has room for at least this many Nodes, rounded up to a power of two.
func dualStack(nodes int) []Pool {
	bits := 0
	for 1<<bits < nodes {
		bits++
	}
	return []Pool{
		pool("v4", netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), 24-bits).String(), 24),
		pool("v6", netip.PrefixFrom(netip.MustParseAddr("fd00::"), 64-bits).String(), 64),
	}
}

func pool(name, prefix string, mask int) Pool {
	return Pool{PoolConfig: ipam.PoolConfig{Name: name, Prefix: pfx(prefix), NodeMask: mask}}
}

func draining(p Pool) Pool {
	p.State = ipam.Draining
	return p
}

// eventLog is an event recorder that stores the Events.
type eventLog struct {
	mu     sync.Mutex
	events []string
}

func (e *eventLog) Event(obj runtime.Object, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.events = append(e.events, strings.Join([]string{obj.(*corev1.ObjectReference).Name, kind, reason, message}, " "))
}

func (e *eventLog) Eventf(obj runtime.Object, kind, reason, format string, args ...any) {
	e.Event(obj, kind, reason, fmt.Sprintf(format, args...))
}

func (e *eventLog) AnnotatedEventf(
	runtime.Object, map[string]string, string, string, string, ...any,
) {
	panic("not used")
}

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

func (e *eventLog) want(t *testing.T, n int, prefix string) {
	t.Helper()
	if got := e.of(prefix); len(got) != n {
		t.Errorf("%d events %q, want %d; all: %q", len(got), prefix, n, e.of(""))
	}
}

// process is one run of the controller with its own informers, as after a restart.
type process struct {
	*Controller
	connection *connection
	events     *eventLog
	registry   metrics.KubeRegistry
	begin      func()
	stop       func()
	ended      chan struct{} // closed when Run has returned err
	err        error
}

// setting changes the configuration of a process.
type setting func(*Config)

// fence is the time that a process waits if the ledger is missing and the process isn't the first.
const fence = 30 * time.Second

// start runs a controller against the API until stop. By default it is the first process ever, and
// a quarantine is over at once.
func start(t *testing.T, api http.RoundTripper, pools []Pool, settings ...setting) *process {
	t.Helper()
	p := prepare(t, api, pools, settings...)
	p.begin()
	return p
}

// prepare makes a controller that does not run yet.
func prepare(t *testing.T, api http.RoundTripper, pools []Pool, settings ...setting) *process {
	t.Helper()
	p := &process{
		connection: newConnection(api), events: &eventLog{}, registry: metrics.NewKubeRegistry(),
		ended: make(chan struct{}),
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://fake", Transport: p.connection, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	cfg := Config{
		Client: client, Nodes: factory.Core().V1().Nodes(),
		ServiceCIDRs: factory.Networking().V1().ServiceCIDRs(), Pools: pools,
		Quarantine: time.Millisecond, Fence: fence, Namespace: ledgerNamespace,
		First:    func(context.Context) (bool, error) { return true, nil },
		Recorder: p.events, Registry: p.registry,
	}
	for _, set := range settings {
		set(&cfg)
	}
	if p.Controller, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.connection.kill = cancel
	p.stop = sync.OnceFunc(func() {
		cancel()
		p.connection.die()
		<-p.ended
		var refused *RemovedPoolError
		if p.err != nil && !errors.As(p.err, &refused) {
			t.Errorf("Run: %v", p.err)
		}
		factory.Shutdown()
	})
	p.begin = func() {
		factory.StartWithContext(ctx)
		go func() {
			p.err = p.Run(ctx)
			close(p.ended)
		}()
	}
	return p
}

func excluding(prefixes ...string) setting {
	return func(c *Config) {
		for _, text := range prefixes {
			c.Exclusions = append(c.Exclusions, pfx(text))
		}
	}
}

func quarantine(d time.Duration) setting { return func(c *Config) { c.Quarantine = d } }

func withRouted(routed func(netip.Prefix) (bool, bool)) setting {
	return func(c *Config) {
		c.Routed = func(p netip.Prefix, _ time.Time) (bool, bool) { return routed(p) }
	}
}

// notFirst configures a process for which others may have run before.
func notFirst(c *Config) {
	c.First = func(context.Context) (bool, error) { return false, nil }
}

// bubble runs a test on virtual time.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// pass advances virtual time, and runs everything that becomes due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// first applies the faults to the first requests of a kind, in order.
func first(kind string, faults ...fault) func(call) fault {
	return func(c call) fault {
		if c.kind != kind || len(faults) == 0 {
			return fault{}
		}
		next := faults[0]
		faults = faults[1:]
		return next
	}
}

// always applies the fault to every request of a kind.
func always(kind string, what fault) func(call) fault {
	return func(c call) fault {
		if c.kind != kind {
			return fault{}
		}
		return what
	}
}

// oneOf applies the first fault that one of the sources has.
func oneOf(sources ...func(call) fault) func(call) fault {
	return func(c call) fault {
		for _, source := range sources {
			if f := source(c); f != (fault{}) {
				return f
			}
		}
		return fault{}
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, pfx(text))
	}
	return all
}

func wantPodCIDRs(t *testing.T, api *fakeAPI, name string, want ...string) {
	t.Helper()
	if got := api.podCIDRs(name); !slices.Equal(got, prefixes(want...)) {
		t.Errorf("Node %s has the podCIDRs %v, want %v\n%s", name, got, want, api)
	}
}

// wantSound fails if an invariant was violated.
func wantSound(t *testing.T, api *fakeAPI) {
	t.Helper()
	if broken := api.broken(); len(broken) > 0 {
		t.Errorf("%s\n%s", strings.Join(broken, "\n"), api)
	}
}

func (p *process) metric(t *testing.T, name string, labels ...string) (sum float64, found bool) {
	t.Helper()
	families, err := p.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			var values []string
			for _, label := range m.GetLabel() {
				values = append(values, label.GetValue())
			}
			if slices.ContainsFunc(labels, func(l string) bool { return !slices.Contains(values, l) }) {
				continue
			}
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
				float64(m.GetHistogram().GetSampleCount())
			found = true
		}
	}
	return sum, found
}

func (p *process) wantMetric(t *testing.T, name string, want float64, labels ...string) {
	t.Helper()
	if got, found := p.metric(t, name, labels...); !found || got != want {
		t.Errorf("metric %s%v is %v (there: %t), want %v", name, labels, got, found, want)
	}
}

const rangesMetric = "underlay_ipam_ranges"
