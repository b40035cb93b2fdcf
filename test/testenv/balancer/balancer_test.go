package balancer_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"runtime/pprof"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/ipnet"
)

// Services and targets are added and removed on all addresses of the load balancer.
func TestFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a, b := w.server("a"), w.server("b")
	w.serve(netip.AddrPortFrom(private(a), 30080), replying("a"))
	w.serve(netip.AddrPortFrom(private(b), 30080), replying("b"))
	w.serve(netip.AddrPortFrom(private(b), 30081), replying("b, other service"))
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080)},
	}, a)
	w.healthy(lb, "a:80")
	for _, at := range []netip.Addr{
		ipnet.Addr(lb.PublicNet.IPv4.IP), ipnet.Addr(lb.PublicNet.IPv6.IP),
		ipnet.Addr(lb.PrivateNet[0].IP),
	} {
		w.eventually("a answers at "+at.String(), func() bool { return w.query(at, 80) == "a" })
	}
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)

	_, _, err := w.cloud.LoadBalancer.AddServerTarget(t.Context(), lb,
		hcloud.LoadBalancerAddServerTargetOpts{Server: b, UsePrivateIP: hcloud.Ptr(true)})
	noError(t, err)
	w.healthy(lb, "b:80")
	if got := w.query(front, 80) + w.query(front, 80); got != "ab" && got != "ba" {
		t.Errorf("two connections to two targets reach %q", got)
	}
	_, _, err = w.cloud.LoadBalancer.RemoveServerTarget(t.Context(), lb, a)
	noError(t, err)
	if got := w.query(front, 80) + w.query(front, 80); got != "bb" {
		t.Errorf("with a removed, two connections reach %q", got)
	}

	_, _, err = w.cloud.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(81),
		DestinationPort: hcloud.Ptr(30081),
	}) // checked three times before it is healthy
	noError(t, err)
	w.eventually("the new service listens", func() bool { return slices.Contains(w.net.listening(), front.String()+":81") })
	noError(t, w.sim.SetTargetHealth(lb.ID, hcloudsim.TargetID{Server: b.ID}, 81,
		hcloudsim.HealthHealthy))
	if got := w.query(front, 81); got != "b, other service" {
		t.Errorf("the new service reaches %q", got)
	}
	_, _, err = w.cloud.LoadBalancer.DeleteService(t.Context(), lb, 80)
	noError(t, err)
	w.eventually("the deleted service is gone", func() bool { return w.query(front, 80) == "" })
	_, _, err = w.cloud.LoadBalancer.DisablePublicInterface(t.Context(), lb)
	noError(t, err)
	w.eventually("without public interface, only the private address is left", func() bool {
		return w.query(front, 81) == "" && w.query(ipnet.Addr(lb.PrivateNet[0].IP), 81) == "b, other service"
	})
}

// In round robin each target gets one connection per round, with least connections the target that
// has the fewest.
func TestAlgorithms(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	servers := []*hcloud.Server{w.server("a"), w.server("b"), w.server("c")}
	for _, s := range servers {
		w.serve(netip.AddrPortFrom(private(s), 30080), func(c net.Conn) {
			_, _ = io.WriteString(c, s.Name)
			_, _ = io.Copy(io.Discard, c) // until the client closes
		})
	}
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080)},
	}, servers...)
	w.healthy(lb, "a:80", "b:80", "c:80")
	w.listens(3 + 3)
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)
	reached := func(conns map[string][]net.Conn) {
		t.Helper()
		c := w.dial(front, 80)
		var name [1]byte
		_, err := io.ReadFull(c, name[:])
		noError(t, err)
		conns[string(name[:])] = append(conns[string(name[:])], c)
	}
	counts := func(conns map[string][]net.Conn) string {
		return fmt.Sprint(len(conns["a"]), len(conns["b"]), len(conns["c"]))
	}

	inTurn := map[string][]net.Conn{}
	for range 9 {
		reached(inTurn)
	}
	if got := counts(inTurn); got != "3 3 3" {
		t.Errorf("round robin gives %s connections", got)
	}

	_, _, err := w.cloud.LoadBalancer.ChangeAlgorithm(t.Context(), lb,
		hcloud.LoadBalancerChangeAlgorithmOpts{Type: hcloud.LoadBalancerAlgorithmTypeLeastConnections})
	noError(t, err)
	w.eventually("least connections go where connections have ended", func() bool {
		for _, c := range inTurn["b"] {
			c.Close()
		}
		fewest := map[string][]net.Conn{}
		for range 3 {
			reached(fewest)
		}
		for _, conns := range fewest {
			for _, c := range conns {
				defer c.Close()
			}
		}
		return counts(fewest) == "0 3 0"
	})
}

