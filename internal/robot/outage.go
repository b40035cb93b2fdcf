package robot

import (
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
)

// outage rejects requests while the service is in maintenance or unreachable.
type outage struct {
	gone metrics.GaugeMetric

	mu       sync.Mutex // guards the fields below
	failures int        // consecutive
	backoff  time.Duration
	last     *Unavailable
}

// check returns why no request may be sent now, or nil.
func (o *outage) check() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.paused()
}

// admit is check right before a request. After a pause one request is sent; others are rejected
// until its result is known.
func (o *outage) admit() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.paused(); err != nil {
		return err
	}
	o.pause(o.backoff)
	return nil
}

// unknown records a request that shows neither an outage nor its end: the next one may be sent.
func (o *outage) unknown() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pause(0)
}

// paused requires o.mu.
func (o *outage) paused() error {
	if o.failures == 0 || !time.Now().Before(o.last.Until) {
		return nil
	}
	return o.last
}

// pause sets the time until the next request during an outage. It requires o.mu.
func (o *outage) pause(d time.Duration) {
	if o.failures > 0 {
		next := *o.last
		next.Until = time.Now().Add(d)
		o.last = &next
	}
}

// failed records a request without a response, and returns the error for its caller.
func (o *outage) failed(cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := time.Now()
	since := now
	if o.failures++; o.failures == 1 {
		o.backoff = shortestBackoff / 2
	} else {
		since = o.last.Since
	}
	o.backoff = min(2*o.backoff, longestBackoff)
	// Jitter separates the clusters of an account.
	until := now.Add(o.backoff + rand.N(o.backoff/4))
	o.last = &Unavailable{Since: since, Until: until, Cause: cause}
	if o.failures == outageAfter {
		o.gone.Set(1)
	}
	return o.last
}

// succeeded ends an outage.
func (o *outage) succeeded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone.Set(0)
	o.failures = 0
}
