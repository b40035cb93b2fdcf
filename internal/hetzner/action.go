package hetzner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/sync/singleflight"

	"github.com/underlay-ccm/underlay/internal/requests"
)

// waiter waits for actions. Polling costs requests, so one poll covers all awaited actions, when
// the first of them should have ended.
type waiter struct {
	api       *hcloud.ActionClient
	intervals *pollIntervals
	flight    singleflight.Group // the current poll

	mu      sync.Mutex // guards the fields below and those of watches
	watches []*watch   // of running actions
	sent    time.Time  // when the last poll was sent
}

type started struct {
	action *hcloud.Action
	at     time.Time
}

// watch is an awaited action.
type watch struct {
	started
	due   time.Time     // of the next poll
	gap   time.Duration // from there to the one after
	early int           // polls when due that found it running
	seen  time.Time     // when the last poll that found it running was sent

	polled time.Time // when the poll that found its end was sent
	err    error
	ended  chan struct{}
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
	return &waiter{api: api, intervals: newPollIntervals()}
}

// wait returns when the action has ended, with an error if it failed or if the API no longer has
// it, since its outcome is unknown then. It returns nil for a nil action.
func (w *waiter) wait(ctx context.Context, a *hcloud.Action) error {
	if a == nil {
		return nil
	}
	return w.waitAll(ctx, []started{{a, time.Now()}})[0]
}

// waitAll is wait for actions that end one after the other, so that the last ends last.
func (w *waiter) waitAll(ctx context.Context, all []started) []error {
	ctx, cancel := context.WithTimeoutCause(ctx, longestAction, errSlow)
	defer cancel()
	errs := make([]error, len(all))
	watches := make([]*watch, len(all))
	for i, s := range all {
		if s.action.Status != hcloud.ActionStatusRunning {
			continue
		}
		last := all[len(all)-1]
		wait, gap := w.intervals.first(last.action.Command)
		watches[i] = &watch{
			started: s, seen: s.at, due: last.at.Add(wait), gap: gap, ended: make(chan struct{}),
		}
		w.join(watches[i])
		defer w.leave(watches[i])
	}
	for i, s := range all {
		if it := watches[i]; it != nil {
			if err := w.await(ctx, it); err != nil {
				errs[i] = fmt.Errorf("waiting for action %d (%s): %w", s.action.ID, s.action.Command, err)
				continue
			}
			if s = it.started; i == len(all)-1 {
				running, over := it.seen.Sub(it.at), it.polled.Sub(it.at)
				w.intervals.learn(s.action.Command, it.early, running, over)
			}
		}
		errs[i] = failure(s.action)
	}
	return errs
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

func (w *waiter) join(it *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.watches = append(w.watches, it)
}

func (w *waiter) leave(it *watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(it)
}

func (w *waiter) remove(it *watch) {
	w.watches = slices.DeleteFunc(w.watches, func(other *watch) bool { return other == it })
}

// await polls all awaited actions whenever this one should have ended, until it has.
func (w *waiter) await(ctx context.Context, it *watch) error {
	for {
		var polled <-chan singleflight.Result
		pause := w.untilPoll(it)
		if pause <= 0 {
			polled = w.flight.DoChan("", w.poll)
			pause = longestAction
		}
		timer := time.NewTimer(pause)
		select {
		case <-it.ended:
			timer.Stop()
			return it.err
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-polled:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// untilPoll returns how long to wait before a poll for this action: until it is due, and unless it
// is the only one and was polled too early, until other actions may be polled with it.
func (w *waiter) untilPoll(it *watch) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !it.polled.IsZero() {
		return longestGap // it has ended
	}
	due := it.due
	if it.early == 0 || len(w.watches) > 1 {
		due = later(due, w.sent.Add(together))
	}
	return time.Until(due)
}

// poll requests the state of the awaited actions. Other callers share the response, so it doesn't
// depend on one's context. A running action locks its resource, so it is urgent.
func (w *waiter) poll() (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longestAction)
	defer cancel()
	ctx = requests.WithPriority(ctx, requests.Urgent)
	var requested []*watch
	var sent time.Time
	var found []*hcloud.Action
	err := retry(ctx, read, func(ctx context.Context) error {
		if requested, sent = w.next(), time.Now(); len(requested) == 0 {
			return nil
		}
		var err error
		found, _, err = w.api.List(ctx, hcloud.ActionListOpts{ID: ids(requested)})
		return err
	})
	w.deliver(requested, sent, found, err)
	return nil, nil
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
		out[i] = it.action.ID
	}
	return out
}

func (w *waiter) deliver(requested []*watch, sent time.Time, found []*hcloud.Action, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = sent
	for _, it := range requested {
		i := slices.IndexFunc(found, func(a *hcloud.Action) bool { return a.ID == it.action.ID })
		switch {
		case err != nil:
			it.err = err
		case i < 0:
			it.err = errLost
		case found[i].Status == hcloud.ActionStatusRunning:
			it.running(sent, time.Now())
			continue
		default:
			it.action = found[i]
		}
		it.polled = sent
		w.remove(it)
		close(it.ended)
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
