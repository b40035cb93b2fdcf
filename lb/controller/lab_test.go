package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/leadership"
	"github.com/underlay-ccm/underlay/lb"
)

const (
	hetznerPrefix = lb.HetznerPrefix
	// dedicatedAddress is the public address of a dedicated server that the project may use.
	dedicatedAddress = "198.51.100.7"
)

// lab is a controller without running workers, a cluster without handlers, and a project with a
// network and servers. Every request to the project passes a wire that can be cut.
type lab struct {
	*Controller
	t        *testing.T
	api      *fake.Clientset
	services cache.Indexer
	members  cache.Indexer // the cluster's Nodes
	sim      *hcloudsim.Simulator
	cloud    lb.Backend
	wire     *wire
	gate     leadership.Gate // before the wire
	nodes    []*corev1.Node
	ranges   []netip.Prefix
	lb.Defaults
}

// inLab runs a test in a bubble, so that actions take virtual time only.
func inLab(t *testing.T, test func(l *lab)) {
	t.Helper()
	inLabWith(t, hcloudsim.Options{}, test)
}

// inLabWith is inLab with further options of the cloud.
func inLabWith(t *testing.T, options hcloudsim.Options, test func(l *lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newLab(t, options)) })
}

func newLab(t *testing.T, options hcloudsim.Options) *lab {
	t.Helper()
	options.Token, options.RateLimit = "lab", hcloudsim.Unlimited
	options.ActionTime, options.Latency = 300*time.Millisecond, 20*time.Millisecond
	if options.Owned == nil {
		options.Owned = netip.MustParsePrefix("198.51.100.0/24").Contains
	}
	sim := hcloudsim.New(options)
	l := &lab{t: t, sim: sim, wire: &wire{next: sim.Transport()}}
	client, err := hetzner.New(hetzner.Options{
		Endpoint: "http://cloud.invalid/v1", Version: "test", Registry: metrics.NewKubeRegistry(), Transport: l.gate.Wrap(l.wire),
		Token: func() (string, error) { return "lab", nil },
	})
	l.must(err)
	seeded, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "lab", IPRange: netip.MustParsePrefix("10.0.0.0/8"), Subnets: []hcloudsim.SubnetSeed{
			{IPRange: netip.MustParsePrefix("10.0.0.0/24")}, {IPRange: netip.MustParsePrefix("10.1.0.0/24"), Type: "vswitch", VSwitch: 4321},
		},
	})
	l.must(err)
	for i := range 5 {
		l.nodes = append(l.nodes, l.server(hcloudsim.ServerSeed{Name: fmt.Sprint("node-", i), Network: seeded.ID}))
	}
	network, err := client.Network(t.Context(), "lab")
	l.must(err)
	l.Defaults = lb.Defaults{Cluster: "lab", Network: network.Last().ID, Location: "nbg1", Classless: true}
	l.cloud, l.ranges = client.LoadBalancers(), network.Last().DedicatedRanges
	l.api = fake.NewSimpleClientset() // the newer fake takes long to create
	l.api.PrependReactor("*", "services", l.reacts)
	l.restart()
	t.Cleanup(func() { l.queue.ShutDown() })
	sim.ResetRequests()
	return l
}

// reacts applies an action, and updates the cache.
func (l *lab) reacts(action clienttesting.Action) (bool, runtime.Object, error) {
	handled, object, err := clienttesting.ObjectReaction(l.api.Tracker())(action)
	if svc, ok := object.(*corev1.Service); ok && err == nil {
		err = l.services.Update(svc)
	}
	return handled, object, err
}

