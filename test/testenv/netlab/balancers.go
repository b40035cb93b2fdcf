//go:build linux

package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/balancer"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// balancers are the cloud's load balancers. Each is a host with a cable to the internet and, while
// it is in the network, one to the cloud router. Package balancer carries their traffic, and errors
// are written to balancers.log.
type balancers struct {
	internet *internet
	// router returns the router of a network of the cloud, or nil if there is none.
	router func(network int64) *cloudRouter
	bell   balancer.Bell
	log    *slog.Logger
	file   io.Closer
	stop   func() // ends the traffic and waits for it

	following sync.Mutex // held while cables change
	hosts     map[int64]*balancerHost
	stopped   bool

	mu     sync.Mutex
	where  map[netip.Addr]*netns.Namespace // the namespace that has each address of a load balancer
	checks map[Checked][]hcloudsim.Health
}

// Checked identifies a health check: a service of a load balancer by its listen port, and a target.
type Checked struct {
	LoadBalancer int64
	ListenPort   int
	Target       hcloudsim.TargetID
}

type balancerHost struct {
	ns      *netns.Namespace
	private netip.Addr // zero: it is in no network
	network int64
}

// startBalancers runs after the cloud router has started, because load balancers have cables to it.
func (f *Lab) startBalancers(ctx context.Context) error {
	if f.options.Metal {
		return nil
	}
	b, err := newBalancers(f.options.Dir, f.internet, func(int64) *cloudRouter {
		return f.cloud.cloudRouter
	})
	if err != nil {
		return err
	}
	b.start(context.WithoutCancel(ctx), balancer.Options{Cloud: f.Cloud, Header: f.behaves.header})
	f.mu.Lock()
	f.balancers = b
	f.mu.Unlock()
	b.follow(ctx, f.Cloud.DataPlane())
	return nil
}

// newBalancers returns hosts that carry no traffic yet.
func newBalancers(
	dir string, internet *internet, router func(network int64) *cloudRouter,
) (*balancers, error) {
	file, err := os.Create(filepath.Join(dir, "balancers.log"))
	if err != nil {
		return nil, err
	}
	return &balancers{
		internet: internet, router: router, bell: balancer.NewBell(), file: file, stop: func() {},
		log:   slog.New(slog.NewTextHandler(file, &slog.HandlerOptions{Level: slog.LevelDebug})),
		hosts: map[int64]*balancerHost{}, where: map[netip.Addr]*netns.Namespace{},
		checks: map[Checked][]hcloudsim.Health{},
	}, nil
}

// start carries traffic until close. The options select the cloud and its behavior.
func (b *balancers) start(ctx context.Context, o balancer.Options) {
	ctx, cancel := context.WithCancel(ctx)
	o.Network, o.Changed, o.Checked, o.Logger = b, b.bell, b.checked, b.log
	var running sync.WaitGroup
	running.Go(func() { balancer.Run(ctx, o) })
	b.stop = func() {
		cancel()
		running.Wait()
	}
}

// follow connects the load balancers that exist and removes the cables of others. It logs its
// errors: a load balancer without a cable is unreachable, and a test observes that.
func (b *balancers) follow(ctx context.Context, now hcloudsim.DataPlane) {
	b.following.Lock()
	defer b.following.Unlock()
	if b.stopped {
		return
	}
	for id, h := range b.hosts {
		if !slices.ContainsFunc(now.LoadBalancers, func(lb hcloudsim.PlaneLoadBalancer) bool {
			return lb.ID == id
		}) {
			if err := b.remove(ctx, id, h); err != nil {
				b.log.Error("removing a load balancer", "loadBalancer", id, "err", err)
			}
		}
	}
	for _, lb := range now.LoadBalancers {
		if err := b.place(ctx, lb, now.Networks); err != nil {
			b.log.Error("placing a load balancer", "loadBalancer", lb.ID, "err", err)
		}
	}
	b.bell.Ring()
}

