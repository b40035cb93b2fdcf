package survey

import (
	"time"
)

// pace says when which parts of a Snapshot are looked at again. What is watched is not
// among them, and PartSetup is looked at every time: it has the lease, which is renewed
// every few seconds and seems to be nobody's when its age is that of an earlier look.
type pace struct {
	groups []*cadence
	// credit is how many requests to the cloud may be made now. The project has 3,600
	// an hour for everybody (see package hetzner), of which a page that stays open takes
	// a quarter at most.
	credit float64
	filled time.Time
}

// cadence is when some parts are looked at: soon after something changed, else late.
type cadence struct {
	parts      Parts
	soon, late time.Duration
	last       time.Time
	stale      bool // something has changed since
}

const (
	// cloudParts are looked at together: servers are told apart by the network.
	cloudParts = PartNetwork | PartServers | PartLoadBalancers
	// creditMost is what a page that was just opened may spend at once, and
	// creditEvery how long one request takes to come back.
	creditMost  = 120
	creditEvery = 4 * time.Second
	// perPage is how many objects the cloud's lists have on a page at most.
	perPage = 50
)

// newPace starts with a look at everything at a time.
func newPace(now time.Time) *pace {
	p := &pace{credit: creditMost, filled: now, groups: []*cadence{
		{parts: PartLedger | PartRouteRecord | PartAddresses | PartServiceCIDRs, soon: time.Second, late: 10 * time.Second},
		{parts: PartConfig | PartWorkloads, soon: 30 * time.Second, late: 30 * time.Second},
		{parts: cloudParts, soon: 3 * time.Second, late: 15 * time.Second},
		{parts: watchedParts, soon: 2 * time.Second, late: 10 * time.Second},
	}}
	for _, g := range p.groups {
		g.last = now
	}
	return p
}

// changed tells that a watched object is another than it was.
func (p *pace) changed() {
	for _, g := range p.groups {
		g.stale = true
	}
}

// at is when a group is due; cost is that of a look at the cloud.
func (p *pace) at(g *cadence, cost float64) time.Time {
	due := g.last.Add(g.late)
	if g.stale {
		due = g.last.Add(g.soon)
	}
	if g.parts == cloudParts && p.credit < cost {
		affordable := p.filled.Add(time.Duration((cost - p.credit) * float64(creditEvery)))
		if affordable.After(due) {
			return affordable
		}
	}
	return due
}

// due takes those parts that are to be looked at now, of those that are given.
func (p *pace) due(now time.Time, of Parts, cost int) (parts Parts) {
	p.credit = min(creditMost, p.credit+float64(now.Sub(p.filled))/float64(creditEvery))
	p.filled = now
	for _, g := range p.groups {
		if g.parts&of == 0 || now.Before(p.at(g, price(cost))) {
			continue
		}
		parts |= g.parts & of
		g.last, g.stale = now, false
		if g.parts == cloudParts {
			p.credit -= price(cost)
		}
	}
	return parts
}

// next is how long nothing is due.
func (p *pace) next(now time.Time, of Parts, cost int) time.Duration {
	wait := time.Minute
	for _, g := range p.groups {
		if g.parts&of != 0 {
			wait = min(wait, p.at(g, price(cost)).Sub(now))
		}
	}
	return max(wait, 10*time.Millisecond)
}

// price is a cost that can be paid: a project whose lists are longer than the most
// credit is looked at when there is as much.
func price(cost int) float64 { return float64(min(cost, creditMost)) }

// cost is how many requests a look at the cloud takes that finds what this one found.
func (s *Snapshot) cost() int {
	pages := func(n int) int { return n/perPage + 1 }
	n := pages(len(s.Servers)) + pages(len(s.LoadBalancers))
	if s.Config.Network != "" {
		n++
	}
	if len(s.LoadBalancers) > 0 {
		n += pages(len(s.Certificates))
	}
	return n
}
