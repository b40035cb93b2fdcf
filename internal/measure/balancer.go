package measure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

// TCP ports of the load balancer, and of the server for clients and for health checks.
const (
	listenPort  = 80
	servedPort  = 9001
	checkedPort = 9002
)

const (
	// judged limits the time until a target becomes healthy, with checks every 3 seconds.
	judged = 2 * time.Minute
	// unknownFor is how long connections must fail while the only target's health is unknown, to
	// conclude that such targets get none. The check fails after a minute.
	unknownFor = 20 * time.Second
	// connects limits the time of a connection through the load balancer.
	connects = 5 * time.Second
	// checksSeen is the number of observed health checks.
	checksSeen = 3
)

// balanced lets the load balancer forward connections to a server, which accepts them, and
// returns a function that removes the service and the target. Health checks use HTTP; replies
// sets whether the server replies to them.
func (r *run) balanced(
	ctx context.Context, a aim, proxy bool, every time.Duration, replies bool,
) (*hcloud.LoadBalancer, func(), error) {
	lb, err := r.balancer()
	if err != nil {
		return nil, func() {}, err
	}
	err = errors.Join(a.server.listen(ctx, servedPort, true),
		a.server.listen(ctx, checkedPort, replies))
	if err != nil {
		return nil, func() {}, err
	}
	err = r.done(ctx)(r.client.LoadBalancer.AddService(ctx, lb, hcloud.LoadBalancerAddServiceOpts{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: new(listenPort),
		DestinationPort: new(servedPort), Proxyprotocol: &proxy,
		HealthCheck: &hcloud.LoadBalancerAddServiceOptsHealthCheck{
			Protocol: hcloud.LoadBalancerServiceProtocolHTTP, Port: new(checkedPort),
			Interval: &every, Timeout: &every, Retries: new(1),
			HTTP: &hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP{
				Path: new("/"), StatusCodes: []string{"2??"}, TLS: new(false),
			},
		},
	}))
	if err != nil {
		return nil, func() {}, err
	}
	remove, err := r.target(ctx, lb, a)
	return lb, func() {
		remove()
		r.drop(r.done(ctx)(r.client.LoadBalancer.DeleteService(ctx, lb, listenPort)))
	}, err
}

// quick is the interval of fast health checks.
const quick = 3 * time.Second

// health returns the API's health of the load balancer's only target.
func (r *run) health(
	ctx context.Context, lb *hcloud.LoadBalancer,
) (hcloud.LoadBalancerTargetHealthStatusStatus, error) {
	now, _, err := r.client.LoadBalancer.GetByID(ctx, lb.ID)
	if err != nil || now == nil || len(now.Targets) == 0 || len(now.Targets[0].HealthStatus) == 0 {
		return "", err
	}
	return now.Targets[0].HealthStatus[0].Status, nil
}

// connect reports whether a connection through the load balancer gets a reply.
func (r *run) connect(ctx context.Context, lb *hcloud.LoadBalancer) bool {
	ctx, cancel := context.WithTimeout(ctx, connects)
	defer cancel()
	url := "http://" + net.JoinHostPort(lb.PublicNet.IPv4.IP.String(), strconv.Itoa(listenPort))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	client := http.Client{
		Transport: &http.Transport{DialContext: r.options.Dial, DisableKeepAlives: true},
	}
	response, err := client.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return true
}

// served waits until the target is healthy and a connection through the load balancer succeeds.
func (r *run) served(ctx context.Context, lb *hcloud.LoadBalancer) error {
	err := until(ctx, judged, "the target is healthy", func() (bool, error) {
		is, err := r.health(ctx, lb)
		return is == hcloud.LoadBalancerTargetHealthStatusStatusHealthy, err
	})
	if err != nil {
		return err
	}
	return until(ctx, settles, "a connection to a healthy target succeeds",
		func() (bool, error) { return r.connect(ctx, lb), nil })
}

// connected connects through the load balancer and returns the server's view of the connection.
func (r *run) connected(
	ctx context.Context, a aim, proxy bool,
) (connection, *hcloud.LoadBalancer, error) {
	lb, end, err := r.balanced(ctx, a, proxy, quick, true)
	defer end()
	if err != nil {
		return connection{}, nil, err
	}
	if err := r.served(ctx, lb); err != nil {
		return connection{}, nil, err
	}
	all, err := a.server.requests(ctx, servedPort)
	if err == nil && len(all) == 0 {
		err = errors.New("the load balancer replies, but no connection came to the server")
	}
	if err != nil {
		return connection{}, nil, err
	}
	return all[len(all)-1], lb, nil
}

