package hetzner

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
)

// priority says who goes first when the project's request budget runs low.
type priority int

const (
	// normal is what an event asks for.
	normal priority = iota
	// background is what only time asks for: looking whether something drifted.
	background
	// urgent is what somebody's traffic waits for: routes, targets.
	urgent
)

func (p priority) String() string { return [...]string{"normal", "background", "urgent"}[p] }

type priorityKey struct{}

// withPriority marks what is done under the context, unless it is marked
// already: what an urgent change needs to know is urgent too.
func withPriority(ctx context.Context, p priority) context.Context {
	if _, marked := ctx.Value(priorityKey{}).(priority); marked {
		return ctx
	}
	return context.WithValue(ctx, priorityKey{}, p)
}

func priorityOf(ctx context.Context) priority {
	if p, marked := ctx.Value(priorityKey{}).(priority); marked {
		return p
	}
	return normal
}

// floor is the share of the budget that a priority leaves to those above it.
func (p priority) floor() float64 {
	switch p {
	case urgent:
		return 0
	case background:
		return 0.1
	default:
		return 0.01
	}
}

// budget keeps the project's requests within what the API allows: so many at
// once, refilled evenly over an hour, shared with every other program that uses
// the project (Hetzner Cloud API, rate limiting). What is left is known from the
// last answer's headers and the time since; a request that would be answered
// 429 is held back instead, the less urgent ones first.
type budget struct {
	mu       sync.Mutex
	known    bool
	limit    float64
	left     float64 // requests that may be sent at the time of asOf
	asOf     time.Time
	inFlight int

	remaining *metrics.Gauge
	waits     *metrics.HistogramVec
}

func newBudget(r Registry) (*budget, error) {
	b := &budget{
		remaining: metrics.NewGauge(&metrics.GaugeOpts{
			Namespace: "underlay", Subsystem: "cloud_requests", Name: "remaining",
			Help: "Number of requests that the project may still send now, as the API's last answer told; other programs of the project spend from it too.",
		}),
		waits: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: "underlay", Subsystem: "cloud_requests", Name: "wait_seconds",
			Help:    "Seconds that requests were held back because the budget was low, by priority (urgent, normal, background).",
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

// spend returns when a request may be sent.
func (b *budget) spend(ctx context.Context) error {
	p, began := priorityOf(ctx), time.Now()
	for {
		wait := b.take(p, time.Now())
		if wait == 0 {
			b.waits.WithLabelValues(p.String()).Observe(time.Since(began).Seconds())
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for the project's request budget: %w", ctx.Err())
		case <-time.After(wait):
		}
	}
}

// take takes a request out of the budget, or says how long to wait for it.
func (b *budget) take(p priority, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.known {
		b.refill(now)
		if short := p.floor()*b.limit + 1 - b.left; short > 0 {
			return max(time.Duration(short*float64(time.Hour)/b.limit), 10*time.Millisecond)
		}
		b.left--
	}
	b.inFlight++
	return 0
}

func (b *budget) refill(now time.Time) {
	b.left = min(b.limit, b.left+b.limit*now.Sub(b.asOf).Hours())
	b.asOf = now
}

// told takes in an answer; nil means that there was none.
func (b *budget) told(answer *http.Response, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inFlight--
	if answer == nil {
		return
	}
	limit, err := strconv.Atoi(answer.Header.Get("RateLimit-Limit"))
	if err != nil || limit <= 0 {
		return
	}
	left, err := strconv.Atoi(answer.Header.Get("RateLimit-Remaining"))
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
	if err := t.budget.spend(r.Context()); err != nil {
		return nil, err
	}
	resp, err := t.next.RoundTrip(r)
	t.budget.told(resp, time.Now())
	return resp, err
}
