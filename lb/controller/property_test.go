package controller

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/lb"
)

func pick[T any](r *rand.Rand, values ...T) T { return values[r.IntN(len(values))] }

// randomService returns a Service with random settings of every kind.
func (l *lab) randomService(r *rand.Rand, name string) *corev1.Service {
	svc := l.service(name)
	flip := func() string { return strconv.FormatBool(r.IntN(2) == 0) }
	a := map[string]string{
		"use-private-ip": flip(), "uses-proxyprotocol": flip(), "type": fmt.Sprintf("lb%d1", 1+r.IntN(3)),
		"name":           fmt.Sprintf("%s-%d", name, r.IntN(2)),
		"algorithm-type": pick(r, "", "round_robin", "least_connections"),
		"protocol":       pick(r, "tcp", "http", "https"),
		"ipv4-rdns":      pick(r, "", "a.example.com", "b.example.com"), "ipv6-rdns": pick(r, "", "c.example.com"),
		"private-ipv4":         pick(r, "", "", "10.0.0.77"),
		"http-sticky-sessions": flip(), "http-cookie-name": pick(r, "", "COOKIE"), "http-cookie-lifetime": pick(r, "", "60", "1h"),
		"http-timeout-idle":     pick(r, "", "77s"),
		"certificate-type":      pick(r, "uploaded", "managed"),
		"http-certificates":     pick(r, "first", "second", "first,second"),
		"health-check-protocol": pick(r, "", "tcp", "http", "https"), "health-check-retries": strconv.Itoa(1 + r.IntN(5)),
		"health-check-http-domain": pick(r, "", "example.com"), "http-status-codes": pick(r, "", "200,30?"),
		"http-managed-certificate-domains": pick(r, "example.com", "example.com,www.example.com"),
	}
	if a["use-private-ip"] == "true" {
		a["disable-public-network"] = flip()
	}
	svc.Annotations = map[string]string{}
	for key, value := range a {
		svc.Annotations[hetznerPrefix+key] = value
	}
	if r.IntN(2) == 0 {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		svc.Spec.HealthCheckNodePort = 32000
	}
	svc.Spec.Ports = nil
	for port := range int32(5) {
		if r.IntN(2) == 0 {
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: 80 + port, Protocol: "TCP", NodePort: 30000 + r.Int32N(3)})
		}
	}
	if len(svc.Spec.Ports) < 2 {
		svc.Spec.Ports = []corev1.ServicePort{{Port: 81, Protocol: "TCP", NodePort: 30001}}
		svc.Annotations[hetznerPrefix+"http-redirect-http"] = flip()
	}
	return svc
}

func (l *lab) randomNodes(r *rand.Rand) (nodes []*corev1.Node) {
	all := append(slices.Clone(l.nodes), bare(5, "10.1.0.5", "198.51.100.5"), bare(6, "10.1.0.6", "198.51.100.6"))
	for _, n := range all {
		if r.IntN(3) > 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// upload adds certificates of another owner to the project.
func (l *lab) upload(names ...string) {
	l.t.Helper()
	for i, name := range names {
		op := lb.CreateCertificate{Owner: lb.Owner{Cluster: "somebody", UID: "else"}, Certificate: lb.ManagedCertificate{Name: name, Domains: []string{fmt.Sprintf("%d.example.org", i)}}}
		l.must(l.cloud.Apply(l.t.Context(), lb.State{}, op))
	}
	l.sim.ResetRequests()
}

// With any initial load balancer, the result is the wanted one, and the same as a newly created
// one. Other certificates and load balancers of the project don't change.
func TestFromAnyStateToAnyService(t *testing.T) {
	for seed := range uint64(60 / Slowdown) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			fresh := ""
			last := func(l *lab) (*corev1.Service, []*corev1.Node) {
				r := rand.New(rand.NewPCG(seed, 1))
				return l.randomService(r, "000000000001"), l.randomNodes(r)
			}
			inLab(t, func(l *lab) {
				l.upload("first", "second")
				svc, nodes := last(l)
				fresh = l.shape(l.converged(svc, nodes...))
			})
			inLab(t, func(l *lab) {
				l.upload("first", "second")
				r := rand.New(rand.NewPCG(seed, 0))
				for range 4 {
					svc, nodes := l.randomService(r, "000000000001"), l.randomNodes(r)
					l.converged(svc, nodes...)
					l.settled(svc, nodes...)
				}
				svc, nodes := last(l)
				if edited := l.shape(l.converged(svc, nodes...)); edited != fresh {
					t.Errorf("after edits:\n%s\nfresh:\n%s", edited, fresh)
				}
				if n := len(l.sim.LoadBalancers()); n != 1 {
					t.Errorf("%d load balancers", n)
				}
			})
		})
	}
}

