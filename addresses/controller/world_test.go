package controller

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/addresses"
	"github.com/underlay-ccm/underlay/internal/kube"
)

func TestMain(m *testing.M) {
	// Informers log every fault.
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// eventLog is an event recorder that stores the Events.
type eventLog struct {
	mu     sync.Mutex
	events []string
}

func (e *eventLog) Event(obj runtime.Object, kind, reason, message string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	name := addresses.LedgerName
	if svc, ok := obj.(*corev1.Service); ok {
		name = svc.Name
	}
	e.events = append(e.events, strings.Join([]string{name, kind, reason, message}, " "))
}

func (e *eventLog) Eventf(obj runtime.Object, kind, reason, format string, args ...any) {
	e.Event(obj, kind, reason, fmt.Sprintf(format, args...))
}

func (e *eventLog) AnnotatedEventf(
	runtime.Object, map[string]string, string, string, string, ...any,
) {
	panic("not used")
}

// of returns the Events that begin with a text.
func (e *eventLog) of(prefix string) (found []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range e.events {
		if strings.HasPrefix(event, prefix) {
			found = append(found, event)
		}
	}
	return found
}

// world is a cluster. node adds Nodes, service adds Services.
type world struct {
	t   *testing.T
	api *fakeAPI
	process
	faults func(call) fault // of the next process, from its start on
}

// process is one run of the controller, as after a restart.
type process struct {
	line     *line
	events   *eventLog
	registry metrics.KubeRegistry
	kill     func() // and wait until it has ended
}

// inWorld runs a test in a bubble with virtual time. The controller does not run yet.
func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, api: newFakeAPI()}
		w.api.put("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "web"}}})
		defer func() {
			if w.kill != nil {
				w.kill()
			}
			if t.Failed() || len(w.api.breaches) > 0 {
				t.Errorf("breaches %q\n%s", w.api.breaches, strings.Join(w.api.log, "\n"))
			}
		}()
		test(w)
	})
}

func poolNamed(name string, ranges ...string) Pool {
	p := Pool{Mover: addresses.Layer2}
	p.Name = name
	for _, text := range ranges {
		r, err := addresses.ParseRange(text)
		if err != nil {
			panic(err)
		}
		p.Ranges = append(p.Ranges, r)
	}
	return p
}

func usual() []Pool {
	return []Pool{poolNamed("segment", "192.0.2.1-192.0.2.4", "2001:db8::1-2001:db8::4")}
}

// start runs another controller, to which kill and line then refer.
func (w *world) start(configure ...func(*Config)) {
	w.t.Helper()
	p := process{
		line: &line{api: w.api, faults: w.faults}, events: &eventLog{},
		registry: metrics.NewKubeRegistry(),
	}
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://fake", Transport: p.line, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	core := factory.Core().V1()
	cfg := Config{
		Client: client, Services: core.Services(), Nodes: core.Nodes(),
		Slices:     factory.Discovery().V1().EndpointSlices(),
		Namespaces: core.Namespaces(), Pools: usual(), Classless: true, Namespace: "kube-system", Recorder: p.events, Registry: p.registry,
	}
	for _, f := range configure {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	factory.Start(ctx.Done())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	p.kill = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		factory.Shutdown()
	})
	w.process = p
	w.settle()
}

// settle waits for the immediate effects of previous changes.
func (w *world) settle() { w.after(200 * time.Millisecond) }

func (w *world) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// node adds a ready Node with a running agent.
func (w *world) node(name string, change ...func(*corev1.Node)) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, Annotations: map[string]string{addresses.ReportAnnotation: "{}"}},
		Spec:       corev1.NodeSpec{ProviderID: "underlay://" + name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, f := range change {
		f(n)
	}
	w.api.put("nodes", n)
}

func (w *world) editNode(name string, edit func(*corev1.Node)) {
	editObject(w.api, "nodes", name, edit)
}

// report sets the report of a node's agent.
func (w *world) report(name string, r addresses.Report) {
	w.t.Helper()
	text, err := r.MarshalText()
	if err != nil {
		w.t.Fatal(err)
	}
	w.editNode(name, func(n *corev1.Node) { n.Annotations[addresses.ReportAnnotation] = string(text) })
}

// service creates a Service of one family.
func (w *world) service(name string, change ...func(*corev1.Service)) {
	class := kube.AddressClass
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, LoadBalancerClass: &class,
			IPFamilies:            []corev1.IPFamily{corev1.IPv4Protocol},
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports:                 []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	for _, f := range change {
		f(svc)
	}
	w.api.put("services", svc)
}

func (w *world) editService(name string, edit func(*corev1.Service)) {
	editObject(w.api, "services", name, func(svc *corev1.Service) {
		if svc.Annotations == nil {
			svc.Annotations = map[string]string{}
		}
		edit(svc)
	})
}

func annotated(key, value string) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Annotations[key] = value }
}

func dualStack(svc *corev1.Service) {
	svc.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
}

func requiresBoth(svc *corev1.Service) {
	dualStack(svc)
	policy := corev1.IPFamilyPolicyRequireDualStack
	svc.Spec.IPFamilyPolicy = &policy
}

func localOnly(svc *corev1.Service) {
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	svc.Spec.HealthCheckNodePort = 30999
}

func onPort(port int32) func(*corev1.Service) {
	return func(svc *corev1.Service) { svc.Spec.Ports[0].Port = port }
}

// endpoints sets the nodes on which a Service has ready IPv4 endpoints; a dash before a node makes
// its endpoint terminating.
func (w *world) endpoints(service string, nodes ...string) {
	w.api.put("endpointslices", sliceOf(service, nodes...))
}

func sliceOf(service string, nodes ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: service + "-v4", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	yes, no := true, false
	for _, name := range nodes {
		node, ending := strings.CutPrefix(name, "-")
		e := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}}
		if ending {
			e.Conditions.Ready, e.Conditions.Terminating = &no, &yes
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice
}

// has compares the addresses in a Service's status.
func (w *world) has(name, want string) {
	w.t.Helper()
	if got := joined(shown(w.api.service(name))); got != want {
		w.t.Errorf("Service %s shows %q, want %q", name, got, want)
	}
}

// expectCondition compares a Service's condition: its status and reason, and a part of its message.
func (w *world) expectCondition(name, want, part string) {
	w.t.Helper()
	c := meta.FindStatusCondition(w.api.service(name).Status.Conditions, ConditionAccepted)
	if c == nil {
		c = &metav1.Condition{}
	}
	if got := strings.TrimSpace(string(c.Status) + " " + c.Reason); got != want || !strings.Contains(c.Message, part) {
		w.t.Errorf("Service %s: %s, %q; want %s, %q", name, got, c.Message, want, part)
	}
}

// holder returns the node that holds the address of a Service with one address.
func (w *world) holder(name string) string {
	w.t.Helper()
	uid := string(w.api.service(name).UID)
	for _, e := range w.api.ledger().Entries() {
		if slices.ContainsFunc(e.Shares, func(s addresses.Share) bool { return s.UID == uid }) {
			return strings.Join(append(slices.Clone(e.Nodes), e.Holder), " ")
		}
	}
	return ""
}

// metric returns a metric's value; labels are pairs.
func (w *world) metric(name string, labels ...string) float64 {
	w.t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			match := f.GetName() == "underlay_addresses_"+name
			for i := 0; i+1 < len(labels); i += 2 {
				has := false
				for _, l := range m.GetLabel() {
					has = has || l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				}
				match = match && has
			}
			if match {
				return m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func mustSelect(text string) labels.Selector {
	s, err := labels.Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}