// place connects a load balancer as the cloud shows it.
func (b *balancers) place(
	ctx context.Context, lb hcloudsim.PlaneLoadBalancer, networks []hcloudsim.PlaneNetwork,
) error {
	h := b.hosts[lb.ID]
	if h == nil {
		ns, err := netns.Open()
		if err != nil {
			return err
		}
		h = &balancerHost{ns: ns}
		b.hosts[lb.ID] = h
		addresses := Public{
			IPv4: lb.IPv4, IPv6: lb.IPv6, IPv6Prefix: netip.PrefixFrom(lb.IPv6, 64).Masked(),
		}
		if err := b.internet.plug(ctx, balancerPort(lb.ID), ns, public, addresses); err != nil {
			return err
		}
		b.note(ns, lb.IPv4, lb.IPv6)
		if lb.IPv6Source != lb.IPv6 {
			if err := b.internet.lead(ctx, balancerPort(lb.ID), ns, public, lb.IPv6Source); err != nil {
				return err
			}
			b.note(ns, lb.IPv6Source)
		}
	}
	if h.private == lb.PrivateIP && h.network == lb.Network {
		return nil
	}
	if h.private.IsValid() {
		if err := b.unplug(ctx, lb.ID, h); err != nil {
			return err
		}
	}
	for _, network := range networks {
		router := b.router(network.ID)
		if network.ID != lb.Network || router == nil {
			continue
		}
		if err := router.plug(ctx, balancerMember(lb.ID), h.ns, private, lb.PrivateIP,
			network.IPRange); err != nil {
			return err
		}
		h.private, h.network = lb.PrivateIP, lb.Network
		b.note(h.ns, lb.PrivateIP)
	}
	return nil
}

func balancerMember(id int64) Member { return Member{"load_balancer", id} }

// balancerPort is the name of a load balancer's port at the internet.
func balancerPort(id int64) string { return fmt.Sprintf("lb%d", id) }

func (b *balancers) note(ns *netns.Namespace, addrs ...netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range addrs {
		b.where[a] = ns
	}
}

func (b *balancers) forget(addr netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.where, addr)
}

// unplug removes a load balancer from the network.
func (b *balancers) unplug(ctx context.Context, id int64, h *balancerHost) error {
	b.forget(h.private)
	router := b.router(h.network)
	h.private, h.network = netip.Addr{}, 0
	if router == nil {
		return nil // its cables were removed with it
	}
	return router.unplug(ctx, balancerMember(id))
}

func (b *balancers) remove(ctx context.Context, id int64, h *balancerHost) error {
	delete(b.hosts, id)
	b.mu.Lock()
	maps.DeleteFunc(b.where, func(_ netip.Addr, ns *netns.Namespace) bool { return ns == h.ns })
	b.mu.Unlock()
	err := b.internet.unplug(ctx, balancerPort(id))
	if h.private.IsValid() {
		err = errors.Join(err, b.unplug(ctx, id, h))
	}
	h.ns.Close()
	return err
}

// BalancerNamespace returns the namespace of a load balancer, from which it connects to its
// targets; nil if there is no such load balancer.
func (f *Lab) BalancerNamespace(id int64) *netns.Namespace {
	f.balancers.following.Lock()
	defer f.balancers.following.Unlock()
	if h := f.balancers.hosts[id]; h != nil {
		return h.ns
	}
	return nil
}

// Listen listens in the namespace of the host that has the address.
func (b *balancers) Listen(ctx context.Context, at netip.AddrPort) (net.Listener, error) {
	n, err := b.networkOf(at.Addr())
	if err != nil {
		return nil, err
	}
	return n.Listen(ctx, at)
}

// Dial connects from the namespace of the host that has the source address.
func (b *balancers) Dial(
	ctx context.Context, from netip.Addr, to netip.AddrPort,
) (net.Conn, error) {
	n, err := b.networkOf(from)
	if err != nil {
		return nil, err
	}
	return n.Dial(ctx, from, to)
}

func (b *balancers) networkOf(addr netip.Addr) (balancer.Network, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ns, ok := b.where[addr]
	if !ok {
		return nil, fmt.Errorf("no load balancer is cabled with the address %s", addr)
	}
	return balancer.Inside(ns.Do), nil
}

func (b *balancers) checked(p hcloudsim.Probe, found hcloudsim.Health) {
	b.mu.Lock()
	defer b.mu.Unlock()
	about := Checked{p.LoadBalancer, p.Service.ListenPort, p.Target}
	b.checks[about] = append(b.checks[about], found)
}

// Checks returns the results of a target's health checks so far, in order.
func (f *Lab) Checks(about Checked) []hcloudsim.Health {
	f.balancers.mu.Lock()
	defer f.balancers.mu.Unlock()
	return slices.Clone(f.balancers.checks[about])
}

// close ends all traffic, after which changes of the cloud have no effect.
func (b *balancers) close() {
	b.stop()
	b.following.Lock()
	defer b.following.Unlock()
	b.stopped = true
	for _, h := range b.hosts {
		h.ns.Close()
	}
	_ = b.file.Close()
}
