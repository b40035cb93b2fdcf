package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
)

// patience limits every wait. A check's shortest interval is 3 s.
const patience = 2 * time.Minute

// loopback simulates a network with any addresses: each listener gets a port of 127.0.0.1 or ::1,
// and connections to its address are opened to that port.
type loopback struct {
	mu      sync.Mutex
	places  map[netip.AddrPort]string // real address of each listener
	sources map[netip.AddrPort][]netip.Addr
	refuse  map[netip.AddrPort]bool // addresses that can't be listened on
	opened  int                     // listeners opened so far
	lazy    atomic.Bool             // dialing ends with its context only, and a while later
}

func (n *loopback) Listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.refuse[at] || n.places[at] != "" {
		return nil, fmt.Errorf("%s can't be listened on", at)
	}
	real := "127.0.0.1:0"
	if at.Addr().Is6() {
		real = "[::1]:0"
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", real)
	if err != nil {
		return nil, err
	}
	n.places[at] = l.Addr().String()
	n.opened++
	return &listener{l, sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.places, at)
	})}, nil
}

type listener struct {
	net.Listener
	forget func()
}

func (l *listener) Close() error {
	l.forget()
	return l.Listener.Close()
}

func (n *loopback) Dial(ctx context.Context, from netip.Addr, to netip.AddrPort) (net.Conn, error) {
	n.mu.Lock()
	real, ok := n.places[to]
	n.sources[to] = append(n.sources[to], from)
	n.mu.Unlock()
	switch {
	case n.lazy.Load():
		<-ctx.Done()
		// Long enough that a caller which doesn't wait for it is noticed.
		time.Sleep(100 * time.Millisecond)
		return nil, ctx.Err()
	case !ok:
		return nil, fmt.Errorf("%s refuses", to)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", real)
}

// dialed counts the connections to a host.
func (n *loopback) dialed(host netip.Addr) (times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for to, sources := range n.sources {
		if to.Addr() == host {
			times += len(sources)
		}
	}
	return times
}

func (n *loopback) listening() (at []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for place := range n.places {
		at = append(at, place.String())
	}
	slices.Sort(at)
	return at
}

// watched counts reads of the data plane.
type watched struct {
	*hcloudsim.Simulator
	reads atomic.Int64
}

func (w *watched) DataPlane() hcloudsim.DataPlane {
	w.reads.Add(1)
	return w.Simulator.DataPlane()
}

// world is a simulated cloud with a network, and a balancer that follows it.
type world struct {
	t     *testing.T
	sim   *watched
	cloud *hcloud.Client
	net   *loopback
	home  *hcloud.Network
	stop  func() // ends the balancer and waits for it
}

func newWorld(t *testing.T, header balancer.Version, change ...func(*hcloudsim.Options)) *world {
	t.Helper()
	return newWorldOf(t, balancer.Options{Header: header}, change...)
}

// newWorldOf is newWorld with a balancer that is configured as given.
func newWorldOf(t *testing.T, carries balancer.Options, change ...func(*hcloudsim.Options)) *world {
	t.Helper()
	bell := balancer.NewBell()
	options := hcloudsim.Options{
		HealthyAfter: time.Hour, // only checks make anything healthy
		OnChange:     func(hcloudsim.DataPlane) { bell.Ring() },
	}
	for _, c := range change {
		c(&options)
	}
	sim := hcloudsim.New(options)
	n, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{
			{IPRange: netip.MustParsePrefix("10.0.0.0/16")}, {IPRange: netip.MustParsePrefix("10.1.0.0/16"), Type: "vswitch", VSwitch: 4321},
		},
	})
	noError(t, err)
	w := &world{
		t: t, sim: &watched{Simulator: sim}, home: &hcloud.Network{ID: n.ID},
		net: &loopback{
			places: map[netip.AddrPort]string{}, sources: map[netip.AddrPort][]netip.Addr{},
			refuse: map[netip.AddrPort]bool{},
		},
		cloud: hcloud.NewClient(hcloud.WithToken("any"), hcloud.WithEndpoint("http://sim.test/v1"),
			hcloud.WithHTTPClient(&http.Client{Transport: sim.Transport()})),
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		carries.Cloud = w.sim
		carries.Network = w.net
		carries.Changed = bell
		carries.Retry = 10 * time.Millisecond
		balancer.Run(ctx, carries)
	}()
	w.stop = func() { cancel(); <-done }
	t.Cleanup(w.stop)
	return w
}

