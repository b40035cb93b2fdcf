package project

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

const (
	// pollLeast and pollMost bound the time between two looks at an action; between them it is a
	// tenth of how long it has run, so that what was seen is as exact for long ones as for short.
	pollLeast, pollMost = 50 * time.Millisecond, time.Second
	// Exactness is how exact those times are that count, for people.
	Exactness = "25 ms, or a twentieth, and half of what a request takes"
	// awaitMost is how long an action is waited for.
	awaitMost = 10 * time.Minute
	// unanswered is how many looks in a row may fail.
	unanswered = 10
)

// timings are how long actions took.
type timings struct {
	mu        sync.Mutex
	byCommand map[string][]time.Duration
	counted   map[int64]bool
}

// Await waits for the end of an action; nil is none, and over. It took so long from the reply that
// named it, which is known to half of the time between two looks: up to a twentieth. That it is not
// exact says that it isn't known like that, since looks came late or failed: such a time says more of
// the looking than of the action, and must not count.
//
// Looking is all it does, so that a look that fails is repeated. The error of an action that
// failed is a [hcloud.ActionError].
func (p *Project) Await(
	ctx context.Context, action *hcloud.Action,
) (took time.Duration, exact bool, err error) {
	if action == nil {
		return 0, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, awaitMost)
	defer cancel()
	began := p.way.began(action.ID)
	seen, exact, failures := action, true, 0
	running := began // when it was known to run last
	for seen.Status == hcloud.ActionStatusRunning {
		pause := interval(time.Since(began), failures)
		if err := sleep.For(ctx, pause); err != nil {
			return 0, false, fmt.Errorf("waiting for action %s: %w", action.Command, err)
		}
		next, at, lasted, err := p.actionNow(ctx, action.ID)
		switch {
		case err == nil && next == nil:
			return 0, false, fmt.Errorf("waiting for action %s: the API has forgotten it", action.Command)
		case err != nil:
			if failures++; failures > unanswered || hopeless(ctx, err) {
				return 0, false, fmt.Errorf("waiting for action %s: %w", action.Command, err)
			}
			continue
		}
		seen = next
		if seen.Status == hcloud.ActionStatusRunning {
			running, failures = at, 0
			continue
		}
		gap := at.Sub(running)
		took = running.Add(gap / 2).Sub(began)
		exact = failures == 0 && gap <= 2*(pause+min(lasted, pollMost))
	}
	if seen.Status != hcloud.ActionStatusSuccess {
		return took, exact, fmt.Errorf("action %s: %w", action.Command, seen.Error())
	}
	if exact {
		p.timings.add(action, took)
	}
	return took, exact, nil
}

// actionNow asks for an action; nil: there is none. The reply shows it as it was at that time: half-way
// between the request and the reply.
func (p *Project) actionNow(
	ctx context.Context, id int64,
) (action *hcloud.Action, at time.Time, lasted time.Duration, err error) {
	began := time.Now()
	action, _, err = p.client.Action.GetByID(ctx, id)
	lasted = time.Since(began)
	return action, began.Add(lasted / 2), lasted, err
}

// interval is the time until the next look.
func interval(running time.Duration, failures int) time.Duration {
	if failures > 0 {
		return pollMost
	}
	return min(max(running/10, pollLeast), pollMost)
}

// hopeless reports whether another look would fail too.
func hopeless(ctx context.Context, err error) bool {
	return ctx.Err() != nil || hcloud.IsError(err,
		hcloud.ErrorCodeNotFound, hcloud.ErrorCodeUnauthorized, hcloud.ErrorCodeForbidden)
}

func (t *timings) add(action *hcloud.Action, took time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counted[action.ID] {
		return
	}
	if t.byCommand == nil {
		t.byCommand, t.counted = map[string][]time.Duration{}, map[int64]bool{}
	}
	t.counted[action.ID] = true
	t.byCommand[action.Command] = append(t.byCommand[action.Command], took)
}

// Took is how long the actions took that were awaited and succeeded, by command, as far as it is
// known exactly.
func (p *Project) Took() map[string][]time.Duration {
	p.timings.mu.Lock()
	defer p.timings.mu.Unlock()
	took := maps.Clone(p.timings.byCommand)
	for command := range took {
		took[command] = slices.Clone(took[command])
	}
	return took
}
