package hetzner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// waiter waits for actions. Polling costs requests, so it learns how long each
// kind of action takes and looks for the first time when it should be over.
type waiter struct {
	api *hcloud.ActionClient

	mu     sync.Mutex
	usual  map[string]time.Duration // by command
	streak map[string]int           // looks in a row that didn't come too early
}

const (
	firstGuess  = 500 * time.Millisecond
	shortestGap = 100 * time.Millisecond
	longestGap  = 5 * time.Second
	// patience ends the wait for an action that never ends: it holds up all
	// other changes of its network.
	patience = 5 * time.Minute
)

var (
	errSlow = errors.New("it has been running for too long; looking again at what there is")
	errLost = errors.New("the API doesn't know it any more")
)

func newWaiter(api *hcloud.ActionClient) *waiter {
	return &waiter{api: api, usual: map[string]time.Duration{}, streak: map[string]int{}}
}

// wait returns when the actions are over, with an error if one of them failed.
// An action that the API doesn't know any more is one whose fate is unknown:
// also an error.
func (w *waiter) wait(ctx context.Context, actions ...*hcloud.Action) error {
	for _, a := range actions {
		if a == nil {
			continue
		}
		if err := w.one(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (w *waiter) one(ctx context.Context, a *hcloud.Action) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errSlow)
	defer cancel()
	start := time.Now()
	gap, polls := w.guess(a.Command), 0
	for a.Status == hcloud.ActionStatusRunning {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for action %d (%s): %w", a.ID, a.Command, context.Cause(ctx))
		case <-time.After(gap):
		}
		update, err := w.look(ctx, a)
		if err != nil {
			return fmt.Errorf("waiting for action %d (%s): %w", a.ID, a.Command, err)
		}
		a, polls = update, polls+1
		// Soon at first, since it should be over any moment; then seldom, since
		// nobody knows.
		if polls == 1 {
			gap = max(gap/4, shortestGap)
		} else {
			gap = min(2*gap, longestGap)
		}
	}
	if polls > 0 {
		w.learn(a.Command, polls, time.Since(start))
	}
	if a.Status == hcloud.ActionStatusError {
		return fmt.Errorf("action %d (%s) failed: %w", a.ID, a.Command, a.Error())
	}
	return nil
}

func (w *waiter) look(ctx context.Context, a *hcloud.Action) (*hcloud.Action, error) {
	var update *hcloud.Action
	err := retry(ctx, read, func(ctx context.Context) error {
		var err error
		update, _, err = w.api.GetByID(ctx, a.ID)
		return err
	})
	if err == nil && update == nil {
		err = errLost
	}
	return update, err
}

func (w *waiter) guess(command string) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if usual, ok := w.usual[command]; ok {
		return min(max(usual, shortestGap), longestGap)
	}
	return firstGuess
}

// learn corrects the guess. An action that was over at the first look may have
// been over for long, which its timestamps don't tell: they are in whole
// seconds. So the guess shrinks, faster and faster, until a look comes too
// early, and then goes back to what that action took.
func (w *waiter) learn(command string, polls int, waited time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if polls > 1 {
		w.usual[command], w.streak[command] = waited, 0
		return
	}
	shrink := min(2<<w.streak[command], 30) // percent
	w.usual[command] = waited * time.Duration(100-shrink) / 100
	w.streak[command] = min(w.streak[command]+1, 5)
}