// server creates a server in the network.
func (w *world) server(name string) *hcloud.Server {
	w.t.Helper()
	s, err := w.sim.CreateServer(hcloudsim.ServerSeed{Name: name, Network: w.home.ID})
	noError(w.t, err)
	out, _, err := w.cloud.Server.GetByID(w.t.Context(), s.ID)
	noError(w.t, err)
	return out
}

// private is the address of a server in the network.
func private(s *hcloud.Server) netip.Addr { return ipnet.Addr(s.PrivateNet[0].IP) }

// tcp is a service whose check connects to its destination port.
func tcp(listen, destination int) hcloud.LoadBalancerCreateOptsService {
	return hcloud.LoadBalancerCreateOptsService{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &listen,
		DestinationPort: &destination,
		HealthCheck: &hcloud.LoadBalancerCreateOptsServiceHealthCheck{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: &destination,
			Interval: hcloud.Ptr(3 * time.Second), Timeout: hcloud.Ptr(2 * time.Second),
			Retries: hcloud.Ptr(1),
		},
	}
}

// balance creates a load balancer in the network whose targets are the private addresses of
// servers.
func (w *world) balance(
	opts hcloud.LoadBalancerCreateOpts, servers ...*hcloud.Server,
) *hcloud.LoadBalancer {
	w.t.Helper()
	opts.Name, opts.LoadBalancerType, opts.NetworkZone = "web", &hcloud.LoadBalancerType{Name: "lb31"}, "eu-central"
	opts.Network = w.home
	for _, s := range servers {
		opts.Targets = append(opts.Targets, hcloud.LoadBalancerCreateOptsTarget{
			Type:   hcloud.LoadBalancerTargetTypeServer,
			Server: hcloud.LoadBalancerCreateOptsTargetServer{Server: s}, UsePrivateIP: hcloud.Ptr(true),
		})
	}
	made, _, err := w.cloud.LoadBalancer.Create(w.t.Context(), opts)
	noError(w.t, err)
	lb, _, err := w.cloud.LoadBalancer.GetByID(w.t.Context(), made.LoadBalancer.ID)
	noError(w.t, err)
	return lb
}

// target adds an address of a server to the targets of a load balancer, which hcloud-go doesn't
// support.
func (w *world) target(lb *hcloud.LoadBalancer, s *hcloud.Server, at netip.Addr) {
	w.t.Helper()
	body := fmt.Sprintf(`{"type":"server","server":{"id":%d,"ip":%q}}`, s.ID, at)
	r, err := w.cloud.NewRequest(w.t.Context(), http.MethodPost, fmt.Sprintf("/load_balancers/%d/actions/add_target", lb.ID), strings.NewReader(body))
	noError(w.t, err)
	_, err = w.cloud.Do(r, nil)
	noError(w.t, err)
}

// listens waits until n listeners, of targets and services, are open.
func (w *world) listens(n int) {
	w.t.Helper()
	w.eventually(fmt.Sprintf("%d addresses are listened on", n), func() bool { return len(w.net.listening()) == n })
}

// health returns the health of a load balancer's targets from the cloud's API, by server or
// address, and listen port.
func (w *world) health(lb *hcloud.LoadBalancer) map[string]string {
	w.t.Helper()
	out := w.findings(lb)
	for name, found := range out {
		out[name], _, _ = strings.Cut(found, ":")
	}
	return out
}

