package controller

import (
	"net/netip"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/routes"
)

// retries backs off failed writes, independent of what triggers passes: per destination, from
// seconds to minutes, and for all destinations if the cause is not the destination.
type retries struct {
	backoff  workqueue.TypedRateLimiter[netip.Prefix]
	failures map[netip.Prefix]failure

	pauses workqueue.TypedRateLimiter[string]
	inARow int       // failures since the last success
	paused time.Time // nothing is written until then
}

// mostFailures in a row stop all writes for a while: the cause is then not the destination, and
// more writes would only spend the request budget. After the pause a single write is tried.
const mostFailures = 3

type failure struct {
	err error
	due time.Time
}

func newRetries() *retries {
	return &retries{
		backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[netip.Prefix](time.Second,
			5*time.Minute),
		failures: map[netip.Prefix]failure{},
		pauses:   workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute),
	}
}

const everything = "everything"

func (r *retries) failed(dst netip.Prefix, err error, now time.Time) {
	r.failures[dst] = failure{err, now.Add(r.backoff.When(dst))}
	if r.inARow++; r.inARow >= mostFailures {
		r.paused = now.Add(r.pauses.When(everything))
	}
}

func (r *retries) succeeded(dst netip.Prefix) {
	r.forget(dst)
	r.inARow = 0
	r.pauses.Forget(everything)
}

func (r *retries) forget(dst netip.Prefix) {
	r.backoff.Forget(dst)
	delete(r.failures, dst)
}

// keep drops the failures of destinations that a plan doesn't change.
func (r *retries) keep(p routes.Plan) {
	open := map[netip.Prefix]bool{}
	for _, s := range p.Steps() {
		open[s.Route().Dst] = true
	}
	for dst := range r.failures {
		if !open[dst] {
			r.forget(dst)
		}
	}
}

// resting returns a function that reports whether a destination must be skipped for now.
func (r *retries) resting(now time.Time) func(netip.Prefix) bool {
	return func(dst netip.Prefix) bool { return r.paused.After(now) || r.failures[dst].due.After(now) }
}

// probing reports whether so many writes failed in a row that a single one is tried. It should
// not be for a destination that failed before: a few that always fail would take every try,
// and nothing else would be written.
func (r *retries) probing() bool { return r.inARow >= mostFailures }

// untrusted returns a function that reports whether a destination is resting or has failed.
func (r *retries) untrusted(now time.Time) func(netip.Prefix) bool {
	resting := r.resting(now)
	return func(dst netip.Prefix) bool { return resting(dst) || r.err(dst) != nil }
}

func (r *retries) err(dst netip.Prefix) error { return r.failures[dst].err }

// wait returns the time until the next resting destination may be tried.
func (r *retries) wait(now time.Time) (wait time.Duration, any bool) {
	if r.paused.After(now) {
		return r.paused.Sub(now), true
	}
	for _, f := range r.failures {
		if left := f.due.Sub(now); left > 0 && (!any || left < wait) {
			wait, any = left, true
		}
	}
	return wait, any
}
