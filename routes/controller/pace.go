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

// resting says whether a destination is to be left alone for now.
func (r *retries) resting(now time.Time) func(netip.Prefix) bool {
	return func(dst netip.Prefix) bool { return r.paused.After(now) || r.failures[dst].due.After(now) }
}

// probing says whether so much failed in a row that one try shows whether
// anything works again. A destination that failed before shows nothing: a few
// that always fail would take every try, and nothing else would be written.
func (r *retries) probing() bool { return r.inARow >= mostFailures }

// untrusted says whether a destination rests or failed before.
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

// brake caps how many routes are deleted in a period, so that a mistake, ours
// or somebody's, takes time to do harm.
type brake struct {
	percent int
	period  time.Duration

	since   time.Time
	deletes int // since then
}

// left is how many more routes may be deleted now, of which ours are there.
func (b *brake) left(now time.Time, ours int) int {
	if now.Sub(b.since) >= b.period {
		b.since, b.deletes = now, 0
	}
	// Those deleted since belonged to the table that the share is taken of.
	return max(0, routes.DeletionCap(b.percent, ours+b.deletes)-b.deletes)
}

func (b *brake) spend() { b.deletes++ }

// latch is a limit that the table itself taught by refusing an addition. Nobody can
// tell what it counted, so it expires: one addition is tried after a while, and if
// that is refused too, the next one after a longer while.
type latch struct {
	backoff workqueue.TypedRateLimiter[string]
	taught  bool
	at      int       // how many routes stood when it refused
	due     time.Time // when to try again
}

func newLatch() latch {
	return latch{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](30*time.Second, 15*time.Minute)}
}

// refused notes that the table took no route beyond those that stand.
func (l *latch) refused(standing int, now time.Time) {
	l.taught, l.at, l.due = true, standing, now.Add(l.backoff.When(everything))
}

// grew notes that the table took one more route.
func (l *latch) grew(standing int) {
	if standing > l.at {
		l.taught = false
		l.backoff.Forget(everything)
	}
}

// listed notes how many routes stand: with fewer there is room again, and with
// more the limit is another.
func (l *latch) listed(standing int) {
	l.taught = l.taught && standing == l.at
}

// limit is how many routes to keep to: what is configured, or less if the table
// taught so. When it is time to try again that leaves room for one.
func (l *latch) limit(configured, reserve, standing int, now time.Time) int {
	switch {
	case !l.taught:
		return configured
	case now.Before(l.due):
		return min(configured, l.at)
	default:
		return min(configured, standing+reserve+1)
	}
}

// wait is the time until the table is tried again.
func (l *latch) wait(now time.Time) (wait time.Duration, any bool) {
	return l.due.Sub(now), l.taught && now.Before(l.due)
}

// lookout paces looking for servers that aren't attached yet: often at first,
// then seldom, and often again when other nodes wait.
type lookout struct {
	backoff    workqueue.TypedRateLimiter[string]
	waiting    string
	last, next time.Time
}

// soonest is the time between two looks for different nodes.
const soonest = time.Second

func newLookout() *lookout {
	return &lookout{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](2*time.Second, 5*time.Minute)}
}

// due says whether to look now for the nodes that wait.
func (l *lookout) due(waiting string, now time.Time) bool {
	return l.wait(waiting, now) == 0
}

// looked notes that it was looked for the nodes that still wait.
func (l *lookout) looked(waiting string, now time.Time) {
	if waiting != l.waiting {
		l.backoff.Forget(l.waiting)
		l.waiting = waiting
	}
	l.last = now
	if waiting != "" {
		l.next = now.Add(l.backoff.When(waiting))
	}
}

// wait is the time until the next look for the nodes that wait.
func (l *lookout) wait(waiting string, now time.Time) time.Duration {
	if waiting != l.waiting {
		return max(0, l.last.Add(soonest).Sub(now))
	}
	return max(0, l.next.Sub(now))
}