// A target whose check fails gets no new connection, and the API shows it as unhealthy. Other
// targets, and its existing connections, are not affected.
func TestUnhealthyGetsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a, b := w.server("a"), w.server("b")
	var sick, checks atomic.Int64
	for _, s := range []*hcloud.Server{a, b} {
		w.serve(netip.AddrPortFrom(private(s), 10256), httpServer(func(*http.Request) (int, string) {
			if s == a && sick.Load() == 1 {
				checks.Add(1)
				return http.StatusServiceUnavailable, ""
			}
			return http.StatusOK, ""
		}))
		w.serve(netip.AddrPortFrom(private(s), 30080), func(c net.Conn) {
			_, _ = io.WriteString(c, s.Name)
			_, _ = io.Copy(c, c)
		})
	}
	service := tcp(80, 30080)
	service.HealthCheck.Protocol = hcloud.LoadBalancerServiceProtocolHTTP
	service.HealthCheck.Port = hcloud.Ptr(10256)
	service.HealthCheck.Retries = hcloud.Ptr(2)
	service.HealthCheck.HTTP = &hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP{Path: hcloud.Ptr("/healthz")}
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{service},
	}, a, b)
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)
	w.listens(4 + 3)
	if got := w.firstByte(front, 80); got != "error" {
		t.Errorf("a connection reaches %s before its checks", got)
	}
	w.healthy(lb, "a:80", "b:80")

	conn := map[string]net.Conn{}
	for range 2 {
		c := w.dial(front, 80)
		conn[readByte(c)] = c
	}
	if got := slices.Sorted(maps.Keys(conn)); strings.Join(got, "") != "ab" {
		t.Fatalf("two connections reach %q", got)
	}
	sick.Store(1)
	w.eventually("a is unhealthy, b is not", func() bool {
		health := w.health(lb)
		return health["a:80"] == "unhealthy" && health["b:80"] == "healthy"
	})
	if n := checks.Load(); n < 1 || n > 2 {
		t.Errorf("a turned unhealthy after %d failed checks, want 2", n)
	}
	for range 6 {
		if got := w.firstByte(front, 80); got != "b" {
			t.Errorf("a connection reaches %s, want the healthy target b", got)
		}
	}
	_, err := io.WriteString(conn["a"], "x")
	noError(t, err)
	if got := readByte(conn["a"]); got != "x" {
		t.Errorf("the unhealthy target's connection gives %q, want it to go on", got)
	}
}

// If one side closes for writing, the other can still send; a reset is passed on as a reset, not as
// an end.
func TestHalfOpen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a := w.server("a")
	resetting := netip.AddrPortFrom(private(a), 30081)
	w.serve(netip.AddrPortFrom(private(a), 30080), func(c net.Conn) {
		all, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "%d bytes", len(all))
	})
	w.serve(resetting, func(c net.Conn) {
		_, _ = io.WriteString(c, "part")
		if _, err := io.ReadFull(c, make([]byte, 1)); err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
		}
	})
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080), tcp(81, 30081)},
	}, a)
	w.healthy(lb, "a:80", "a:81")
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)
	w.listens(2 + 6)

	c := w.dial(front, 80)
	const size = 1 << 20
	_, err := c.Write(make([]byte, size))
	noError(t, err)
	noError(t, c.CloseWrite())
	got, err := io.ReadAll(c)
	if want := fmt.Sprintf("%d bytes", size); err != nil || string(got) != want {
		t.Errorf("after the client is done, the server says %q (%v), want %q", got, err, want)
	}

	c = w.dial(front, 81)
	_, err = c.Write([]byte("x"))
	noError(t, err)
	wantReset(t, c, "a connection that the target reset")
}