// codes are all known error codes of the API.
var codes = []string{
	"json_error", "unauthorized", "forbidden", "maintenance", "resource_limit_exceeded", "not_found", "method_not_allowed",
	"conflict", "uniqueness_error", "deprecated_api_endpoint", "resource_unavailable", "invalid_input", "service_error",
	"unsupported_error", "locked", "protected", "rate_limit_exceeded", "server_error", "bad_gateway", "unavailable", "timeout",
	"source_port_already_used", "target_already_defined", "load_balancer_not_attached_to_network", "resource_in_use",
}

func (l *lab) harms(cancel func()) []harm {
	inject := func(f hcloudsim.Fault) func() { return func() { l.must(l.sim.Inject(f)) } }
	all := []harm{
		{name: "never arrives", cut: true},
		{name: "reply lost", drop: true},
		{name: "killed before the answer", after: cancel, drop: true},
		{name: "killed after the answer", after: cancel},
		{name: "action fails", before: inject(hcloudsim.Fault{FailAction: "action_failed"})},
		{name: "action is lost", before: inject(hcloudsim.Fault{LoseAction: true})},
	}
	for _, code := range codes {
		all = append(all,
			harm{name: code, before: inject(hcloudsim.Fault{Code: code})},
			harm{name: code + " although it was done", before: inject(hcloudsim.Fault{Code: code, Applied: true})})
	}
	return all
}

// everything returns a Service with many settings.
func (l *lab) everything() *corev1.Service {
	return l.service("000000000001",
		"protocol", "https", "certificate-type", "managed", "http-managed-certificate-domains", "example.com",
		"ipv4-rdns", "a.example.com", "private-ipv4", "10.0.0.9", "name", "web")
}

// changed returns the same Service with other values.
func (l *lab) changed() *corev1.Service {
	svc := l.service("000000000001",
		"protocol", "https", "certificate-type", "managed", "http-managed-certificate-domains", "example.com,www.example.com",
		"ipv4-rdns", "", "ipv6-rdns", "b.example.com", "private-ipv4", "10.0.0.10", "name", "shop", "type", "lb21",
		"algorithm-type", "least_connections", "disable-public-network", "false")
	svc.Spec.Ports[0].Port, svc.Spec.Ports[1].NodePort = 8080, 30444
	return svc
}

// everyFault makes the tests below try each code at each request, which takes minutes.
var everyFault = flag.Bool("every-fault", false, "try every error code at every request")

// tried reports whether to apply the ith harm to the nth request: broken connections, lost actions
// and a killed process to each of the first ones and some of the later ones, which are much alike;
// error codes to a few.
func tried(i, n int) bool {
	const connections, first, some, few = 6, 8, 20, 3
	switch {
	case *everyFault:
		return true
	case (i+n)%Slowdown != 0:
		return false
	case i < connections:
		return n <= first || (i+n)%few == 0
	}
	return (i+n)%some == 0
}

