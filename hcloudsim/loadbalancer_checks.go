package hcloudsim

import (
	"context"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

// checks are the health checks of one target by one service, as far as they
// have been carried out.
type checks struct {
	since   time.Time // what is checked is so since then
	next    time.Time // when the next is due
	finding Finding
	answer  Health // of the last
	streak  int    // how many in a row had that answer
	asked   bool   // somebody is being asked just now
}

// checksOf starts over when the service or the target is not what it was.
func (lb *loadBalancer) checksOf(key healthKey, since time.Time) *checks {
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

// run carries out the checks that are due, when somebody looks.
func (c *checks) run(now time.Time, probe Probe, ask Prober) Finding {
	if now.Before(c.next) {
		return c.finding
	}
	found := ask(probe)
	if found == (Finding{}) {
		return found
	}
	c.record(now, probe.Service.HealthCheck, found)
	return c.finding
}

// record counts an answer: the first check is due at once, one in each
// interval after that. As many as the check's retries must agree before the
// status changes, from unknown too. Nobody can be asked about the past: what is
// found now stands for all that are due by now.
func (c *checks) record(now time.Time, check *schema.LoadBalancerServiceHealthCheck, found Finding) {
	interval := max(1, time.Duration(check.Interval)) * time.Second // a restored state may have any
	due := 1 + int(now.Sub(c.next)/interval)
	c.next = c.next.Add(time.Duration(due) * interval)
	if found.Health != c.answer {
		c.answer, c.streak = found.Health, 0
	}
	if c.streak += due; c.streak >= check.Retries {
		c.finding = found
	}
}

// healthTick is how often RunHealthChecks looks for checks that are due; their
// intervals are seconds.
const healthTick = 200 * time.Millisecond

// RunHealthChecks carries out health checks until ctx ends: those of every
// service and target, each in its interval, none waiting for another, and
// without the simulator's lock, so that they may take as long as the check's
// timeout says. Meanwhile targets are what the checks have found, and time and
// [Options.Prober] have no say. The zero Finding counts as none.
func (s *Simulator) RunHealthChecks(ctx context.Context, ask Prober) {
	s.setProbing(1)
	defer s.setProbing(-1)
	var asking sync.WaitGroup
	defer asking.Wait()
	for ctx.Err() == nil {
		for _, due := range s.dueChecks() {
			asking.Go(func() { s.recordCheck(due, ask(due.probe)) })
		}
		_ = sleep.For(ctx, healthTick) // the loop's condition looks at ctx
	}
}

func (s *Simulator) setProbing(more int) {
	p, unlock := s.present()
	defer unlock()
	p.probing += more
}

// dueCheck is one that somebody is being asked for.
type dueCheck struct {
	checks *checks
	probe  Probe
}

func (s *Simulator) dueChecks() []dueCheck {
	p, unlock := s.present()
	defer unlock()
	var due []dueCheck
	for _, lb := range p.loadBalancers.rows {
		for _, service := range lb.services {
			for _, t := range lb.targets {
				if t.pending || service.pending {
					continue
				}
				for _, id := range p.targetIDs(t) {
					c := lb.checksOf(healthKey{id, service.ListenPort}, later(service.since, t.since))
					if !c.asked && !p.now.Before(c.next) {
						c.asked = true
						due = append(due, dueCheck{c, p.probe(lb, service, t, id)})
					}
				}
			}
		}
	}
	return due
}

func (s *Simulator) recordCheck(due dueCheck, found Finding) {
	p, unlock := s.present()
	defer unlock()
	due.checks.asked = false
	if found != (Finding{}) {
		due.checks.record(p.now, due.probe.Service.HealthCheck, found)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