// restart starts another process.
func (l *lab) restart() {
	l.t.Helper()
	factory := informers.NewSharedInformerFactory(l.api, 0)
	services := factory.Core().V1().Services().Informer().GetIndexer()
	nodes := factory.Core().V1().Nodes().Informer().GetIndexer()
	c, err := New(Config{
		Client: l.api.CoreV1(), Services: factory.Core().V1().Services(),
		Nodes:  factory.Core().V1().Nodes(),
		Slices: factory.Discovery().V1().EndpointSlices(), Backend: l.cloud,
		Defaults: l.Defaults, DedicatedRanges: func() []netip.Prefix { return l.ranges },
		Recorder: &record.FakeRecorder{}, Registry: metrics.NewKubeRegistry(),
	})
	l.must(err)
	if l.Controller != nil {
		l.queue.ShutDown()
		l.must(errors.Join(services.Replace(l.services.List(), ""), nodes.Replace(l.members.List(), "")))
	}
	l.Controller, l.services, l.members = c, services, nodes
}

// server returns a Node on a new server.
func (l *lab) server(seed hcloudsim.ServerSeed) *corev1.Node {
	l.t.Helper()
	server, err := l.sim.CreateServer(seed)
	l.must(err)
	return readyNode(server.Name, fmt.Sprint("hcloud://", server.ID))
}

func readyNode(name, providerID string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// quiet keeps the log of changes out of the tests' output.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// service returns a Service with two ports and private targets.
func (l *lab) service(name string, annotations ...string) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("0a1b2c3d-0000-4000-8000-" + name),
			Annotations: map[string]string{hetznerPrefix + "use-private-ip": "true"},
		},
		Spec: corev1.ServiceSpec{
			Type:                  corev1.ServiceTypeLoadBalancer,
			ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports: []corev1.ServicePort{
				{Name: "a", Port: 80, Protocol: "TCP", NodePort: 30080},
				{Name: "b", Port: 443, Protocol: "TCP", NodePort: 30443},
			},
		},
	}
	for pair := range slices.Chunk(annotations, 2) {
		svc.Annotations[hetznerPrefix+pair[0]] = pair[1]
	}
	return svc
}

// put stores the Service in the cluster, with the fields that the controller wrote, and these
// Nodes.
func (l *lab) put(svc *corev1.Service, nodes ...*corev1.Node) {
	l.t.Helper()
	svc = svc.DeepCopy()
	all := l.api.CoreV1().Services(svc.Namespace)
	if known := l.live(svc); known == nil {
		_, err := all.Create(l.t.Context(), svc, metav1.CreateOptions{})
		l.must(err)
	} else {
		svc.Finalizers, svc.Status.Conditions = known.Finalizers, known.Status.Conditions
		if len(svc.Status.LoadBalancer.Ingress) == 0 {
			svc.Status = known.Status
		}
		_, err := all.Update(l.t.Context(), svc, metav1.UpdateOptions{})
		l.must(err)
	}
	var objects []any
	for _, n := range nodes {
		objects = append(objects, n)
	}
	l.must(l.members.Replace(objects, ""))
}

// live returns the Service in the cluster; nil: it doesn't exist.
func (l *lab) live(svc *corev1.Service) *corev1.Service {
	object, err := l.api.Tracker().Get(corev1.SchemeGroupVersion.WithResource("services"), svc.Namespace, svc.Name)
	if err != nil {
		return nil
	}
	return object.(*corev1.Service)
}

// once reconciles the Service once, as the controller does after an event.
func (l *lab) once(svc *corev1.Service, nodes ...*corev1.Node) ([]lb.Note, error) {
	l.t.Helper()
	l.put(svc, nodes...)
	return l.again(l.t.Context(), l.keyOf(svc))
}

func (l *lab) again(ctx context.Context, owner lb.Owner) ([]lb.Note, error) {
	for l.queue.Len() > 0 { // no other owner is to be reconciled
		queued, _ := l.queue.Get()
		l.queue.Done(queued)
	}
	l.states.expire(owner)
	return l.sync(quiet(ctx), owner)
}

// looks reports whether the controller plans another sync by itself, and waits until then.
func (l *lab) looks(owner lb.Owner) bool {
	left := time.Until(l.states.due[owner])
	time.Sleep(max(left, 0))
	return left > 0
}

func isError(n lb.Note) bool { return n.Grade == lb.Error }

