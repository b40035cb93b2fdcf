package requests

import (
	"context"
	"slices"
	"sync"
	"time"
)

// LongestStretch is how long background work waits for quiet before it takes its
// turn among normal work: under a load that never ends, drift is found late, not
// never.
const LongestStretch = 15 * time.Minute

const (
	// longestLook is the longest time without thinking about who waits for what.
	longestLook = time.Minute
	// shortestLook keeps rounding from becoming a loop.
	shortestLook = 10 * time.Millisecond
)

// Budget says when requests may be sent. A [Queue] calls it with its lock held.
type Budget interface {
	// Wait is how long a request of a priority has to wait at least, as far as
	// can be known; 0 or less lets it go.
	Wait(p Priority, now time.Time) time.Duration
	// Spend takes in that a request goes.
	Spend(now time.Time)
}

// Queue holds requests back until their budget allows them. Use [NewQueue].
type Queue struct {
	budget Budget

	mu      sync.Mutex // guards what follows, and the budget
	waiting [priorities][]*ticket
	timer   *time.Timer
	passed  int // requests so far
}

// ticket is one request's place.
type ticket struct {
	priority Priority
	since    time.Time
	ready    chan struct{} // closed when the request may be sent
	number   int           // among those that were let through
}

// rank is the priority that a waiting request has by now.
func (t *ticket) rank(now time.Time) Priority {
	if t.priority == Background && now.Sub(t.since) >= LongestStretch {
		return Normal
	}
	return t.priority
}

// NewQueue returns an empty queue.
func NewQueue(b Budget) *Queue { return &Queue{budget: b} }

// Wait returns when a request with the context's priority may be sent: then its
// budget has been spent, and number says how many were let through with it. The
// error is the context's; then nothing was spent.
func (q *Queue) Wait(ctx context.Context) (number int, err error) {
	t := &ticket{priority: PriorityOf(ctx), since: time.Now(), ready: make(chan struct{})}
	q.mu.Lock()
	q.waiting[t.priority] = append(q.waiting[t.priority], t)
	q.admit(t.since)
	q.mu.Unlock()
	select {
	case <-t.ready:
	case <-ctx.Done():
		if q.leave(t) {
			return 0, ctx.Err()
		}
	}
	return t.number, nil
}

// Change carries out a change of the budget, and lets through who may go by it.
func (q *Queue) Change(change func(now time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	change(now)
	q.admit(now)
}

// Room reports whether a request of a priority could be sent now.
func (q *Queue) Room(p Priority) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.budget.Wait(p, time.Now()) <= 0
}

// leave gives a place up, and reports whether it did: not if it is the request's
// turn already.
func (q *Queue) leave(t *ticket) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	i := slices.Index(q.waiting[t.priority], t)
	if i < 0 {
		return false
	}
	q.waiting[t.priority] = slices.Delete(q.waiting[t.priority], i, i+1)
	return true
}

// admit lets through who may go, and comes back when the next one may.
func (q *Queue) admit(now time.Time) {
	for {
		t := q.first(now)
		if t == nil {
			return
		}
		if wait := q.budget.Wait(t.rank(now), now); wait > 0 {
			q.admitAfter(wait)
			return
		}
		q.waiting[t.priority] = q.waiting[t.priority][1:]
		q.budget.Spend(now)
		q.passed++
		t.number = q.passed
		close(t.ready)
	}
}

func (q *Queue) admitAfter(wait time.Duration) {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.timer = time.AfterFunc(min(max(wait, shortestLook), longestLook), func() { q.Change(func(time.Time) {}) })
}

// first is whose turn it is. Nobody passes the first: all others need more of
// the budget to be left, or came later.
func (q *Queue) first(now time.Time) *ticket {
	var first *ticket
	for _, queue := range q.waiting {
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
