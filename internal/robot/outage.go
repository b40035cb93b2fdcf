package robot

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
)

const (
	// outageAfter consecutive failures are an outage: a single one may be a lost packet.
	outageAfter = 2
	// shortestBackoff and longestBackoff bound the time between two requests during an outage.
	shortestBackoff = 2 * time.Second
	longestBackoff  = 5 * time.Minute
	// slow is the time after which a caller's deadline indicates an outage: a shorter deadline
	// may just be too short.
	slow = 10 * time.Second
	// slowRoute replaces it for requests that route a failover address.
	slowRoute = 90 * time.Second
)

// outage rejects requests while the service is in maintenance or unreachable, and reports it once.
type outage struct {
	notify func(error)
	gone   metrics.GaugeMetric

	mu       sync.Mutex // guards the fields below, and the order of calls of tell
	failures int        // consecutive
	since    time.Time
	until    time.Time
	cause    error
	backoff  time.Duration
	probing  bool // a request in flight determines whether the outage is over
}

// check returns why no request may be sent now, or nil.
func (o *outage) check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures == 0 || !time.Now().Before(o.until) {
		return nil
	}
	return o.state()
}

// admit is check for a request that is about to be sent. During an outage, one request at a time
// is admitted after the backoff: it probes, and its sender calls probed when it ends.
func (o *outage) admit() (probe bool, err error) {
	if err := o.check(); err != nil {
		return false, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.failures == 0:
		return false, nil
	case o.probing:
		return false, o.state()
	}
	o.probing = true
	return true, nil
}

func (o *outage) probed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probing = false
}

func (o *outage) state() *Unavailable {
	return &Unavailable{Since: o.since, Until: o.until, Cause: o.cause}
}

// tooSlow reports whether a request that its caller's context ended took so long that it
// indicates an outage.
func tooSlow(ctx context.Context, op operation, underWay time.Duration) bool {
	least := slow
	if op.routes() {
		least = slowRoute
	}
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && underWay >= least
}

// failed records a request without a response, and returns the error for its caller.
func (o *outage) failed(cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.failures++; o.failures == 1 {
		o.since, o.backoff = now, shortestBackoff/2
	}
	o.backoff = min(2*o.backoff, longestBackoff)
	// Jitter separates the clusters of an account.
	o.until, o.cause = now.Add(o.backoff+rand.N(o.backoff/4)), cause
	found := o.state()
	if o.failures == outageAfter {
		o.gone.Set(1)
		o.notify(found)
	}
	return found
}

// succeeded ends an outage.
func (o *outage) succeeded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures >= outageAfter {
		o.gone.Set(0)
		o.notify(nil)
	}
	o.failures = 0
}