// A removed target keeps its connections, a removed service doesn't.
func TestRemoval(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a := w.server("a")
	w.serve(netip.AddrPortFrom(private(a), 30080), func(c net.Conn) {
		_, _ = io.WriteString(c, "0")
		_, _ = io.Copy(c, c)
	})
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080)},
	}, a)
	w.healthy(lb, "a:80")
	w.listens(1 + 3)
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)
	c := w.dial(front, 80)
	echo := func(text string) string {
		_, _ = io.WriteString(c, text)
		return readByte(c)
	}
	if got := readByte(c) + echo("1"); got != "01" {
		t.Fatalf("the echo is %q", got)
	}
	reads := w.sim.reads.Load()
	_, _, err := w.cloud.LoadBalancer.RemoveServerTarget(t.Context(), lb, a)
	noError(t, err)
	w.eventually("the change is followed", func() bool { return w.sim.reads.Load() > reads })
	if got := w.firstByte(front, 80); got != "error" {
		t.Error("the removed target gets a new connection")
	}
	if got := echo("2"); got != "2" {
		t.Errorf("the removed target's connection gives %q", got)
	}
	_, _, err = w.cloud.LoadBalancer.DeleteService(t.Context(), lb, 80)
	noError(t, err)
	wantReset(t, c, "a connection of a removed service")
}

// The load balancer connects to targets with public addresses, also dedicated servers, from its
// public address, and to others from its private one.
func TestSources(t *testing.T) {
	t.Parallel()
	owned := netip.MustParseAddr("203.0.113.9")
	w := newWorld(t, 0, func(o *hcloudsim.Options) { o.OwnedIPs = []netip.Addr{owned} })
	a, b := w.server("a"), w.server("b")
	places := []netip.AddrPort{
		netip.AddrPortFrom(private(a), 30080), netip.MustParseAddrPort("10.1.0.9:30080"),
		netip.AddrPortFrom(ipnet.Addr(b.PublicNet.IPv4.IP), 30080), netip.AddrPortFrom(owned, 30080),
	}
	for _, at := range places {
		w.serve(at, replying("ok"))
	}
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080)},
	}, a)
	_, _, err := w.cloud.LoadBalancer.AddServerTarget(t.Context(), lb,
		hcloud.LoadBalancerAddServerTargetOpts{Server: b})
	noError(t, err)
	for _, at := range []netip.AddrPort{places[1], places[3]} { // of dedicated servers
		_, _, err := w.cloud.LoadBalancer.AddIPTarget(t.Context(), lb, hcloud.LoadBalancerAddIPTargetOpts{
			IP: at.Addr().AsSlice(),
		})
		noError(t, err)
	}
	w.healthy(lb, "a:80", "b:80", "10.1.0.9:80", "203.0.113.9:80")
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)
	w.listens(4 + 3)
	for range places {
		if got := w.query(front, 80); got != "ok" {
			t.Errorf("a connection hears %q", got)
		}
	}
	w.stop()
	inside := ipnet.Addr(lb.PrivateNet[0].IP)
	for i, want := range []netip.Addr{inside, inside, front, front} {
		if got := w.net.sources[places[i]]; len(got) < 2 ||
			slices.ContainsFunc(got, func(s netip.Addr) bool { return s != want }) {
			t.Errorf("%s is reached from %v, want a check and a connection, all from %s", places[i], got, want)
		}
	}
}

// A failed listen is retried, and doesn't affect other services.
func TestListeningIsTriedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a := w.server("a")
	w.serve(netip.AddrPortFrom(private(a), 30080), replying("a"))
	lb := w.balance(hcloud.LoadBalancerCreateOpts{})
	blocked := netip.AddrPortFrom(ipnet.Addr(lb.PublicNet.IPv6.IP), 80)
	w.net.mu.Lock()
	w.net.refuse[blocked] = true
	w.net.mu.Unlock()
	_, _, err := w.cloud.LoadBalancer.AddService(t.Context(), lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: hcloud.Ptr(80),
		DestinationPort: hcloud.Ptr(30080),
	})
	noError(t, err)
	w.listens(1 + 2)
	w.net.mu.Lock()
	w.net.refuse[blocked] = false
	w.net.mu.Unlock()
	w.listens(1 + 3)
}

// While nothing changes, the data plane isn't read and no listener is opened, regardless of
// connections and checks.
func TestIdle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 0)
	a := w.server("a")
	var calls atomic.Int64
	w.serve(netip.AddrPortFrom(private(a), 30080), func(c net.Conn) { calls.Add(1); replying("a")(c) })
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080)},
	}, a)
	w.healthy(lb, "a:80")
	w.listens(1 + 3)
	front := ipnet.Addr(lb.PublicNet.IPv4.IP)
	reads, opened, before := w.sim.reads.Load(), w.net.opened, calls.Load()
	for range 10 {
		if got := w.query(front, 80); got != "a" {
			t.Errorf("a connection reaches %q", got)
		}
	}
	w.eventually("it is checked twice", func() bool { return calls.Load() >= before+12 })
	if w.sim.reads.Load() != reads || w.net.opened != opened {
		t.Errorf("the data plane is read %d times, and %d listeners opened, though nothing changed", w.sim.reads.Load()-reads, w.net.opened-opened)
	}
}