// After any failure of any request, retries lead to the same result as without it: there is never a
// second load balancer or certificate, and objects of other owners don't change. -every-fault tries
// every pair of failure and request; otherwise a part of them is tried.
func TestAnyFaultThenTheSameEnd(t *testing.T) {
	gone := func(svc *corev1.Service) *corev1.Service {
		svc.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		return svc
	}
	runs := 0
	for _, s := range []scenario{
		{name: "creation", balancers: 1, steps: func(l *lab) [][]*corev1.Service {
			return [][]*corev1.Service{{l.service("000000000001")}}
		}},
		{name: "creation of everything", balancers: 1, certificates: 1, steps: func(l *lab) [][]*corev1.Service {
			return [][]*corev1.Service{{l.everything()}}
		}},
		{name: "change of everything", balancers: 1, certificates: 1, unspoiled: 1, steps: func(l *lab) [][]*corev1.Service {
			return [][]*corev1.Service{{l.everything()}, {l.changed()}}
		}},
		{name: "the end", unspoiled: 1, steps: func(l *lab) [][]*corev1.Service {
			return [][]*corev1.Service{{l.everything()}, {gone(l.everything())}}
		}},
		{name: "a group", balancers: 1, steps: groupSteps, check: checkGroup},
	} {
		for n := 1; s.run(t, 0, n); n++ {
			for i := range len((&lab{}).harms(nil)) {
				if !tried(i, n) {
					continue
				}
				if runs++; !s.run(t, i, n) || t.Failed() {
					break
				}
			}
		}
	}
	if runs < 100/Slowdown {
		t.Errorf("only %d runs", runs)
	}
	t.Logf("%d runs with one fault each", runs)
}

// scenario is a sequence of steps during which a request fails.
type scenario struct {
	name                    string
	steps                   func(l *lab) [][]*corev1.Service // one after the other
	unspoiled               int                              // steps before the fault
	balancers, certificates int                              // in the end, beside others
	check                   func(l *lab) string              // the problem, or ""; may be nil
}

// run runs the scenario with a harm to the nth request, and reports whether there were that many.
func (s scenario) run(t *testing.T, which, n int) (hit bool) {
	t.Helper()
	inLab(t, func(l *lab) {
		t := l.t
		bystander := l.service("000000000002", "name", "bystander")
		others := l.converged(bystander, l.nodes...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h := l.harms(cancel)[which]
		var services []*corev1.Service
		for i, step := range s.steps(l) {
			if i == s.unspoiled {
				l.sim.ResetRequests()
				l.wire.spoil(n, h)
			}
			for services = step; len(step) > 0; step = step[1:] {
				l.put(step[0], l.nodes...)
			}
			if err := l.persist(ctx, services...); err != nil {
				t.Errorf("%s, request %d: %s: %v\n%s", s.name, n, h.name, err, l.log())
				return
			}
			if ctx.Err() != nil {
				ctx = t.Context()
			}
		}
		hit = l.wire.sent() >= n
		l.wire.spoil(0, harm{})
		l.sim.ClearFaults()
		time.Sleep(time.Second) // until the last action is over
		log := l.log()
		for _, svc := range services {
			if svc.DeletionTimestamp.IsZero() {
				l.settled(svc, l.nodes...)
			}
		}
		after, _ := l.sim.LoadBalancer(others.ID)
		if changed := cmp.Diff(others, after); changed != "" {
			t.Errorf("%s, request %d: %s: somebody else's load balancer changed:\n%s", s.name, n, h.name, changed)
		}
		if b, c := len(l.sim.LoadBalancers())-1, len(l.certificates()); b != s.balancers ||
			c != s.certificates {
			t.Errorf("%s, request %d: %s: %d load balancers and %d certificates\n%s", s.name, n, h.name, b, c, log)
		}
		if s.check != nil {
			if wrong := s.check(l); wrong != "" {
				t.Errorf("%s, request %d: %s: %s\n%s", s.name, n, h.name, wrong, log)
			}
		}
	})
	return hit
}
