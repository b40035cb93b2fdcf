// Package balancer carries real TCP connections for the load balancers of the simulated cloud: it
// has a listener for each service on each of a load balancer's addresses, and connects from there
// to the targets that real health checks have found healthy.
//
// It decides nothing about health by itself. The simulator schedules the checks and counts their
// results; traffic follows the health_status that its API shows. Where the real cloud's behavior is
// unknown, the worse case is assumed, so that no test passes by luck: a connection fails if its
// target refuses it, and no other target is tried; while no target is healthy, connections are
// reset, unless Options.NoTarget is set.
//
// A target that turns unhealthy or is removed gets no new connection, and keeps its existing ones:
// a proxy checks a target only when it chooses one, and a node that is drained must be able to
// finish its work. The connections of a service or load balancer that is removed are closed,
// because nothing is left to carry them.
//
// Services of protocol http are carried as plain TCP, without cookies or headers. Those of protocol
// https are too, behind TLS with the service's certificates; nothing is redirected to them.
package balancer

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// Cloud is the source of the state to carry: a *[hcloudsim.Simulator].
type Cloud interface {
	DataPlane() hcloudsim.DataPlane
	// HealthyTargets returns the targets to which a service sends new connections now.
	HealthyTargets(loadBalancer int64, listenPort int) []hcloudsim.PlaneTarget
	// KeyPairs returns the certificates of a service of protocol https.
	KeyPairs(loadBalancer int64, listenPort int) []tls.Certificate
	// RunHealthChecks calls query for each check when it is due, until ctx ends.
	RunHealthChecks(ctx context.Context, query hcloudsim.Prober)
}

// Options configure a balancer.
type Options struct {
	Cloud   Cloud
	Network Network
	// Changed has a value after the cloud's data plane has changed; see [Bell].
	Changed <-chan struct{}
	// Header is the version of the PROXY protocol for the targets of services that use it; default
	// Version2. The version that the real cloud sends is not documented.
	Header Version
	// NoTarget is how clients of a service are treated while no target takes connections; default
	// [ResetClients].
	NoTarget NoTarget
	// Retry is how long to wait before listening on an address is tried again, and how long
	// accepting pauses after a failure; default 1 s.
	Retry time.Duration
	// Checked, if set, is called with the result of each health check, before the cloud counts it.
	// It is called from several goroutines.
	Checked func(hcloudsim.Probe, hcloudsim.Health)
	// Logger logs the errors; default: they are discarded.
	Logger *slog.Logger
}

// NoTarget is the treatment of connections to a service without healthy targets. That of the real
// cloud is not documented.
type NoTarget int

const (
	ResetClients  NoTarget = iota // they are accepted and reset
	RefuseClients                 // the service doesn't listen
)

// judgeEvery is how often the health of targets is polled with RefuseClients.
const judgeEvery = 100 * time.Millisecond

// Bell notifies a balancer of changes: use its Ring for [hcloudsim.Options.OnChange], and the Bell
// itself for [Options.Changed].
type Bell chan struct{}

// NewBell returns a bell that has not rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring never blocks: changes that were not received yet are merged into one.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// balancer carries the traffic of all load balancers.
type balancer struct {
	Options

	// Only follow, which runs in one goroutine, uses the following fields.
	frontends map[place]*frontend
	turns     map[serviceID]*turns

	mu    sync.Mutex
	known map[int64]hcloudsim.PlaneLoadBalancer // as of the last follow; for checks

	work sync.WaitGroup // checks, listeners, connections
}

// place is an address and port at which a service of a load balancer listens.
type place struct {
	balancer int64
	at       netip.AddrPort
}

// serviceID identifies a service among those of all load balancers.
type serviceID struct {
	balancer   int64
	listenPort int
}

// service is the current state of a service, with the counters of its targets.
type service struct {
	schema.LoadBalancerService
	balancer hcloudsim.PlaneLoadBalancer
	turns    *turns
}

