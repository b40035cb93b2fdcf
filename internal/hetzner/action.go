package hetzner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// waiter waits for actions. Polling costs requests, so one poll covers all awaited actions, when
// the first of them should have ended.
type waiter struct {
	api       *hcloud.ActionClient
	intervals *pollIntervals

	mu      sync.Mutex
	watches []*watch
	stop    context.CancelFunc // ends the polling; nil if no poller runs
	sooner  chan struct{}      // a new action may be due earlier
}

// watch is an awaited action.
type watch struct {
	id     int64
	start  time.Time // when it was accepted
	due    time.Time
	gap    time.Duration // until the next poll, if one comes too early
	early  int           // polls when due that found it running
	seen   time.Time     // when the last poll that found it running was sent
	result chan result   // capacity 1
}

type result struct {
	action *hcloud.Action
	polled time.Time // when the poll was sent
	err    error
}

const (
	// shortestGap is the minimum time between polls of a single awaited action, and together
	// that between all other polls: actions that are due within it share a poll.
	shortestGap = 20 * time.Millisecond
	together    = 80 * time.Millisecond
	longestGap  = 5 * time.Second
	// longestAction bounds the wait for an action that never ends: until then it blocks all
	// other changes of its network.
	longestAction = 5 * time.Minute
	// maxPolled is the number of actions per poll, the API's default page size.
	maxPolled = 25
)

var (
	errSlow = errors.New("it has been running for too long; reading the state again")
	errLost = errors.New("the API doesn't know it any more")
)

func newWaiter(api *hcloud.ActionClient) *waiter {
	return &waiter{api: api, intervals: newPollIntervals(), sooner: make(chan struct{}, 1)}
}

// wait returns when the action has ended, with an error if it failed or if the API no longer has
// it, since its outcome is unknown then. It returns nil for a nil action.
func (w *waiter) wait(ctx context.Context, a *hcloud.Action) error {
	if a == nil {
		return nil
	}
	if a.Status == hcloud.ActionStatusRunning {
		over, err := w.watch(ctx, a)
		if err != nil {
			return fmt.Errorf("waiting for action %d (%s): %w", a.ID, a.Command, err)
		}
		a = over
	}
	return failure(a)
}

func failure(a *hcloud.Action) error {
	switch a.Status {
	case hcloud.ActionStatusSuccess:
		return nil
	case hcloud.ActionStatusError:
		return fmt.Errorf("action %d (%s) failed: %w", a.ID, a.Command, a.Error())
	}
	return fmt.Errorf("action %d (%s): its status is neither running nor finished (%q)",
		a.ID, a.Command, a.Status)
}

func (w *waiter) watch(ctx context.Context, a *hcloud.Action) (*hcloud.Action, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longestAction, errSlow)
	defer cancel()
	now := time.Now()
	wait, gap := w.intervals.first(a.Command)
	it := &watch{id: a.ID, start: now, seen: now, due: now.Add(wait), gap: gap, result: make(chan result, 1)}
	w.join(it)
	defer w.leave(it)
	r := w.receive(ctx, it)
	if r.err == nil {
		w.intervals.learn(a.Command, it.early, it.seen.Sub(it.start), r.polled.Sub(it.start))
	}
	return r.action, r.err
}

func (w *waiter) receive(ctx context.Context, it *watch) result {
	select {
	case <-ctx.Done():
		return result{err: context.Cause(ctx)}
	case r := <-it.result:
		return r
	}
}

// join adds a watch, and starts the poller if it is not running.
func (w *waiter) join(it *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches = append(w.watches, it)
	if w.stop == nil {
		// Not the caller's context: the poller serves other callers too. A running action locks
		// its resource, so waiting for it is urgent.
		ctx, stop := context.WithCancel(requests.WithPriority(context.Background(), requests.Urgent))
		w.stop = stop
		go w.poll(ctx)
		return
	}
	select {
	case w.sooner <- struct{}{}:
	default:
	}
}

func (w *waiter) leave(it *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(it)
	if len(w.watches) == 0 && w.stop != nil {
		w.stop()
		w.stop = nil
	}
}

func (w *waiter) remove(it *watch) {
	w.watches = slices.DeleteFunc(w.watches, func(other *watch) bool { return other == it })
}

// poll polls whenever an action should have ended, until no action is awaited.
func (w *waiter) poll(ctx context.Context) {
	var sent time.Time
	for w.rest(ctx, sent.Add(together)) {
		var requested []*watch
		var found []*hcloud.Action
		err := retry(ctx, read, func(ctx context.Context) error {
			requested, sent = w.next(), time.Now()
			var err error
			found, _, err = w.api.List(ctx, hcloud.ActionListOpts{ID: ids(requested)})
			return err
		})
		if ctx.Err() != nil {
			return
		}
		w.deliver(requested, sent, found, err)
	}
}

// rest waits until an action is due, and at least until earliest unless a poll of the only
// awaited action was too early. It reports whether an action is still awaited.
func (w *waiter) rest(ctx context.Context, earliest time.Time) bool {
	for {
		wait := time.Until(w.due(earliest))
		if wait <= 0 {
			return ctx.Err() == nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-w.sooner:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return false
		}
	}
}

func (w *waiter) due(earliest time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	first := time.Now().Add(longestGap) // no watch is left, and the poller is about to be stopped
	for _, it := range w.watches {
		due := it.due
		if it.early == 0 || len(w.watches) > 1 {
			due = later(due, earliest)
		}
		if due.Before(first) {
			first = due
		}
	}
	return first
}

// next returns the watches to poll in one request, those due first.
func (w *waiter) next() []*watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.SortStableFunc(w.watches, func(a, b *watch) int { return a.due.Compare(b.due) })
	return slices.Clone(w.watches[:min(len(w.watches), maxPolled)])
}

func ids(watches []*watch) []int64 {
	out := make([]int64, len(watches))
	for i, it := range watches {
		out[i] = it.id
	}
	return out
}

func (w *waiter) deliver(requested []*watch, sent time.Time, found []*hcloud.Action, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range requested {
		over := result{polled: sent, err: err}
		if err == nil {
			i := slices.IndexFunc(found, func(a *hcloud.Action) bool { return a.ID == it.id })
			switch {
			case i < 0:
				over.err = errLost
			case found[i].Status == hcloud.ActionStatusRunning:
				it.running(sent, time.Now())
				continue
			default:
				over.action = found[i]
			}
		}
		it.result <- over
		w.remove(it)
	}
}

// running records that a poll found the action running, and postpones the next one: briefly at
// first, since the action should end any moment, then longer and longer.
func (it *watch) running(sent, now time.Time) {
	it.seen = sent
	if sent.Before(it.due) {
		return // polled early, with other actions
	}
	it.early++
	it.due = later(sent.Add(it.gap), now)
	it.gap = min(2*it.gap, longestGap)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