// findings is like health, with the reasons of unhealthy targets.
func (w *world) findings(lb *hcloud.LoadBalancer) map[string]string {
	w.t.Helper()
	now, _, err := w.cloud.LoadBalancer.GetByID(w.t.Context(), lb.ID)
	noError(w.t, err)
	out := map[string]string{}
	for _, target := range now.Targets {
		var name string
		if target.Type == hcloud.LoadBalancerTargetTypeIP {
			name = target.IP.IP
		} else {
			s, _ := w.sim.Server(target.Server.Server.ID)
			name = s.Name
		}
		for _, h := range target.HealthStatus {
			found := string(h.Status)
			if h.Detail != nil {
				found += ": " + string(*h.Detail)
			}
			if h.HTTPStatusCode != nil {
				found += fmt.Sprint(" ", *h.HTTPStatusCode)
			}
			out[fmt.Sprintf("%s:%d", name, h.ListenPort)] = found
		}
	}
	return out
}

// healthy waits until targets are healthy: "name:port" each.
func (w *world) healthy(lb *hcloud.LoadBalancer, targets ...string) {
	w.t.Helper()
	w.eventually("the targets are healthy", func() bool {
		health := w.health(lb)
		return !slices.ContainsFunc(targets, func(name string) bool { return health[name] != "healthy" })
	})
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			w.t.Fatalf("not so within %s: %s", patience, what)
		}
		// No notification is available here.
		time.Sleep(5 * time.Millisecond)
	}
}

// serve serves connections at an address of a server.
func (w *world) serve(at netip.AddrPort, reply func(net.Conn)) {
	w.t.Helper()
	l, err := w.net.Listen(w.t.Context(), at)
	noError(w.t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				reply(c)
			})
		}
	})
	w.t.Cleanup(func() {
		w.stop() // some handlers wait for the client
		l.Close()
		conns.Wait()
	})
}

// replying sends a fixed text, also to health checks.
func replying(text string) func(net.Conn) {
	return func(c net.Conn) { _, _ = io.WriteString(c, text) }
}

// dial opens a connection to an address of a load balancer.
func (w *world) dial(at netip.Addr, port uint16) *net.TCPConn {
	w.t.Helper()
	c, err := w.net.Dial(w.t.Context(), netip.Addr{}, netip.AddrPortFrom(at, port))
	noError(w.t, err)
	noError(w.t, c.SetDeadline(time.Now().Add(patience)))
	w.t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

// query opens a connection and returns all that it receives; empty if there is no connection.
func (w *world) query(at netip.Addr, port uint16) string {
	w.t.Helper()
	c, err := w.net.Dial(w.t.Context(), netip.Addr{}, netip.AddrPortFrom(at, port))
	if err != nil {
		return ""
	}
	defer c.Close()
	noError(w.t, c.SetDeadline(time.Now().Add(patience)))
	text, err := io.ReadAll(c)
	if err != nil {
		return ""
	}
	return string(text)
}

// firstByte opens a connection and returns the first byte that it receives.
func (w *world) firstByte(at netip.Addr, port uint16) string {
	w.t.Helper()
	c, err := w.net.Dial(w.t.Context(), netip.Addr{}, netip.AddrPortFrom(at, port))
	if err != nil {
		return "error"
	}
	defer c.Close()
	noError(w.t, c.SetDeadline(time.Now().Add(patience)))
	return readByte(c)
}

// readByte returns the next byte of a connection.
func readByte(c net.Conn) string {
	var one [1]byte
	if _, err := io.ReadFull(c, one[:]); err != nil {
		return "error"
	}
	return string(one[:])
}

// wantReset reads a connection to its end, which must be a reset.
func wantReset(t testing.TB, c net.Conn, what string) {
	t.Helper()
	if got, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s ends with %q and the error %v, want a reset", what, got, err)
	}
}

// receive returns the next value of a channel.
func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing comes within %s", patience)
	}
	panic("not reached")
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