// Run carries traffic until ctx ends. When it returns, all its listeners, connections and
// goroutines have ended.
func Run(ctx context.Context, o Options) {
	if o.Header == 0 {
		o.Header = Version2
	}
	if o.Retry == 0 {
		o.Retry = time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	b := &balancer{Options: o, frontends: map[place]*frontend{}, turns: map[serviceID]*turns{}}
	defer b.work.Wait()
	b.work.Go(func() {
		o.Cloud.RunHealthChecks(ctx, func(p hcloudsim.Probe) hcloudsim.Finding { return b.probe(ctx, p) })
	})
	for {
		var again <-chan time.Time
		switch complete := b.follow(ctx, o.Cloud.DataPlane()); {
		case o.NoTarget == RefuseClients:
			again = time.After(judgeEvery) // the cloud doesn't notify of health
		case !complete:
			again = time.After(o.Retry)
		}
		select {
		case <-ctx.Done():
			b.follow(ctx, hcloudsim.DataPlane{})
			return
		case <-again:
		case <-o.Changed:
		}
	}
}

// follow opens and closes listeners by the data plane, and reports whether all are open.
func (b *balancer) follow(ctx context.Context, plane hcloudsim.DataPlane) (complete bool) {
	known := map[int64]hcloudsim.PlaneLoadBalancer{}
	services := map[serviceID]bool{}
	wanted := map[place]*service{}
	for _, lb := range plane.LoadBalancers {
		known[lb.ID] = lb
		for _, s := range lb.Services {
			id := serviceID{lb.ID, s.ListenPort}
			services[id] = true
			if b.turns[id] == nil {
				b.turns[id] = newTurns()
			}
			for _, address := range addressesOf(lb) {
				wanted[place{lb.ID, netip.AddrPortFrom(address, uint16(s.ListenPort))}] = &service{
					s, lb, b.turns[id],
				}
			}
		}
	}
	b.mu.Lock()
	b.known = known
	b.mu.Unlock()
	for id := range b.turns {
		if !services[id] {
			delete(b.turns, id)
		}
	}
	return b.listen(ctx, wanted)
}

// listen closes the listeners that are no longer wanted, and opens those that are missing.
func (b *balancer) listen(ctx context.Context, wanted map[place]*service) (complete bool) {
	for p, f := range b.frontends {
		if wanted[p] == nil {
			f.close()
			delete(b.frontends, p)
		}
	}
	complete = true
	for p, s := range wanted {
		f := b.frontends[p]
		if f == nil {
			f = newFrontend(ctx)
			b.frontends[p] = f
		}
		f.service.Store(s)
		if err := b.admit(f, p.at, b.admits(s)); err != nil {
			b.Logger.Warn("a service can't listen; it is tried again", "loadBalancer", p.balancer, "address", p.at, "err", err)
			complete = false
		}
	}
	return complete
}

// admits reports whether a service listens for clients.
func (b *balancer) admits(s *service) bool {
	return b.NoTarget != RefuseClients || len(b.Cloud.HealthyTargets(s.balancer.ID, s.ListenPort)) > 0
}

// addressesOf are the addresses at which a load balancer listens: both public addresses unless its
// public interface is disabled, and the private one.
func addressesOf(lb hcloudsim.PlaneLoadBalancer) []netip.Addr {
	var out []netip.Addr
	if lb.Public {
		out = append(out, lb.IPv4, lb.IPv6)
	}
	if lb.PrivateIP.IsValid() {
		out = append(out, lb.PrivateIP)
	}
	return out
}

// sourceOf returns the address from which a load balancer connects to another address.
func sourceOf(lb hcloudsim.PlaneLoadBalancer, to netip.Addr) netip.Addr {
	switch {
	case to.Is4() && to.IsPrivate():
		return lb.PrivateIP
	case to.Is4():
		return lb.IPv4
	}
	return lb.IPv6Source
}
