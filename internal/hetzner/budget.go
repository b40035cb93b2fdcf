package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
)

const (
	// longestStretch is how long background work waits for quiet before it
	// takes its turn among normal work: under a load that never ends, drift is
	// found late, not never.
	longestStretch = 15 * time.Minute
	// manyFailures in a row say that the API is in trouble, not a request.
	manyFailures = 3
	// probeGap is the time between two requests while the API is in trouble:
	// they cost half of what the default budget refills.
	probeGap = 2 * time.Second
	// countedOn is the share of the refill that is counted on until an answer
	// tells what there is: the rest may be what other programs take.
	countedOn = 0.5
	// look is the longest time without thinking about who waits for what.
	look = time.Minute
)

// budget keeps the project's requests within what the API allows: so many at
// once, refilled evenly over an hour, shared with every other program that uses
// the project (Hetzner Cloud API, rate limiting). What is left is known from the
// answers' headers and the time since; a request that would be answered 429 is
// held back instead. Those held back go by priority, then first come, first
// served.
//
// While the API answers nobody (429, 401, 5xx, or nothing) one request now and
// then finds out when it does again, so that an outage doesn't cost the budget
// that is needed after it.
type budget struct {
	mu       sync.Mutex
	waiting  [priorities][]*ticket
	timer    *time.Timer
	known    bool
	limit    float64
	left     float64 // requests that may be sent at the time of asOf
	asOf     time.Time
	inFlight int
	sent     int // requests so far
	newest   int // of them, the latest that was heard of
	lastSent time.Time
	failures int // in a row

	remaining *metrics.Gauge
	waits     *metrics.HistogramVec
}

// ticket is one request's place.
type ticket struct {
	priority priority
	since    time.Time
	ready    chan struct{} // closed when the request may be sent
	number   int           // among those sent
}

// rank is the priority that a waiting request has by now.
func (t *ticket) rank(now time.Time) priority {
	if t.priority == background && now.Sub(t.since) >= longestStretch {
		return normal
	}
	return t.priority
}

func newBudget(r Registry) (*budget, error) {
	b := &budget{
		remaining: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "cloud_requests", Name: "remaining",
			Help: "Number of requests that the project could still send when the API last told; other programs of the project spend from it too.",
		}),
		waits: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: "underlay", Subsystem: "cloud_requests", Name: "wait_seconds",
			Help:    "Seconds that requests were held back because the budget was low or the API in trouble, until they were sent or given up, by priority (urgent, normal, background).",
			Buckets: []float64{0.01, 1, 10, 60, 300, 900},
		}, []string{"priority"}),
	}
	for _, m := range []metrics.Registerable{b.remaining, b.waits} {
		if err := r.Register(m); err != nil {
			return nil, fmt.Errorf("registering the request budget's metrics: %w", err)
		}
	}
	return b, nil
}

// spend returns when a request may be sent. What it returns goes to told.
func (b *budget) spend(ctx context.Context) (*ticket, error) {
	t := &ticket{priority: priorityOf(ctx), since: time.Now(), ready: make(chan struct{})}
	defer func() { b.waits.WithLabelValues(t.priority.String()).Observe(time.Since(t.since).Seconds()) }()
	b.mu.Lock()
	b.waiting[t.priority] = append(b.waiting[t.priority], t)
	b.admit(t.since)
	b.mu.Unlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
		if b.leave(t) {
			return nil, fmt.Errorf("waiting for the project's request budget: %w", ctx.Err())
		}
	}
	return t, nil
}

// leave gives a place up, and reports whether it did: not if it is the request's
// turn already.
func (b *budget) leave(t *ticket) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting[t.priority], t)
	if i < 0 {
		return false
	}
	b.waiting[t.priority] = slices.Delete(b.waiting[t.priority], i, i+1)
	return true
}

// admit lets through who may go, and comes back when the next one may.
func (b *budget) admit(now time.Time) {
	for {
		t := b.first(now)
		if t == nil {
			return
		}
		if wait := b.wait(t.rank(now), now); wait > 0 {
			b.admitAfter(wait)
			return
		}
		b.waiting[t.priority] = b.waiting[t.priority][1:]
		b.left--
		b.inFlight++
		b.sent++
		b.lastSent, t.number = now, b.sent
		close(t.ready)
	}
}

func (b *budget) admitAfter(wait time.Duration) {
	if b.timer != nil {
		b.timer.Stop()
	}
	b.timer = time.AfterFunc(min(max(wait, 10*time.Millisecond), look), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.admit(time.Now())
	})
}

// first is whose turn it is. Nobody passes the first: all others need more of
// the budget to be left, or came later.
func (b *budget) first(now time.Time) *ticket {
	var first *ticket
	for _, queue := range b.waiting {
		if len(queue) == 0 {
			continue
		}
		t := queue[0]
		if first == nil || t.rank(now) > first.rank(now) || t.rank(now) == first.rank(now) && t.since.Before(first.since) {
			first = t
		}
	}
	return first
}

// wait is how long a request of a priority has to wait at least.
func (b *budget) wait(p priority, now time.Time) (wait time.Duration) {
	if b.failures >= manyFailures {
		wait = b.lastSent.Add(probeGap).Sub(now)
	}
	if b.known {
		b.refill(now)
		short := p.floor()*b.limit + 1 - b.left
		wait = max(wait, time.Duration(short*float64(time.Hour)/(b.limit*countedOn)))
	}
	return wait
}

func (b *budget) refill(now time.Time) {
	b.left = min(b.limit, b.left+b.limit*countedOn*now.Sub(b.asOf).Hours())
	b.asOf = now
}

// spare reports whether background work could be done now.
func (b *budget) spare() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wait(background, time.Now()) <= 0
}

// told takes in what became of a request.
func (b *budget) told(t *ticket, answer *http.Response, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.inFlight--
	b.blame(answer, err)
	if answer != nil && t.number > b.newest { // else something newer is known
		b.newest = t.number
		b.read(answer.Header, now)
	}
	b.admit(now)
}

// blame counts the failures in a row that concern every request.
func (b *budget) blame(answer *http.Response, err error) {
	var other *notTheAPI
	switch {
	case errors.Is(err, context.Canceled): // the caller's wish
	case answer == nil && !errors.As(err, &other):
		b.failures++
	case answer == nil && other.status == http.StatusUnauthorized,
		answer != nil && (answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusTooManyRequests):
		b.failures = max(b.failures+1, manyFailures)
	case answer != nil && answer.StatusCode >= http.StatusInternalServerError:
		b.failures++
	default:
		b.failures = 0
	}
}

// read takes in what an answer's headers say about the budget.
func (b *budget) read(h http.Header, now time.Time) {
	limit, err := strconv.Atoi(h.Get("RateLimit-Limit"))
	if err != nil || limit <= 0 {
		return
	}
	left, err := strconv.Atoi(h.Get("RateLimit-Remaining"))
	if err != nil {
		return
	}
	// Those under way may or may not be counted in yet; say that they aren't.
	b.known, b.limit, b.left, b.asOf = true, float64(limit), float64(left-b.inFlight), now
	b.remaining.Set(float64(left))
}

// budgeted sends requests when the budget allows.
type budgeted struct {
	next   http.RoundTripper
	budget *budget
}

func (t *budgeted) RoundTrip(r *http.Request) (*http.Response, error) {
	place, err := t.budget.spend(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // as every RoundTripper must
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(r)
	became := err
	if r.Context().Err() != nil {
		became = context.Canceled // or out of the caller's time, which is no fault of the API's either
	}
	t.budget.told(place, resp, became)
	return resp, err
}