// When Run has returned, it has left no listener, connection or goroutine behind, also with checks
// and connections in progress.
func TestEnds(t *testing.T) {
	w := newWorld(t, 0)
	a := w.server("a")
	accepted := make(chan struct{}, 100)
	w.serve(netip.AddrPortFrom(private(a), 30080), func(c net.Conn) {
		accepted <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	slow := tcp(81, 30080)
	slow.HealthCheck.Protocol = hcloud.LoadBalancerServiceProtocolHTTP
	slow.HealthCheck.Timeout = hcloud.Ptr(time.Minute)
	lb := w.balance(hcloud.LoadBalancerCreateOpts{
		Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 30080), slow},
	}, a)
	w.healthy(lb, "a:80")
	w.listens(1 + 6)
	c := w.dial(ipnet.Addr(lb.PublicNet.IPv4.IP), 80)
	for range 3 { // two checks, of which one gets no reply, and the connection
		receive(t, accepted)
	}
	w.net.lazy.Store(true)
	dialed := w.net.dialed(private(a))
	w.eventually("a check is stuck as well", func() bool { return w.net.dialed(private(a)) > dialed })
	if goroutines() == 0 {
		t.Fatal("the balancer's goroutines are not recognised")
	}
	w.stop()
	if n := goroutines(); n != 0 {
		t.Errorf("%d goroutines are left", n)
	}
	if left := w.net.listening(); len(left) != 1 {
		t.Errorf("listeners are left besides the target's: %v", left)
	}
	wantReset(t, c, "a connection that was cut")
}

// goroutines counts those that run code of the balancer. One that has reported its end may still
// exist, but only with the line that created it in its stack.
func goroutines() int {
	var out strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&out, 2)
	n := 0
	for stack := range strings.SplitSeq(out.String(), "\n\n") {
		running, _, _ := strings.Cut(stack, "created by")
		if strings.Contains(running, "test/testenv/balancer.(*") {
			n++
		}
	}
	return n
}

// Two addresses of one server are two targets, each with its own checks. The load balancer connects
// to them from its own address, or from another one.
func TestAddressesOfAServer(t *testing.T) {
	t.Parallel()
	elsewhere := netip.MustParseAddr("2001:db8:e::1")
	for name, source := range map[string]netip.Addr{"its own address": {}, "another address": elsewhere} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, 0, func(o *hcloudsim.Options) { o.IPv6Source = source })
			a := w.server("a")
			lb := w.balance(hcloud.LoadBalancerCreateOpts{
				Services: []hcloud.LoadBalancerCreateOptsService{tcp(80, 8080)},
			})
			from := source
			if !from.IsValid() {
				from = ipnet.Addr(lb.PublicNet.IPv6.IP)
			}
			own := netip.MustParsePrefix(a.PublicNet.IPv6.Network.String()).Addr()
			one, two, silent := own.Next(), own.Next().Next(), own.Next().Next().Next()
			for address, name := range map[netip.Addr]string{one: "one", two: "two"} {
				w.serve(netip.AddrPortFrom(address, 8080), replying(name))
			}
			for _, address := range []netip.Addr{one, two, silent} {
				w.target(lb, a, address)
			}
			w.eventually("two are healthy", func() bool { return len(w.sim.HealthyTargets(lb.ID, 80)) == 2 })
			answers := map[string]int{}
			for range 10 {
				reply, err := io.ReadAll(w.dial(ipnet.Addr(lb.PublicNet.IPv4.IP), 80))
				noError(t, err)
				answers[string(reply)]++
			}
			if answers["one"] != 5 || answers["two"] != 5 {
				t.Errorf("of 10 connections are answered by %v", answers)
			}
			w.net.mu.Lock()
			defer w.net.mu.Unlock()
			for _, address := range []netip.Addr{one, two, silent} {
				for _, got := range w.net.sources[netip.AddrPortFrom(address, 8080)] {
					if got != from {
						t.Errorf("%s is reached from %s, want %s", address, got, from)
					}
				}
			}
		})
	}
}