// converged reconciles a Service until it converges, without errors, and returns its load balancer.
func (l *lab) converged(svc *corev1.Service, nodes ...*corev1.Node) schema.LoadBalancer {
	l.t.Helper()
	owner := l.keyOf(svc)
	for range 60 {
		if notes, err := l.once(svc, nodes...); err != nil || slices.ContainsFunc(notes, isError) {
			l.t.Fatalf("reconciling: %v, notes %v\n%s", err, notes, l.log())
		}
		if !l.looks(owner) {
			return l.balancer(svc)
		}
	}
	l.t.Fatalf("no end\n%s", l.log())
	return schema.LoadBalancer{}
}

// balancer returns the Service's load balancer.
func (l *lab) balancer(svc *corev1.Service) schema.LoadBalancer {
	l.t.Helper()
	found, err := l.cloud.Carrying(l.t.Context(), l.owner(svc))
	if err != nil || len(found) != 1 {
		l.t.Fatalf("%d load balancers, %v\n%s", len(found), err, l.log())
	}
	b, _ := l.sim.LoadBalancer(found[0].ID)
	return b
}

// settled fails the test unless no change is left.
func (l *lab) settled(svc *corev1.Service, nodes ...*corev1.Node) {
	l.t.Helper()
	l.requests()
	notes, err := l.once(svc, nodes...)
	log := l.log()
	if _, writes := l.requests(); writes > 0 || err != nil || slices.ContainsFunc(notes, isError) ||
		l.looks(l.keyOf(svc)) {
		l.t.Fatalf("still to do: %d writes, %v, notes %v\n%s", writes, err, notes, log)
	}
}

// persist reconciles Services repeatedly, as the controller's queue would, until no change is left
// and all deleted ones are removed. The process ends with its context.
func (l *lab) persist(ctx context.Context, services ...*corev1.Service) error {
	owners := make(map[lb.Owner]bool)
	for _, svc := range services {
		owners[l.keyOf(svc)] = true
		if group := svc.Annotations[lb.AnnotationShared]; group != "" {
			owners[lb.GroupOwner(l.Cluster, svc.Namespace+"."+group)] = true
		}
	}
	var errs, notes string
	for round := range 40 {
		errs, notes = "", ""
		waits := false
		for owner := range owners {
			message, err := l.again(ctx, owner)
			if err != nil {
				errs += err.Error()
			}
			notes += lb.Join(slices.DeleteFunc(message, func(n lb.Note) bool { return !isError(n) }))
			waits = waits || time.Until(l.states.due[owner]) > 0
		}
		for _, svc := range services {
			waits = waits || !svc.DeletionTimestamp.IsZero() && holds(l.live(svc))
		}
		switch {
		case ctx.Err() != nil:
			l.restart()
			ctx = l.t.Context()
		case errs == "" && notes != "":
			time.Sleep(2 * time.Hour) // until rejected requests are retried
		case errs == "" && !waits:
			return nil
		}
		time.Sleep(min(20*time.Second<<min(round, 5), maxRetryDelay))
	}
	return fmt.Errorf("no end: %s, notes: %s", errs, notes)
}

// endpointsOn gives a Service endpoints on these nodes only.
func (l *lab) endpointsOn(svc *corev1.Service, nodes ...*corev1.Node) {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: svc.Namespace, Name: svc.Name,
		Labels: map[string]string{discoveryv1.LabelServiceName: svc.Name},
	}}
	for _, n := range nodes {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{NodeName: &n.Name})
	}
	known := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	})
	l.must(known.Add(slice))
	l.endpoints = discoverylisters.NewEndpointSliceLister(known)
}

func (l *lab) certificates() map[int64]lb.Certificate {
	l.t.Helper()
	all, err := l.cloud.Certificates(l.t.Context())
	l.must(err)
	byID := map[int64]lb.Certificate{}
	for _, c := range all {
		byID[c.ID] = c
	}
	return byID
}

