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
	// toldAfter failures in a row, it is an outage: one may be a lost packet.
	toldAfter = 2
	// shortestBackoff and longestBackoff are between two requests while nobody
	// answers.
	shortestBackoff = 2 * time.Second
	longestBackoff  = 5 * time.Minute
	// slow is how long a request is under way at least when its caller's deadline
	// tells that nobody answers: a shorter deadline tells of the caller.
	slow = 10 * time.Second
	// slowRoute is the same for one that routes a failover address.
	slowRoute = 90 * time.Second
)

// outage keeps requests back while the service is in maintenance or out of
// reach, and tells of it once.
type outage struct {
	tell func(error)
	gone metrics.GaugeMetric

	mu       sync.Mutex // guards what follows, and the order of what is told
	failures int        // in a row
	since    time.Time
	until    time.Time
	cause    error
	backoff  time.Duration
	probing  bool // a request is under way that finds out whether it is over
}

// check returns why nothing is sent now.
func (o *outage) check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures == 0 || !time.Now().Before(o.until) {
		return nil
	}
	return o.state()
}

// admit is check for a request that is about to be sent. While nobody answers, one at a time is
// let through when its time has come: it probes, and whoever sends it calls probed at its end.
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

// probed lets the next one probe, if need be.
func (o *outage) probed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.probing = false
}

func (o *outage) state() *Unavailable {
	return &Unavailable{Since: o.since, Until: o.until, Cause: o.cause}
}

// tooSlow reports whether a request that its caller's context has ended was under
// way for so long that the service is to blame.
func tooSlow(ctx context.Context, op operation, underWay time.Duration) bool {
	least := slow
	if op.routes() {
		least = slowRoute
	}
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && underWay >= least
}

// failed takes in that nobody answered, and returns what to tell the caller.
func (o *outage) failed(cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	if o.failures++; o.failures == 1 {
		o.since, o.backoff = now, shortestBackoff/2
	}
	o.backoff = min(2*o.backoff, longestBackoff)
	// A little apart from other clusters of the account.
	o.until, o.cause = now.Add(o.backoff+rand.N(o.backoff/4)), cause
	found := o.state()
	if o.failures == toldAfter {
		o.gone.Set(1)
		o.tell(found)
	}
	return found
}

// answered ends an outage.
func (o *outage) answered() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failures >= toldAfter {
		o.gone.Set(0)
		o.tell(nil)
	}
	o.failures = 0
}
