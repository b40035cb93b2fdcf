package requests

import (
	"context"
	"slices"
	"sync"
	"time"
)

// LongestStretch is the time after which a waiting background request gets normal priority, so
// that drift is found late rather than never under permanent load.
const LongestStretch = 15 * time.Minute

const (
	// longestLook is the longest time between two checks of the budget.
	longestLook = time.Minute
	// shortestLook prevents a busy loop by rounding.
	shortestLook = 10 * time.Millisecond
)

// Budget limits the rate of requests. A [Queue] calls it with its lock held.
type Budget interface {
	// Wait returns the estimated minimum time until a request may be sent; now if 0 or less.
	Wait(p Priority, now time.Time) time.Duration
	// Spend records a sent request.
	Spend(now time.Time)
}

// Queue delays requests until their budget allows them. Use [NewQueue].
type Queue struct {
	budget Budget

	mu      sync.Mutex // guards the fields below and the budget
	waiting [priorities][]*ticket
	timer   *time.Timer
	passed  int // number of admitted requests
}

type ticket struct {
	priority Priority
	since    time.Time
	ready    chan struct{} // closed when the request may be sent
	number   int           // sequence number of its admission
}

func (t *ticket) rank(now time.Time) Priority {
	if t.priority == Background && now.Sub(t.since) >= LongestStretch {
		return Normal
	}
	return t.priority
}

// NewQueue returns an empty queue.
func NewQueue(b Budget) *Queue { return &Queue{budget: b} }

// Wait blocks until a request with the context's priority may be sent. It spends the budget and
// returns the number of admitted requests, including this one. If ctx ends before, it returns
// the error of ctx and spends nothing.
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

// Change calls change, which may modify the budget, and admits requests accordingly.
func (q *Queue) Change(change func(now time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	change(now)
	q.admit(now)
}

// Room reports whether a request of the priority could be sent now.
func (q *Queue) Room(p Priority) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.budget.Wait(p, time.Now()) <= 0
}

// leave removes the ticket, and reports whether it did: an admitted ticket is not in the queue.
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

// admit admits all allowed requests, and schedules the next check.
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
	q.timer = time.AfterFunc(min(max(wait, shortestLook), longestLook), func() {
		q.Change(func(time.Time) {})
	})
}

// first returns the next ticket, or nil. No ticket overtakes it, since all others have a lower
// rank, which requires more remaining budget, or are younger.
func (q *Queue) first(now time.Time) *ticket {
	var first *ticket
	for _, queue := range q.waiting {
		if len(queue) == 0 {
			continue
		}
		t := queue[0]
		if first == nil || t.rank(now) > first.rank(now) ||
			t.rank(now) == first.rank(now) && t.since.Before(first.since) {
			first = t
		}
	}
	return first
}