func sourceIPv6(ctx context.Context, r *run) (record, error) {
	s, err := r.programs[0]()
	if err != nil {
		return nil, err
	}
	if !s.public6.IsValid() {
		return nil, errors.New("the server has no IPv6 address")
	}
	came, lb, err := r.connected(ctx, aim{server: s, at: s.public6}, false)
	if err != nil {
		return nil, err
	}
	source := came.From.String()
	if came.From == ipnet.Addr(lb.PublicNet.IPv6.IP) {
		source = profile.Own
	}
	return func(p *profile.Profile) { p.Cloud.IPv6Source = new(source) }, nil
}

func proxyProtocol(ctx context.Context, r *run) (record, error) {
	s, err := r.programs[0]()
	if err != nil {
		return nil, err
	}
	came, _, err := r.connected(ctx, aim{server: s, private: true}, true)
	if err != nil {
		return nil, err
	}
	if came.proxy() == 0 {
		return nil, fmt.Errorf("the connection has no header, it begins with %q", came.First)
	}
	return func(p *profile.Profile) { p.Network.ProxyProtocol = new(came.proxy()) }, nil
}

// proxyInChecks inspects the first bytes of health checks.
func proxyInChecks(ctx context.Context, r *run) (record, error) {
	s, err := r.programs[0]()
	if err != nil {
		return nil, err
	}
	_, end, err := r.balanced(ctx, aim{server: s, private: true}, true, quick, true)
	defer end()
	if err != nil {
		return nil, err
	}
	var checks []connection
	err = until(ctx, judged, fmt.Sprintf("%d health checks come", checksSeen), func() (bool, error) {
		checks, err = r.checks(ctx, s)
		return len(checks) >= checksSeen, err
	})
	if err != nil {
		return nil, err
	}
	with := slices.ContainsFunc(checks, func(c connection) bool { return c.proxy() != 0 })
	return func(p *profile.Profile) { p.Cloud.ProxyHeaderInChecks = new(with) }, nil
}

// checks returns the health checks that a server received from the network. Internet hosts also
// reach its port, by its public addresses.
func (r *run) checks(ctx context.Context, s *server) ([]connection, error) {
	all, err := s.requests(ctx, checkedPort)
	return slices.DeleteFunc(all, func(c connection) bool { return !c.From.Unmap().IsPrivate() }), err
}

// unjudgedTargets connects while the first check of the only target hangs, for a minute.
func unjudgedTargets(ctx context.Context, r *run) (record, error) {
	s, err := r.programs[0]()
	if err != nil {
		return nil, err
	}
	lb, end, err := r.balanced(ctx, aim{server: s, private: true}, false, time.Minute, false)
	defer end()
	if err != nil {
		return nil, err
	}
	err = until(ctx, judged, "a health check comes to the target", func() (bool, error) {
		checks, err := r.checks(ctx, s)
		return len(checks) > 0, err
	})
	if err != nil {
		return nil, err
	}
	serves := false
	for stop := time.Now().Add(unknownFor); !serves && time.Now().Before(stop); {
		serves = r.connect(ctx, lb)
		is, err := r.health(ctx, lb)
		if err == nil && is != hcloud.LoadBalancerTargetHealthStatusStatusUnknown {
			err = fmt.Errorf("the target is %q before its first check has ended", is)
		}
		if err == nil {
			err = sleep.For(ctx, lookEvery)
		}
		if err != nil {
			return nil, err
		}
	}
	if !serves { // valid only if the health was the reason
		every := quick
		err := s.listen(ctx, checkedPort, true)
		if err == nil {
			err = r.done(ctx)(r.client.LoadBalancer.UpdateService(ctx, lb, listenPort,
				hcloud.LoadBalancerUpdateServiceOpts{
					HealthCheck: &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
						Interval: &every, Timeout: &every,
					},
				}))
		}
		if err == nil {
			err = r.served(ctx, lb)
		}
		if err != nil {
			return nil, err
		}
	}
	return func(p *profile.Profile) { p.Cloud.ServeUnjudged = new(serves) }, nil
}
