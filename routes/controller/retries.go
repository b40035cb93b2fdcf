package controller

import (
	"maps"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// pause is the time between attempts. It doubles with each one, from first to longest.
type pause struct {
	first, longest time.Duration

	length time.Duration // 0: nothing was tried
	until  time.Time
}

func (p *pause) begin(now time.Time) {
	p.length = min(max(p.first, 2*p.length), p.longest)
	p.until = now.Add(p.length)
}

func (p *pause) end() { p.length, p.until = 0, time.Time{} }

// left returns the rest of the pause, or 0.
func (p pause) left(now time.Time) time.Duration { return max(0, p.until.Sub(now)) }

// retries backs off failed writes, independent of what triggers passes: per destination, from
// seconds to minutes, and for all destinations if the cause is not the destination.
type retries struct {
	failures map[netip.Prefix]failure
	inARow   int   // failures since the last success
	all      pause // until its end nothing is written
}

// mostFailures in a row stop all writes for a while: the cause is then not the destination, and
// more writes would only spend the request budget. After the pause a single write is tried.
const mostFailures = 3

type failure struct {
	pause
	err error
}

func newRetries() retries {
	return retries{
		failures: map[netip.Prefix]failure{}, all: pause{first: time.Second, longest: time.Minute},
	}
}

func (r *retries) failed(dst netip.Prefix, err error, now time.Time) {
	f := r.failures[dst]
	f.err, f.first, f.longest = err, time.Second, 5*time.Minute
	f.begin(now)
	r.failures[dst] = f
	if r.inARow++; r.inARow >= mostFailures {
		r.all.begin(now)
	}
}

func (r *retries) succeeded(dst netip.Prefix) {
	delete(r.failures, dst)
	r.inARow = 0
	r.all.end()
}

// keep drops the failures of destinations that a plan doesn't change.
func (r *retries) keep(p routes.Plan) {
	open := map[netip.Prefix]bool{}
	for _, s := range p.Steps {
		open[s.Route().Dst] = true
	}
	maps.DeleteFunc(r.failures, func(dst netip.Prefix, _ failure) bool { return !open[dst] })
}

// resting returns a function that reports whether a destination must be skipped for now.
func (r *retries) resting(now time.Time) func(netip.Prefix) bool {
	return func(dst netip.Prefix) bool { return r.all.left(now)+r.failures[dst].left(now) > 0 }
}

// probing reports whether so many writes failed in a row that a single one is tried. It should
// not be for a destination that failed before: a few that always fail would take every try,
// and nothing else would be written.
func (r *retries) probing() bool { return r.inARow >= mostFailures }

// untrusted returns a function that reports whether a destination is resting or has failed.
func (r *retries) untrusted(now time.Time) func(netip.Prefix) bool {
	return func(dst netip.Prefix) bool { return r.all.left(now) > 0 || r.failures[dst].err != nil }
}

// left returns the time until the next resting destination may be tried, or 0.
func (r *retries) left(now time.Time) time.Duration {
	if left := r.all.left(now); left > 0 {
		return left
	}
	var next time.Duration
	for _, f := range r.failures {
		if left := f.left(now); left > 0 && (next == 0 || left < next) {
			next = left
		}
	}
	return next
}
