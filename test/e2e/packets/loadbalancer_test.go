//go:build linux

package packets

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const (
	webPort  = 9090 // port of the pods behind load balancers
	frontage = 80   // port of load balancers
	// retries is how many consecutive checks change a target's health.
	retries = 2
	// askedWithin limits a connection. Only a lost one takes that long.
	askedWithin = 10 * time.Second
)

// Load balancers with real health checks in front of real kube-proxies: connections from outside
// must succeed, whatever happens to nodes and pods.
func TestLoadBalancers(t *testing.T) {
	f := start(t, netlab.Options{Machines: []string{"one", "two", "three"}})
	t.Run("targets by private and by public address", func(t *testing.T) { privateAndPublic(t, f) })
	t.Run("https with a managed certificate", func(t *testing.T) { overTLS(t, f) })
	t.Run("metrics are those that alerts ask for", func(t *testing.T) { scrapes(t, f) })
	t.Run("policy Local follows a pod by health checks alone", func(t *testing.T) { podMoves(t, f) })
	t.Run("policy Cluster loses nothing to a drained node", func(t *testing.T) { nodeDrained(t, f) })
}

// privateAndPublic reaches one pod through two load balancers, in both families, though its own
// public address is closed. With policy Local the node doesn't change the source, so the pod
// observes which address the load balancer used.
func privateAndPublic(t *testing.T, f *netlab.Lab) {
	one := f.Machine("one")
	pod := runPods(t, f, map[string]string{"app": "twice"}, [2]string{"twice", "one"})[0]
	serveWeb(t, pod, false)
	local := corev1.ServiceExternalTrafficPolicyLocal
	byPrivate := publish(t, f, "by-private", "twice", local, nil)
	byPublic := publish(t, f, "by-public", "twice", local, map[string]string{"load-balancer.hetzner.cloud/use-private-ip": "false"})
	for s, source := range map[*published]netip.Addr{
		byPrivate: byPrivate.private, byPublic: byPublic.ipv4,
	} {
		s.awaitHealth(t, "one healthy, three unhealthy, two unhealthy")
		for _, address := range []netip.Addr{s.ipv4, s.ipv6} {
			got, err := ask(t.Context(), f.Outside(), address, frontage)
			if want := (visit{pod: "twice", peer: source}); err != nil || got != want {
				t.Errorf("%s: asking %s gives %v (%v), want %v", s.name, address, got, err, want)
			}
		}
	}

	answerEverywhere(t, f, one)
	reaches(t, outside(f), ownPort(one.Public.IPv6), "one", netlab.OutsideIPv6, "tcp") // there is a route
	refused(t, outside(f), echo(pod.IPv6), "tcp")
	if got, err := ask(t.Context(), f.Outside(), pod.IPv6, webPort); err == nil {
		t.Errorf("the outside reaches the pod at its own address: %v", got)
	}

	if err := f.Client.CoreV1().Services("default").Delete(t.Context(), byPublic.name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, "a deleted Service is not reached", func() string {
		if got, err := ask(t.Context(), f.Outside(), byPublic.ipv4, frontage); err == nil {
			return got.String()
		}
		return ""
	})
}

