package hetzner

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/promauto"
	"github.com/underlay-ccm/underlay/internal/requests"
)

const (
	// manyFailures is the number of consecutive failures that indicate an outage.
	manyFailures = 3
	// probeGap is the time between requests during an outage: half of the default budget's refill.
	probeGap = 2 * time.Second
	// countedOn is the assumed share of the refill until a response reports the remaining
	// requests: other programs may use the rest.
	countedOn = 0.5
	// leastLimit is the lowest limit that is accepted from a response, one request a minute:
	// otherwise a wrong header would block all requests for hours.
	leastLimit = 60
	// knownFor limits how long a reported budget delays requests; then one is sent to update it.
	knownFor = 5 * time.Minute
)

// budget keeps the project's requests within the API's rate limit, which refills evenly over an
// hour and is shared by all programs that use the project (Hetzner Cloud API, rate limiting). It
// is computed from response headers and the time since. Requests that would be answered 429 are
// delayed, and sent by priority, then in the order of arrival.
//
// During an outage (429, 401, 5xx or no response), a request every probeGap probes the API, so
// that the outage doesn't use up the budget that is needed after it.
type budget struct {
	queue *requests.Queue // its lock guards the fields below

	known    bool
	limit    float64
	left     float64 // requests that may be sent at the time of asOf
	asOf     time.Time
	learned  time.Time // when a response last reported the budget; after knownFor it is a guess
	inFlight int
	newest   int // number of the latest request with a response
	lastSent time.Time
	failures int // consecutive

	remaining *metrics.Gauge
	waits     *metrics.HistogramVec
}

func newBudget(f *promauto.Factory) *budget {
	b := &budget{
		remaining: f.Gauge("remaining",
			"Number of requests that the project could still send according to the last response; other programs of the project use the same limit."),
		waits: f.HistogramVec("wait_seconds",
			"Seconds that requests were held back because the budget was low or the API in trouble, until they were sent or given up, by priority (urgent, normal, background).",
			[]float64{0.01, 1, 10, 60, 300, 900}, "priority"),
	}
	b.queue = requests.NewQueue(b)
	return b
}

// spend blocks until a request may be sent, and returns its number.
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

// Spend implements requests.Budget.
func (b *budget) Spend(now time.Time) {
	b.left--
	b.inFlight++
	b.lastSent = now
}

// Wait implements requests.Budget.
func (b *budget) Wait(p requests.Priority, now time.Time) (wait time.Duration) {
	if b.failures >= manyFailures {
		wait = b.lastSent.Add(probeGap).Sub(now)
	}
	if b.known {
		b.refill(now)
		short := floor(p)*b.limit + 1 - b.left
		refilled := time.Duration(short * float64(time.Hour) / (b.limit * countedOn))
		wait = max(wait, min(refilled, later(b.learned, b.lastSent).Add(knownFor).Sub(now)))
	}
	return wait
}

func (b *budget) refill(now time.Time) {
	b.left = min(b.limit, b.left+b.limit*countedOn*now.Sub(b.asOf).Hours())
	b.asOf = now
}

// floor returns the share of the budget that a priority leaves to higher priorities. Of 3,600
// requests, the share for urgent requests is enough for the routes of 80 nodes at once; a few
// remain for the latest requests of other programs, which no response has reported yet.
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

// spare reports whether a background request could be sent now.
func (b *budget) spare() bool { return b.queue.Room(requests.Background) }

func (b *budget) learn(number int, response *http.Response, err error) {
	b.queue.Change(func(now time.Time) {
		b.inFlight--
		b.blame(response, err)
		if response != nil && number > b.newest { // otherwise a newer response has been read
			b.newest = number
			b.read(response.Header, now)
		}
	})
}

// blame counts the consecutive failures that affect all requests.
func (b *budget) blame(response *http.Response, err error) {
	var other *notTheAPI
	switch {
	case errors.Is(err, context.Canceled): // canceled by the caller
	case response == nil && !errors.As(err, &other):
		b.failures++
	case response == nil && other.status == http.StatusUnauthorized,
		response != nil &&
			(response.StatusCode == http.StatusUnauthorized ||
				response.StatusCode == http.StatusTooManyRequests):
		b.failures = max(b.failures+1, manyFailures)
	case response != nil && response.StatusCode >= http.StatusInternalServerError:
		b.failures++
	default:
		b.failures = 0
	}
}

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
	// Requests in flight may be counted already; assume that they aren't.
	b.known, b.limit, b.left, b.asOf = true, float64(limit), float64(left-b.inFlight), now
	b.learned = now
	b.remaining.Set(float64(left))
}

// budgeted delays requests until the budget allows them.
type budgeted struct {
	next   http.RoundTripper
	budget *budget
}

func (t *budgeted) RoundTrip(r *http.Request) (*http.Response, error) {
	number, err := t.budget.spend(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close() // required of every RoundTripper
		}
		return nil, err
	}
	resp, err := t.next.RoundTrip(r)
	became := err
	if r.Context().Err() != nil {
		became = context.Canceled // the caller's timeout is not a failure of the API either
	}
	t.budget.learn(number, resp, became)
	return resp, err
}
