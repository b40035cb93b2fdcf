package controller

import (
	"net/netip"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/underlay-ccm/underlay/routes"
)

// retries paces the repetition of what failed, whatever makes passes run
// meanwhile: each destination by itself, seconds at first, minutes later; and
// all of them where the cause is not the destination.
type retries struct {
	backoff  workqueue.TypedRateLimiter[netip.Prefix]
	failures map[netip.Prefix]failure

	pauses workqueue.TypedRateLimiter[string]
	inARow int       // failures without a success between them
	paused time.Time // until then nothing is written
}

// mostFailures in a row stop all writing for a while: the cause then is not the
// destination, and going on would spend the request budget on finding that out
// again. What is tried after the pause is one write.
const mostFailures = 3

type failure struct {
	err error
	due time.Time
}

func newRetries() *retries {
	return &retries{
		backoff:  workqueue.NewTypedItemExponentialFailureRateLimiter[netip.Prefix](time.Second, 5*time.Minute),
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

// keep forgets the destinations that a plan has nothing to do for any more.
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

// resting reports whether a destination is to be left alone for now.
func (r *retries) resting(now time.Time) func(netip.Prefix) bool {
	return func(dst netip.Prefix) bool { return r.paused.After(now) || r.failures[dst].due.After(now) }
}

// probing reports whether so much failed in a row that one try shows whether
// anything works again. A destination that failed before shows nothing: a few
// that always fail would take every try, and nothing else would be written.
func (r *retries) probing() bool { return r.inARow >= mostFailures }

// untrusted reports whether a destination rests or failed before.
func (r *retries) untrusted(now time.Time) func(netip.Prefix) bool {
	resting := r.resting(now)
	return func(dst netip.Prefix) bool { return resting(dst) || r.err(dst) != nil }
}

// err is why a destination failed last, nil if it didn't.
func (r *retries) err(dst netip.Prefix) error { return r.failures[dst].err }

// wait is the time until something may be tried again that may not be now.
// What may be and isn't waits for something else.
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
