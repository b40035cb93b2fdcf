package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/requests"
)

const (
	// manyFailures in a row say that the API is in trouble, not a request.
	manyFailures = 3
	// probeGap is the time between two requests while the API is in trouble:
	// they cost half of what the default budget refills.
	probeGap = 2 * time.Second
	// countedOn is the share of the refill that is counted on until an answer
	// tells what there is: the rest may be what other programs take.
	countedOn = 0.5
	// leastLimit is the least that is believed of a project's limit, a request a minute: less, and a
	// wrong header would silence the program for hours.
	leastLimit = 60
	// knownFor is how long what an answer told holds back requests: then one asks again.
	knownFor = 5 * time.Minute
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
	queue *requests.Queue // whose lock guards what follows

	known    bool
	limit    float64
	left     float64 // requests that may be sent at the time of asOf
	asOf     time.Time
	heard    time.Time // when an answer told last; what is older than knownFor is a guess
	inFlight int
	newest   int // the number of the latest request that was heard of
	lastSent time.Time
	failures int // in a row

	remaining *metrics.Gauge
	waits     *metrics.HistogramVec
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
	b.queue = requests.NewQueue(b)
	return b, nil
}

// spend returns when a request may be sent. What it returns goes to told.
func (b *budget) spend(ctx context.Context) (number int, err error) {
	began := time.Now()
	defer func() {
		b.waits.WithLabelValues(requests.PriorityOf(ctx).String()).Observe(time.Since(began).Seconds())
	}()
	if number, err = b.queue.Wait(ctx); err != nil {
		return 0, fmt.Errorf("waiting for the project's request budget: %w", err)
	}
	return number, nil
}

// Spend takes in that a request goes.
func (b *budget) Spend(now time.Time) {
	b.left--
	b.inFlight++
	b.lastSent = now
}

// Wait is how long a request of a priority has to wait at least.
func (b *budget) Wait(p requests.Priority, now time.Time) (wait time.Duration) {
	if b.failures >= manyFailures {
		wait = b.lastSent.Add(probeGap).Sub(now)
	}
	if b.known {
		b.refill(now)
		short := floor(p)*b.limit + 1 - b.left
		refilled := time.Duration(short * float64(time.Hour) / (b.limit * countedOn))
		wait = max(wait, min(refilled, later(b.heard, b.lastSent).Add(knownFor).Sub(now)))
	}
	return wait
}

func (b *budget) refill(now time.Time) {
	b.left = min(b.limit, b.left+b.limit*countedOn*now.Sub(b.asOf).Hours())
	b.asOf = now
}

// floor is the share of the budget that a priority leaves to those above it.
// Of 3,600 requests that is enough for the routes of 80 nodes at once, and a few
// for other programs, whose latest requests no answer told of yet.
func floor(p requests.Priority) float64 {
	switch p {
	case requests.Urgent:
		return 0.001
	case requests.Background:
		return 0.1
	default:
		return 0.05
	}
}

// spare reports whether background work could be done now.
func (b *budget) spare() bool { return b.queue.Room(requests.Background) }

// told takes in what became of a request.
func (b *budget) told(number int, answer *http.Response, err error) {
	b.queue.Change(func(now time.Time) {
		b.inFlight--
		b.blame(answer, err)
		if answer != nil && number > b.newest { // else something newer is known
			b.newest = number
			b.read(answer.Header, now)
		}
	})
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
	if err != nil || limit < leastLimit {
		return
	}
	left, err := strconv.Atoi(h.Get("RateLimit-Remaining"))
	if err != nil {
		return
	}
	left = min(max(left, 0), limit)
	// Those under way may or may not be counted in yet; say that they aren't.
	b.known, b.limit, b.left, b.asOf = true, float64(limit), float64(left-b.inFlight), now
	b.heard = now
	b.remaining.Set(float64(left))
}

// budgeted sends requests when the budget allows.
type budgeted struct {
	next   http.RoundTripper
	budget *budget
}

func (t *budgeted) RoundTrip(r *http.Request) (*http.Response, error) {
	number, err := t.budget.spend(r.Context())
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
	t.budget.told(number, resp, became)
	return resp, err
}