func (l *lab) log() string {
	var b strings.Builder
	for _, r := range l.sim.Requests() {
		fmt.Fprintf(&b, "%s %s %s %d %s\n", r.Method, r.Path, r.Query, r.Status, r.Code)
	}
	return b.String()
}

// requests returns the reads, without polls of actions, and writes since the last call.
func (l *lab) requests() (reads, writes int) {
	for _, r := range l.sim.Requests() {
		switch {
		case r.Method != http.MethodGet:
			writes++
		case !strings.Contains(r.Path, "/actions"):
			reads++
		}
	}
	l.sim.ResetRequests()
	return reads, writes
}

// shape returns a load balancer's state without the values that the cloud assigns: IDs, addresses,
// times.
func (l *lab) shape(b schema.LoadBalancer) string {
	known := l.certificates()
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for _, s := range b.Services {
		var domains []string
		http := schema.LoadBalancerServiceHTTP{}
		if s.HTTP != nil {
			http = *s.HTTP
			for _, id := range http.Certificates {
				domains = append(domains, strings.Join(known[id].Domains, "+"))
			}
			http.Certificates = nil
		}
		check := *s.HealthCheck
		answers := schema.LoadBalancerServiceHealthCheckHTTP{}
		if check.HTTP != nil {
			answers, check.HTTP = *check.HTTP, nil
		}
		add(" service %05d %s %d %t %+v %v %+v %+v", s.ListenPort, s.Protocol, s.DestinationPort, s.Proxyprotocol, http, domains, check, answers)
	}
	for _, t := range b.Targets {
		if t.IP != nil {
			add(" target %s", t.IP.IP)
			continue
		}
		add(" target %d %t", t.Server.ID, t.UsePrivateIP)
	}
	for name, value := range b.Labels {
		add(" label %s=%s", name, value)
	}
	for _, c := range known {
		add(" certificate for %v, %d users", c.Domains, len(c.Users))
	}
	sort.Strings(lines)
	names := []string{b.PublicNet.IPv4.DNSPtr, b.PublicNet.IPv6.DNSPtr}
	if strings.HasPrefix(names[0], "static.") {
		names[0] = "the cloud's"
	}
	return fmt.Sprintf("%s %s %s %t %d %q\n%s", b.Name, b.LoadBalancerType.Name, b.Algorithm.Type, b.PublicNet.Enabled, len(b.PrivateNet), names, strings.Join(lines, "\n"))
}

// wire is the connection to the cloud, on which one request can fail.
type wire struct {
	next http.RoundTripper

	mu    sync.Mutex
	count int
	// at is the number of the failing request, counted from 1; 0: none.
	at   int
	harm harm
}

// harm is the failure of a request.
type harm struct {
	name   string
	before func()
	drop   bool // the reply is lost
	cut    bool // it never arrives
	after  func()
}

// spoil makes the nth request from now on fail.
func (w *wire) spoil(n int, h harm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count, w.at, w.harm = 0, n, h
}

// sent returns the number of requests since spoil.
func (w *wire) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

var errCut = errors.New("connection reset by peer")

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	w.count++
	hit, h := w.count == w.at, w.harm
	w.mu.Unlock()
	if !hit {
		return w.next.RoundTrip(r)
	}
	if h.cut {
		return nil, errCut
	}
	if h.before != nil {
		h.before()
	}
	answer, err := w.next.RoundTrip(r)
	if h.after != nil {
		h.after()
	}
	if h.drop && err == nil {
		_ = answer.Body.Close()
		return nil, errCut
	}
	return answer, err
}

// post sends a request that the controller would not send.
func (l *lab) post(path, body string) {
	l.t.Helper()
	request, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, "http://cloud.invalid/v1"+path, strings.NewReader(body))
	l.must(err)
	request.Header.Set("Authorization", "Bearer lab")
	answer, err := l.sim.Transport().RoundTrip(request)
	if err != nil || answer.StatusCode != http.StatusCreated {
		l.t.Fatalf("%s: %v %v", path, answer, err)
	}
	l.must(answer.Body.Close())
	time.Sleep(time.Second) // until the action is over
}
