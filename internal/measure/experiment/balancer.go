package experiment

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
)

const (
	// judged is how long a target's health may take to be what it must be, with checks every
	// few seconds.
	judged = 2 * time.Minute
	// healthLook is the time between two looks at a load balancer. Each is a request.
	healthLook = time.Second
	// dialWithin is how long a connection through a load balancer may take to be answered.
	dialWithin = 5 * time.Second
	// settles is how long a load balancer may take to serve what the API shows already.
	settles = 20 * time.Second
)

// check is a health check. Zero fields are those of a quick one: 3 seconds, one try.
type check struct {
	http           bool
	port           uint16
	every, timeout time.Duration
	retries        int
}

// service is one of the shared load balancer, of protocol tcp.
type service struct {
	listen uint16
	proxy  bool // the PROXY protocol
	check  check
}

// opts are what the API is asked for.
func (s service) opts() hcloud.LoadBalancerAddServiceOpts {
	every, timeout, retries := 3*time.Second, 3*time.Second, 1
	if s.check.every != 0 {
		every, timeout, retries = s.check.every, s.check.timeout, s.check.retries
	}
	health := &hcloud.LoadBalancerAddServiceOptsHealthCheck{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: new(int(s.check.port)),
		Interval: &every, Timeout: &timeout, Retries: &retries,
	}
	if s.check.http {
		health.Protocol = hcloud.LoadBalancerServiceProtocolHTTP
		health.HTTP = &hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP{
			Path: new("/"), StatusCodes: []string{"2??", "3??"}, TLS: new(false),
		}
	}
	return hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(int(s.listen)),
		DestinationPort: new(servedPort), Proxyprotocol: &s.proxy, HealthCheck: health,
	}
}

// serve adds a service to the load balancer. The function that it returns takes it away.
func (b *Bench) serve(ctx context.Context, lb *LoadBalancer, s service) (remove func(), err error) {
	remove = func() {
		b.Cleanup(ctx, "removing a service", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return b.client().LoadBalancer.DeleteService(ctx, lb.ref(), int(s.listen))
		})
	}
	_, err = b.Change(ctx, "adding a service", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
		return b.client().LoadBalancer.AddService(ctx, lb.ref(), s.opts())
	})
	if err != nil {
		return func() {}, err
	}
	return remove, nil
}

// emptyBalancer returns the shared load balancer without services and targets, whatever an
// experiment before has left there.
func (b *Bench) emptyBalancer(ctx context.Context) (*LoadBalancer, error) {
	lb, err := b.LoadBalancer(ctx)
	if err != nil {
		return nil, err
	}
	now, err := b.balancerNow(ctx, lb)
	if err != nil {
		return nil, err
	}
	for _, s := range now.Services {
		b.Cleanup(ctx, "removing a service", func(ctx context.Context) (*hcloud.Action, *hcloud.Response, error) {
			return b.client().LoadBalancer.DeleteService(ctx, lb.ref(), s.ListenPort)
		})
	}
	return lb, b.withoutTargets(ctx, lb)
}

// balancerNow is what the API says of the load balancer.
func (b *Bench) balancerNow(ctx context.Context, lb *LoadBalancer) (*hcloud.LoadBalancer, error) {
	now, _, err := b.client().LoadBalancer.GetByID(ctx, lb.ID)
	if err == nil && now == nil {
		err = errGone
	}
	return now, err
}

// health is what the API shows of the load balancer's only target, by the services' listen ports.
func (b *Bench) health(ctx context.Context, lb *LoadBalancer) (map[uint16]hcloud.LoadBalancerTargetHealthStatus, error) {
	found, err := b.balancerNow(ctx, lb)
	if err != nil {
		return nil, err
	}
	out := map[uint16]hcloud.LoadBalancerTargetHealthStatus{}
	for _, t := range found.Targets {
		for _, h := range t.HealthStatus {
			out[uint16(h.ListenPort)] = h
		}
	}
	return out, nil
}

// becomes waits until the target has this status for every one of the services.
func (b *Bench) becomes(ctx context.Context, lb *LoadBalancer, want hcloud.LoadBalancerTargetHealthStatusStatus, ports ...uint16) error {
	var last hcloud.LoadBalancerTargetHealthStatusStatus
	err := lookFor(ctx, judged, healthLook, func() (bool, error) {
		now, err := b.health(ctx, lb)
		for _, port := range ports {
			if last = now[port].Status; last != want {
				return false, err
			}
		}
		return true, err
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("the target is %q after %s, and not %s", last, judged, want)
	}
	return err
}

// dial connects to the load balancer's public address, from a server.
func (l *LoadBalancer) dial(ctx context.Context, from *Server, listen uint16) (inside.Outcome, error) {
	return from.Program.Dial(ctx, netip.AddrPortFrom(l.Public4, listen), dialWithin)
}

// answers waits until connections through the load balancer are answered, for it may take a moment
// to serve what the API shows already. Otherwise it tells what became of the last one.
func (l *LoadBalancer) answers(ctx context.Context, from *Server, listen uint16) error {
	var last inside.Outcome
	err := lookFor(ctx, settles, look, func() (bool, error) {
		var err error
		last, err = l.dial(ctx, from, listen)
		return last == inside.Answered, err
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("a connection through the load balancer to a healthy target is %s", last)
	}
	return err
}

// clients are the connections to a server's port in which a request of HTTP came, and checks the
// others: what a health check of protocol tcp opens, without a word.
func clients(ctx context.Context, s *Server, port uint16) (clients, checks []inside.Connection, err error) {
	all, err := s.Program.Connections(ctx, port)
	for _, c := range all {
		if bytes.Contains(c.First, []byte("GET ")) {
			clients = append(clients, c)
		} else {
			checks = append(checks, c)
		}
	}
	return clients, checks, err
}