// podMoves opens connections while a pod's successor starts on another node and the pod itself
// terminates. Nodes without a local pod refuse connections, so each that gets a reply was sent to
// the right one.
func podMoves(t *testing.T, f *netlab.Lab) {
	labels := map[string]string{"app": "mover"}
	first := runPods(t, f, labels, [2]string{"first", "one"})[0]
	serveWeb(t, first, true)
	s := publish(t, f, "mover", "mover", corev1.ServiceExternalTrafficPolicyLocal, map[string]string{
		"load-balancer.hetzner.cloud/uses-proxyprotocol": "true",
	})
	s.awaitHealth(t, "one healthy, three unhealthy, two unhealthy")
	s.expectClients(t, "first")
	f.Cloud.ResetRequests()

	flow := startFlow(f, s.ipv4, s.ipv6)
	defer flow.stop()
	second := runPods(t, f, labels, [2]string{"second", "two"})[0]
	serveWeb(t, second, true)
	s.awaitHealth(t, "one healthy, three unhealthy, two healthy")
	// The first step of a deletion: the pod still serves, but should get no new connections.
	err := f.Client.CoreV1().Pods("default").Delete(t.Context(), first.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](120)})
	if err != nil {
		t.Fatal(err)
	}
	s.awaitUnhealthy(t, "one")
	s.awaitHealth(t, "one unhealthy, three unhealthy, two healthy")
	if err := first.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	flow.expectMore(t, 20)
	s.expectClients(t, "second")
	flow.stop()
	flow.expectNoFailure(t, "first", "second")
	for _, r := range f.Cloud.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("the move took the request %s %s, want health checks alone", r.Method, r.Path)
		}
	}
}

