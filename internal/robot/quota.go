package robot

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// operation is an operation of the web service, with its quota per hour.
type operation struct {
	method, path string
	quota        int
}

func (o operation) name() string { return o.method + " " + o.path }

// routes reports whether it routes a failover address, which takes a minute.
func (o operation) routes() bool { return o == routeFailover || o == unrouteFailover }

// The operations in use, with their documented quotas.
var (
	listServers     = operation{"GET", "/server", 200}
	getServer       = operation{"GET", "/server/{server}", 200}
	getVSwitch      = operation{"GET", "/vswitch/{id}", 500}
	listFailovers   = operation{"GET", "/failover", 100}
	routeFailover   = operation{"POST", "/failover/{ip}", 50}
	unrouteFailover = operation{"DELETE", "/failover/{ip}", 50}
)

func operations() []operation {
	return []operation{
		listServers, getServer, getVSwitch, listFailovers, routeFailover, unrouteFailover,
	}
}

const (
	// quotaInterval is the documented interval of all quotas.
	quotaInterval = time.Hour
	// shortestPause and longestPause bound the pause after other programs have used up a quota.
	shortestPause = time.Minute
	longestPause  = 15 * time.Minute
)

// quota keeps one operation within the service's limit. Responses don't report the remaining
// requests, so they are counted here: each from when it is sent until an hour after its response.
// That is right both for a sliding window and for full hours.
type quota struct {
	queue *requests.Queue // its lock guards the fields below

	limit     int
	inFlight  int
	succeeded []time.Time // times of responses within quotaInterval, oldest first
	paused    time.Time   // until this time
	pause     time.Duration
}

func newQuota(limit int) *quota {
	q := &quota{limit: limit}
	q.queue = requests.NewQueue(q)
	return q
}

// share returns the part of a quota that a priority leaves to higher priorities and to other
// programs of the account.
func share(p requests.Priority) float64 {
	switch p {
	case requests.Urgent:
		return 0
	case requests.Background:
		return 0.25
	default:
		return 0.1
	}
}

// Wait implements requests.Budget.
func (q *quota) Wait(p requests.Priority, now time.Time) time.Duration {
	q.forget(now)
	wait := q.paused.Sub(now)
	most := q.limit - int(share(p)*float64(q.limit)) // requests, including this one
	tooMany := q.inFlight + len(q.succeeded) + 1 - most
	switch {
	case tooMany <= 0:
		return wait
	case tooMany > len(q.succeeded):
		return max(wait, time.Minute) // requests in flight must end first
	default:
		return max(wait, q.succeeded[tooMany-1].Add(quotaInterval).Sub(now))
	}
}

// Spend implements requests.Budget.
func (q *quota) Spend(time.Time) { q.inFlight++ }

func (q *quota) forget(now time.Time) {
	expired := func(t time.Time) bool { return now.Sub(t) >= quotaInterval }
	q.succeeded = slices.DeleteFunc(q.succeeded, expired)
}

func (q *quota) left() (left int) {
	q.queue.Change(func(now time.Time) {
		q.forget(now)
		left = max(0, q.limit-q.inFlight-len(q.succeeded))
	})
	return left
}

// spend blocks until a request may be sent. The caller passes its result to result.
func (q *quota) spend(ctx context.Context) error {
	if _, err := q.queue.Wait(ctx); err != nil {
		return fmt.Errorf("waiting for the operation's quota: %w", err)
	}
	return nil
}

// result records whether a request was sent, and its error response.
func (q *quota) result(sent bool, response *Error) {
	q.queue.Change(func(now time.Time) {
		q.inFlight--
		if sent {
			q.succeeded = append(q.succeeded, now)
		}
		switch {
		case response != nil && response.Code == CodeRateLimit:
			// Quotas of other intervals can't be compared with the limit.
			hourly := response.Interval == 0 || response.Interval == int(quotaInterval.Seconds())
			if most := response.MaxRequests; hourly && most > 0 {
				q.limit = min(q.limit, most)
			}
			q.pause = min(max(2*q.pause, shortestPause), longestPause)
			q.paused = now.Add(q.pause)
		case sent:
			q.pause = 0
		}
		q.forget(now)
	})
}

// remaining exports the remaining requests at the time of a scrape: they grow while none is sent.
type remaining struct {
	metrics.BaseStableCollector
	desc   *metrics.Desc
	quotas map[operation]*quota
}

func newRemaining(quotas map[operation]*quota) *remaining {
	return &remaining{quotas: quotas, desc: metrics.NewDesc("underlay_robot_requests_remaining",
		"Number of requests of an operation (such as `GET /server`) that may still be sent within an hour; other programs of the account may leave fewer.",
		[]string{"operation"}, nil, metrics.ALPHA, "")}
}

// DescribeWithStability implements metrics.StableCollector.
func (r *remaining) DescribeWithStability(to chan<- *metrics.Desc) { to <- r.desc }

// CollectWithStability implements metrics.StableCollector.
func (r *remaining) CollectWithStability(to chan<- metrics.Metric) {
	for op, q := range r.quotas {
		to <- metrics.NewLazyConstMetric(r.desc, metrics.GaugeValue, float64(q.left()), op.name())
	}
}
