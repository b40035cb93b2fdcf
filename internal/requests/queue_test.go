package requests_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// tokens are a budget of one request per interval.
type tokens struct {
	every time.Duration
	next  time.Time
}

func (b *tokens) Wait(_ requests.Priority, now time.Time) time.Duration { return b.next.Sub(now) }
func (b *tokens) Spend(
	now time.Time,
) {
	b.next = now.Add(b.every)
}

// line records the requests that passed a queue, in order.
type line struct {
	mu     sync.Mutex
	passed []string
}

func (l *line) note(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passed = append(l.passed, name)
}

// More urgent requests are sent first, whatever their age; equal ones in order, each as soon as the
// budget allows.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := requests.NewQueue(&tokens{every: time.Minute, next: time.Now().Add(time.Minute)})
		began := time.Now()
		var l line
		var all sync.WaitGroup
		for _, want := range []struct {
			name string
			p    requests.Priority
		}{{"5 drift", requests.Background}, {"3 look", requests.Normal}, {"1 write", requests.Urgent}, {"4 look", requests.Normal}, {"2 write", requests.Urgent}} {
			all.Go(func() {
				if _, err := q.Wait(requests.WithPriority(t.Context(), want.p)); err != nil {
					t.Error(err)
				}
				l.note(want.name)
			})
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if !slices.IsSorted(l.passed) || len(l.passed) != 5 {
			t.Errorf("passed in the order %q", l.passed)
		}
		if took := time.Since(began); took != 5*time.Minute {
			t.Errorf("took %s, want one each minute", took)
		}
	})
}

// A canceled wait spends nothing and delays no other, and numbers have no gap.
func TestGivingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := requests.NewQueue(&tokens{every: time.Minute})
		if n, err := q.Wait(t.Context()); n != 1 || err != nil {
			t.Errorf("number %d, %v", n, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := q.Wait(requests.WithPriority(ctx, requests.Urgent)); !errors.Is(err,
			context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if q.Room(requests.Normal) {
			t.Error("there is room at once")
		}
		if n, err := q.Wait(t.Context()); n != 2 || err != nil {
			t.Errorf("number %d, %v", n, err)
		}
	})
}

// Background work that has waited long takes its turn among normal work.
func TestBackgroundIsNotStarved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := requests.NewQueue(&tokens{every: time.Minute, next: time.Now().Add(time.Minute)})
		ctx, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		for range 3 {
			others.Go(func() {
				for {
					if _, err := q.Wait(ctx); err != nil {
						return
					}
				}
			})
		}
		began := time.Now()
		if _, err := q.Wait(requests.WithPriority(t.Context(), requests.Background)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < requests.LongestStretch ||
			took > requests.LongestStretch+5*time.Minute {
			t.Errorf("waited %s", took)
		}
		stop()
		others.Wait()
	})
}

// Work for an urgent change remains urgent.
func TestTheFirstMarkStays(t *testing.T) {
	ctx := requests.WithPriority(t.Context(), requests.Urgent)
	if p := requests.PriorityOf(requests.WithPriority(ctx,
		requests.Background)); p != requests.Urgent {
		t.Errorf("priority is %s", p)
	}
	if p := requests.PriorityOf(t.Context()); p != requests.Normal {
		t.Errorf("without a mark it is %s", p)
	}
}
