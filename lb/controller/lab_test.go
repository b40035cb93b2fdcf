package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/leadership"
	"github.com/underlay-ccm/underlay/lb"
)

const hetznerPrefix = lb.HetznerPrefix

// dedicatedAddress is the public address of a dedicated server that the project may use.
const dedicatedAddress = "198.51.100.7"

// lab is a project with a network and servers in it, whose every request goes through a wire that
// can be cut.
type lab struct {
	converger
	t     *testing.T
	sim   *hcloudsim.Simulator
	wire  *wire
	gate  leadership.Gate // before the wire
	nodes []*corev1.Node
	lb.Defaults
}

// inLab runs a test in a bubble, so that actions take their time without costing any.
func inLab(t *testing.T, test func(l *lab)) {
	t.Helper()
	inLabWith(t, hcloudsim.Options{}, test)
}

// inLabWith is the same with options of the cloud beside those that every lab has.
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
		server, err := sim.CreateServer(hcloudsim.ServerSeed{Name: fmt.Sprint("node-", i), Network: seeded.ID})
		l.must(err)
		l.nodes = append(l.nodes, &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: server.Name},
			Spec:       corev1.NodeSpec{ProviderID: fmt.Sprint("hcloud://", server.ID)},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		})
	}
	network, err := client.Network(t.Context(), "lab")
	l.must(err)
	l.Defaults = lb.Defaults{Cluster: "lab", Network: network.ID, Location: "nbg1", DedicatedRanges: network.DedicatedRanges()}
	l.converger = converger{backend: client.LoadBalancers(), done: func(lb.Op, string) {}, refusals: newRefusals(), unhealthy: newSince[lb.Target]()}
	sim.ResetRequests()
	return l
}

// quiet keeps what every change logs out of the tests' output.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// service has two ports and is reached through the network.
func (l *lab) service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("0a1b2c3d-0000-4000-8000-" + name),
			Annotations: map[string]string{hetznerPrefix + "use-private-ip": "true"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyCluster,
			Ports: []corev1.ServicePort{{Port: 80, Protocol: "TCP", NodePort: 30080}, {Port: 443, Protocol: "TCP", NodePort: 30443}},
		},
	}
}

func (l *lab) plan(svc *corev1.Service, nodes ...*corev1.Node) Plan {
	p := newPlan(svc, nodes, nil, l.Defaults, time.Now())
	p.hadManaged, p.refusals = true, l.refusals
	return p
}

// converged carries a Service out, which must succeed, and returns its load balancer.
func (l *lab) converged(svc *corev1.Service, nodes ...*corev1.Node) schema.LoadBalancer {
	l.t.Helper()
	o := l.converge(quiet(l.t.Context()), l.plan(svc, nodes...), hooks{})
	if o.Transient != nil || slices.ContainsFunc(o.Notes, func(n lb.Note) bool { return n.Grade == lb.Error }) {
		l.t.Fatalf("converging: %v, notes %v\n%s", o.Transient, o.Notes, l.log())
	}
	balancer, ok := l.sim.LoadBalancer(o.State.ID)
	if !ok {
		l.t.Fatalf("no load balancer %d\n%s", o.State.ID, l.log())
	}
	return balancer
}

// settled fails the test unless nothing is left to do.
func (l *lab) settled(svc *corev1.Service, nodes ...*corev1.Node) {
	l.t.Helper()
	p := l.plan(svc, nodes...)
	have, err := l.backend.Observe(l.t.Context(), p.Spec.Owner)
	l.must(err)
	certificates, err := l.backend.Certificates(l.t.Context())
	l.must(err)
	if p = p.Against(have, certificates); len(p.Ops) > 0 || p.Refused {
		l.t.Fatalf("still to do: %v, notes %v\n%s", p.Ops, p.Notes, l.log())
	}
}

func (l *lab) certificates() map[int64]lb.Certificate {
	l.t.Helper()
	all, err := l.backend.Certificates(l.t.Context())
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

// requests counts reads, writes and looks at actions since the last call.
func (l *lab) requests() (reads, writes, polls int) {
	for _, r := range l.sim.Requests() {
		switch {
		case r.Method != http.MethodGet:
			writes++
		case strings.Contains(r.Path, "/actions"):
			polls++
		default:
			reads++
		}
	}
	l.sim.ResetRequests()
	return reads, writes, polls
}

// shape is all of a load balancer but what the cloud chooses: IDs, addresses, times.
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

// wire is the way to the cloud, on which one request can go wrong.
type wire struct {
	next http.RoundTripper

	mu    sync.Mutex
	count int
	// at is the number of the request that goes wrong, counted from 1; 0: none.
	at   int
	harm harm
}

// harm is what becomes of a request: fail may answer in the cloud's place, or nil; drop loses the
// reply.
type harm struct {
	name   string
	before func()
	drop   bool
	cut    bool // it never arrives
	after  func()
}

// spoil lets the nth request from now go wrong.
func (w *wire) spoil(n int, h harm) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count, w.at, w.harm = 0, n, h
}

// sent is how many requests there were since spoil.
func (w *wire) sent() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// redirected sends requests to another server.
type redirected struct {
	next http.RoundTripper
	to   *url.URL
}

func (d redirected) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme, r.URL.Host, r.Host = d.to.Scheme, d.to.Host, d.to.Host
	return d.next.RoundTrip(r)
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

// post does something to the cloud that we would not do.
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

// retryIssuance does what the note about a certificate that could not be obtained asks a person to
// do.
func (l *lab) retryIssuance() {
	l.t.Helper()
	for _, c := range l.certificates() {
		if c.Failed == "" {
			continue
		}
		l.post(fmt.Sprintf("/certificates/%d/actions/retry", c.ID), "")
	}
}

// persist carries a Service out again and again, as the controller's queue would, until nothing is
// left to do.
func (l *lab) persist(ctx context.Context, svc *corev1.Service, nodes ...*corev1.Node) error {
	var last error
	for range 12 {
		o := l.converge(quiet(ctx), l.plan(svc, nodes...), hooks{})
		last = o.Transient
		if last == nil && !slices.ContainsFunc(o.Notes, func(n lb.Note) bool { return n.Grade == lb.Error }) {
			return nil
		}
		if last == nil {
			last = fmt.Errorf("notes: %v", o.Notes)
			l.retryIssuance()
			time.Sleep(2 * time.Hour) // until what was refused is asked for again
		}
		if ctx.Err() != nil {
			ctx = l.t.Context() // the next process
		}
		time.Sleep(20 * time.Second)
	}
	return last
}
