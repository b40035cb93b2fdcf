// Package balancer carries real TCP connections as the load balancers of the
// simulated cloud say: a listener for each service on each of a load balancer's
// addresses, and from there connections to the targets that real health checks
// have found healthy.
//
// It decides nothing about health by itself. The simulator schedules the checks
// and counts their answers; what its API shows as health_status is what traffic
// follows. What is unknown of the real cloud is taken from the worse side, so
// that no test passes by luck: a target that refuses a connection fails it, no
// other target is tried; while no target is healthy, connections are reset, unless
// Options.NoTarget says otherwise.
//
// A target that turns unhealthy or is removed gets no new connection, and keeps
// those it has: a proxy judges a target when it chooses one, and a node that is
// drained must be able to finish its work. A service or load balancer that is
// removed takes its connections with it, because nobody is left to carry them.
//
// Services of protocol http are carried as plain TCP, without cookies or
// headers. Those of protocol https are too, behind TLS with the service's
// certificates; nothing is redirected to them.
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

// Cloud is what is followed: a *[hcloudsim.Simulator].
type Cloud interface {
	DataPlane() hcloudsim.DataPlane
	// HealthyTargets are where a service sends new connections to now.
	HealthyTargets(loadBalancer int64, listenPort int) []hcloudsim.PlaneTarget
	// KeyPairs are what a service of protocol https serves clients with.
	KeyPairs(loadBalancer int64, listenPort int) []tls.Certificate
	// RunHealthChecks asks for checks when they are due, until ctx ends.
	RunHealthChecks(ctx context.Context, query hcloudsim.Prober)
}

// Options say what is carried and how.
type Options struct {
	Cloud   Cloud
	Network Network
	// Changed has a value after the cloud's data plane has changed; see [Bell].
	Changed <-chan struct{}
	// Header is what targets of a service with the PROXY protocol are sent;
	// default Version2. Which version the real cloud sends is not documented.
	Header Version
	// NoTarget is what clients of a service get while no target takes connections; default
	// [ResetClients].
	NoTarget NoTarget
	// Retry is how long an address that can't be listened on is left alone, and
	// how long accepting pauses after a failure; default 1 s.
	Retry time.Duration
	// Checked, if set, is told of each health check that was carried out, before
	// the cloud counts it. It is called from several goroutines.
	Checked func(hcloudsim.Probe, hcloudsim.Health)
	// Logger is told what can't be carried; default nobody.
	Logger *slog.Logger
}

// NoTarget is what becomes of connections that nobody is there for. What the real cloud does is not
// documented.
type NoTarget int

const (
	ResetClients  NoTarget = iota // they are accepted and reset
	RefuseClients                 // nobody listens
)

// judgeEvery is how often it is looked whether anybody takes connections, with RefuseClients.
const judgeEvery = 100 * time.Millisecond

// Bell tells a balancer of changes: its Ring is made for
// [hcloudsim.Options.OnChange], the Bell itself for [Options.Changed].
type Bell chan struct{}

// NewBell returns a bell that has not rung.
func NewBell() Bell { return make(Bell, 1) }

// Ring never blocks: several changes that nobody has looked at yet are one.
func (b Bell) Ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// balancer carries the traffic of all load balancers.
type balancer struct {
	Options

	// Only follow, which runs in one goroutine, uses these.
	frontends map[place]*frontend
	turns     map[serviceID]*turns

	mu    sync.Mutex
	known map[int64]hcloudsim.PlaneLoadBalancer // as of the last follow; for checks

	work sync.WaitGroup // checks, listeners, connections
}

// place is where a service of a load balancer listens.
type place struct {
	balancer int64
	at       netip.AddrPort
}

// serviceID names a service of all load balancers.
type serviceID struct {
	balancer   int64
	listenPort int
}

// service is one service as it is now, with what it remembers of its targets.
type service struct {
	schema.LoadBalancerService
	balancer hcloudsim.PlaneLoadBalancer
	turns    *turns
}

// Run carries traffic until ctx ends. When it returns, every listener,
// connection and goroutine of its has ended.
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
			again = time.After(judgeEvery) // nobody tells of judgments
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

// follow makes the listeners what the data plane says, and reports whether all
// of them are.
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
				wanted[place{lb.ID, netip.AddrPortFrom(address, uint16(s.ListenPort))}] = &service{s, lb, b.turns[id]}
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

// listen closes what nobody wants any more, and opens what is missing.
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

// admits reports whether anybody listens for clients of a service.
func (b *balancer) admits(s *service) bool {
	return b.NoTarget != RefuseClients || len(b.Cloud.HealthyTargets(s.balancer.ID, s.ListenPort)) > 0
}

// addressesOf are where a load balancer listens: both public addresses unless
// its public interface is disabled, and the private one.
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

// sourceOf is which of its addresses a load balancer reaches another one from.
func sourceOf(lb hcloudsim.PlaneLoadBalancer, to netip.Addr) netip.Addr {
	switch {
	case to.Is4() && to.IsPrivate():
		return lb.PrivateIP
	case to.Is4():
		return lb.IPv4
	}
	return lb.IPv6Source
}