// nodeDrained removes a node as the cluster autoscaler does: tainted first, deleted later. Health
// checks alone must stop new connections to it, because the manager may not run. A restarted
// manager keeps the target: connections to it may still be drained. It is removed with the server.
func nodeDrained(t *testing.T, f *netlab.Lab) {
	one := f.Machine("one")
	for _, p := range runPods(t, f, map[string]string{"app": "spread"}, [2]string{"spread-two", "two"}, [2]string{"spread-three", "three"}) {
		serveWeb(t, p, false)
	}
	s := publish(t, f, "spread", "spread", corev1.ServiceExternalTrafficPolicyCluster, nil)
	s.awaitHealth(t, "one healthy, three healthy, two healthy")
	f.Manager.Kill()
	flow := startFlow(f, s.ipv4, s.ipv6)
	defer flow.stop()
	flow.expectMore(t, 20)

	taint(t, f, "one", "ToBeDeletedByClusterAutoscaler")
	s.awaitUnhealthy(t, "one")
	s.awaitHealth(t, "one unhealthy, three healthy, two healthy")
	// Packets to it are lost from now on.
	if out, err := one.Namespace.Run(t.Context(), "ip", "link", "set", "private", "down"); err != nil {
		t.Fatal(err, out)
	}
	flow.expectMore(t, 50)
	if err := f.StartManager(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	flow.expectMore(t, 50)
	s.awaitHealth(t, "one unhealthy, three healthy, two healthy")
	if err := one.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.awaitHealth(t, "three healthy, two healthy")
	flow.expectMore(t, 20)
	flow.stop()
	flow.expectNoFailure(t, "spread-two", "spread-three")
}

func taint(t *testing.T, f *netlab.Lab, node, key string) {
	t.Helper()
	patch := fmt.Sprintf(`{"spec":{"taints":[{"key":%q,"value":"1","effect":"NoSchedule"}]}}`, key)
	_, err := f.Client.CoreV1().Nodes().Patch(t.Context(), node, types.StrategicMergePatchType,
		[]byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// visit is a connection from the pod's point of view.
type visit struct {
	pod    string
	peer   netip.Addr // source of the packets
	client netip.Addr // client of the PROXY header; zero without
}

func (v visit) String() string {
	return fmt.Sprintf("%s, from %s, announced as %s", v.pod, v.peer, v.client)
}

// unannounced stands for the client in a reply to a connection without a PROXY header.
const unannounced = "-"

// serveWeb makes a pod reply to each connection with a line about it.
func serveWeb(t *testing.T, p *netlab.Pod, announced bool) {
	t.Helper()
	l, err := p.Namespace.Listen(context.WithoutCancel(t.Context()), "tcp", fmt.Sprintf(":%d", webPort))
	if err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	ended.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ended.Go(func() {
				defer c.Close()
				answerVisit(c, p.Name, announced)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		ended.Wait()
	})
}

func answerVisit(c net.Conn, name string, announced bool) {
	_ = c.SetDeadline(time.Now().Add(askedWithin)) // the client has the same limit
	client := unannounced
	if announced {
		h, err := balancer.ReadHeader(bufio.NewReader(c))
		if err != nil {
			return // the client gets no reply, and the test fails on that
		}
		client = h.Source.Addr().String()
	}
	peer := c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	_, _ = fmt.Fprintf(c, "%s %s %s\n", name, peer, client)
}

// ask opens a connection and returns the pod's description of it.
func ask(ctx context.Context, from *netns.Namespace, to netip.Addr, port uint16) (visit, error) {
	ctx, cancel := context.WithTimeout(ctx, askedWithin)
	defer cancel()
	c, err := from.Dial(ctx, "tcp", netip.AddrPortFrom(to, port).String())
	if err != nil {
		return visit{}, err
	}
	defer c.Close()
	deadline, _ := ctx.Deadline()
	if err := c.SetDeadline(deadline); err != nil {
		return visit{}, err
	}
	line, err := io.ReadAll(c)
	if err != nil {
		return visit{}, fmt.Errorf("asking %s: %w", to, err)
	}
	var out visit
	var peer, client string
	if _, err := fmt.Sscan(string(line), &out.pod, &peer, &client); err != nil {
		return visit{}, fmt.Errorf("asking %s: an answer %q: %w", to, line, err)
	}
	if out.peer, err = netip.ParseAddr(peer); err == nil && client != unannounced {
		out.client, err = netip.ParseAddr(client)
	}
	return out, err
}

// published is a Service with its load balancer.
type published struct {
	name                string
	f                   *netlab.Lab
	balancer            int64
	ipv4, ipv6, private netip.Addr
}

// publish creates a Service for the pods of an app, and waits for its load
// balancer.
func publish(
	t *testing.T, f *netlab.Lab, name, app string, policy corev1.ServiceExternalTrafficPolicy,
	annotations map[string]string,
) *published {
	t.Helper()
	return publishAs(t, f, name, annotations, corev1.ServiceSpec{ExternalTrafficPolicy: policy, Selector: map[string]string{"app": app}})
}

// publishAs is publish, of any Service with one port.
func publishAs(
	t *testing.T, f *netlab.Lab, name string, annotations map[string]string, spec corev1.ServiceSpec,
) *published {
	t.Helper()
	spec.Type = corev1.ServiceTypeLoadBalancer
	spec.Ports = []corev1.ServicePort{{Port: frontage, TargetPort: intstr.FromInt32(webPort)}}
	all := map[string]string{
		"load-balancer.hetzner.cloud/health-check-interval": "3s",
		"load-balancer.hetzner.cloud/health-check-timeout":  "15s", // only if it is lost
		"load-balancer.hetzner.cloud/health-check-retries":  fmt.Sprint(retries),
	}
	maps.Copy(all, annotations)
	services := f.Client.CoreV1().Services("default")
	_, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: all}, Spec: spec,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := &published{name: name, f: f}
	await(t, "Service "+name+" has a load balancer", func() string {
		now, err := services.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || len(now.Status.LoadBalancer.Ingress) == 0 {
			return fmt.Sprintf("no address (%v)", err)
		}
		for _, lb := range f.Cloud.DataPlane().LoadBalancers {
			if lb.IPv4.String() == now.Status.LoadBalancer.Ingress[0].IP {
				s.balancer, s.ipv4, s.ipv6, s.private = lb.ID, lb.IPv4, lb.IPv6, lb.PrivateIP
				return ""
			}
		}
		return "the cloud has no load balancer with its address"
	})
	return s
}

// health returns the health of the load balancer's targets from the cloud's API, sorted by name.
func (s *published) health() string {
	var out []string
	lb, _ := s.f.Cloud.LoadBalancer(s.balancer)
	for _, target := range lb.Targets {
		name := "nobody"
		if target.IP != nil {
			addr, err := netip.ParseAddr(target.IP.IP)
			if m := s.f.MachineAt(addr); err == nil && m != nil {
				name = m.Name
			}
		} else {
			server, _ := s.f.Cloud.Server(target.Server.ID)
			name = server.Name
		}
		for _, h := range target.HealthStatus {
			out = append(out, name+" "+h.Status)
		}
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (s *published) awaitHealth(t *testing.T, want string) {
	t.Helper()
	await(t, fmt.Sprintf("the targets of %s are %s", s.name, want), func() string {
		if got := s.health(); got != want {
			return got
		}
		return ""
	})
}

// awaitUnhealthy waits until a node gets no new connections, after at most as many failed checks as
// the Service allows.
func (s *published) awaitUnhealthy(t *testing.T, node string) {
	t.Helper()
	about := netlab.Checked{
		LoadBalancer: s.balancer, ListenPort: frontage,
		Target: hcloudsim.TargetID{Server: s.f.Machine(node).Server},
	}
	await(t, node+" is unhealthy to "+s.name, func() string {
		failed := 0
		for _, found := range slices.Backward(s.f.Checks(about)) {
			if found != hcloudsim.HealthUnhealthy {
				break
			}
			failed++
		}
		health := s.health()
		if strings.Contains(health, node+" unhealthy") {
			return ""
		}
		if failed > retries { // the last one may not be counted yet
			t.Fatalf("%s after %d failed checks, want %s unhealthy after %d", health, failed, node, retries)
		}
		return health
	})
}

// expectClients connects from outside in both families, and from a machine by the load balancer's
// private address. Each time the pod must get the client's address.
func (s *published) expectClients(t *testing.T, pod string) {
	t.Helper()
	three := s.f.Machine("three")
	for _, test := range []struct {
		from    *netns.Namespace
		to, who netip.Addr
	}{
		{s.f.Outside(), s.ipv4, netlab.OutsideIPv4},
		{s.f.Outside(), s.ipv6, netlab.OutsideIPv6},
		{three.Namespace, s.private, three.Private},
	} {
		for range 5 {
			got, err := ask(t.Context(), test.from, test.to, frontage)
			if want := (visit{pod, s.private, test.who}); err != nil || got != want {
				t.Errorf("asking %s gives %v (%v), want %v", test.to, got, err, want)
				break
			}
		}
	}
}

// flow opens one connection after the other from outside.
type flow struct {
	stop func() // waits for the last

	mu       sync.Mutex
	asked    int
	pods     map[string]int
	failures []error
}

// startFlow connects to the addresses in turn until it is stopped.
func startFlow(f *netlab.Lab, addresses ...netip.Addr) *flow {
	ctx, cancel := context.WithCancel(context.Background())
	out := &flow{pods: map[string]int{}}
	var ended sync.WaitGroup
	ended.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			// A connection in progress is completed.
			got, err := ask(context.WithoutCancel(ctx), f.Outside(), addresses[i%len(addresses)], frontage)
			out.note(got, err)
			<-tick.C
		}
	})
	out.stop = func() {
		cancel()
		ended.Wait()
	}
	return out
}

func (f *flow) note(got visit, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	f.pods[got.pod]++
	if err != nil {
		f.failures = append(f.failures, fmt.Errorf("connection %d: %w", f.asked, err))
	}
}

// expectMore waits until n more connections have ended.
func (f *flow) expectMore(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.asked
	}
	before := count()
	await(t, fmt.Sprintf("%d more connections", n), func() string {
		if more := count() - before; more < n {
			return fmt.Sprint(more)
		}
		return ""
	})
}

// expectNoFailure expects that every connection got a reply, and each of these pods replied to
// some.
func (f *flow) expectNoFailure(t *testing.T, pods ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	t.Logf("%d connections, by pod %v", f.asked, f.pods)
	if len(f.failures) > 0 {
		t.Errorf("%d of %d connections failed: %v", len(f.failures), f.asked, errors.Join(f.failures[:min(3, len(f.failures))]...))
	}
	for _, pod := range pods {
		if f.pods[pod] == 0 {
			t.Errorf("%s has answered none", pod)
		}
	}
}
