package hcloudsim

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

// Probe describes one health check for a [Prober].
type Probe struct {
	LoadBalancer int64
	Target       TargetID
	Address      netip.Addr // the address at which the load balancer reaches the target
	Service      schema.LoadBalancerService
	// ProxyHeader reports whether the check begins with a header of the PROXY protocol, see
	// [Options.ProxyHeaderInChecks].
	ProxyHeader bool
}

// Prober carries out a health check of a target, and returns healthy or unhealthy. With the zero
// Finding the health depends on time, see [Options.HealthyAfter].
type Prober func(Probe) Finding

func (p *project) probe(lb *loadBalancer, s *service, t *target, id TargetID) Probe {
	return Probe{
		LoadBalancer: lb.id, Target: id, Address: p.addressOf(lb, t, id),
		Service:     s.LoadBalancerService,
		ProxyHeader: s.Proxyprotocol && p.opts.ProxyHeaderInChecks,
	}
}

// checks is the state of one service's health checks of one target.
type checks struct {
	since   time.Time // creation or last change of the target or service
	next    time.Time // when the next check is due
	finding Finding
	answer  Health // result of the last check
	streak  int    // consecutive checks with that result
	running bool   // a check is running
}

// checksOf returns the state of the checks, reset if the service or the target has changed.
func (lb *loadBalancer) checksOf(s *service, t *target, id TargetID) *checks {
	key, since := healthKey{id, s.ListenPort}, s.since
	if t.since.After(since) {
		since = t.since
	}
	known, ok := lb.checks[key]
	if ok && known.since.Equal(since) {
		return known
	}
	if lb.checks == nil {
		lb.checks = map[healthKey]*checks{}
	}
	lb.checks[key] = &checks{since: since, next: since, finding: Finding{Health: HealthUnknown}}
	return lb.checks[key]
}

// run carries out the checks that are due at the time of access.
func (c *checks) run(now time.Time, probe Probe, prober Prober) Finding {
	if now.Before(c.next) {
		return c.finding
	}
	found := prober(probe)
	if found == (Finding{}) {
		return found
	}
	c.record(now, probe.Service.HealthCheck, found)
	return c.finding
}

// record adds a result. The first check is due at once, then one per interval. The status
// changes, also from unknown, after as many equal results as the check has retries. Past checks
// can't be carried out later, so one result counts for all checks that are due by now.
func (c *checks) record(
	now time.Time, check *schema.LoadBalancerServiceHealthCheck, found Finding,
) {
	// A restored state may have any interval.
	interval := max(1, time.Duration(check.Interval)) * time.Second
	due := 1 + int(now.Sub(c.next)/interval)
	c.next = c.next.Add(time.Duration(due) * interval)
	if found.Health != c.answer {
		c.answer, c.streak = found.Health, 0
	}
	if c.streak += due; c.streak >= check.Retries {
		c.finding = found
	}
}

// healthTick is the polling interval for due checks; check intervals are whole seconds.
const healthTick = 200 * time.Millisecond

// RunHealthChecks carries out health checks until ctx ends: those of every service and target,
// each at its interval, concurrently, and without the simulator's lock, so that a check may take
// as long as its timeout. While it runs, target health results from these checks instead of time
// and [Options.Prober]. A zero Finding is ignored.
func (s *Simulator) RunHealthChecks(ctx context.Context, prober Prober) {
	probing := func(more int) {
		p, unlock := s.present()
		defer unlock()
		p.probing += more
	}
	probing(1)
	defer probing(-1)
	var pending sync.WaitGroup
	defer pending.Wait()
	for ctx.Err() == nil {
		for _, due := range s.dueChecks() {
			pending.Go(func() {
				found := prober(due.probe)
				p, unlock := s.present()
				defer unlock()
				due.checks.running = false
				if found != (Finding{}) {
					due.checks.record(p.now, due.probe.Service.HealthCheck, found)
				}
			})
		}
		_ = sleep.For(ctx, healthTick) // the loop condition checks ctx
	}
}

type dueCheck struct {
	checks *checks
	probe  Probe
}

func (s *Simulator) dueChecks() (due []dueCheck) {
	p, unlock := s.present()
	defer unlock()
	for _, lb := range p.loadBalancers.rows {
		for _, service := range shown(p, lb.services) {
			for _, to := range p.resolve(lb) {
				c := lb.checksOf(service, to.target, to.TargetID)
				if !c.running && !p.now.Before(c.next) {
					c.running = true
					due = append(due, dueCheck{c, p.probe(lb, service, to.target, to.TargetID)})
				}
			}
		}
	}
	return due
}
