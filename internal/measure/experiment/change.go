package experiment

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

const (
	// patience is how long a change is asked for again that finds something busy.
	patience = 2 * time.Minute
	// settling is how long something may take to be there after its actions have ended.
	settling = 3 * time.Minute
	// firstPause and longestPause are between two tries of a change; each pause is twice the last.
	firstPause, longestPause = 250 * time.Millisecond, 4 * time.Second
)

// inexact says why times aren't exact.
const inexact = "requests came late or failed, as when the project's budget of requests is used up"

// change asks the API for a change; the client's methods fit.
type change = func(context.Context) (*hcloud.Action, *hcloud.Response, error)

// Change makes a change and waits for its end. While what it changes is
// busy, or the API has no time, it is made again, for two minutes at most. The error wraps the
// API's.
func (b *Bench) Change(ctx context.Context, what string,
	change change,
) (took time.Duration, err error) {
	took, _, err = b.timed(ctx, what, change)
	return took, err
}

// timed is Change that tells also whether the time is exact.
func (b *Bench) timed(ctx context.Context, what string,
	change change,
) (took time.Duration, exact bool, err error) {
	var action *hcloud.Action
	err = b.again(ctx, func() (err error) {
		action, _, err = change(ctx)
		return err
	})
	if err == nil {
		took, exact, err = b.Project.Await(ctx, action)
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", what, err)
	}
	return took, exact, nil
}

// Cleanup takes back what an experiment has done, for those that come after. A failure is told as
// progress and nothing else, and once ctx has ended nothing is done: what remains goes with the
// run.
func (b *Bench) Cleanup(ctx context.Context, what string,
	change change,
) {
	if ctx.Err() != nil {
		return
	}
	_, err := b.Change(ctx, what, change)
	if err != nil && !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		b.say("%v; it goes at the end", err)
	}
}

// again does something until the API has time for it.
func (b *Bench) again(ctx context.Context, do func() error) error {
	end := time.Now().Add(patience)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := do()
		if err == nil || !passes(err) || time.Now().Add(pause).After(end) {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// passes reports whether an error says that the same request can be taken later. None of them
// leaves open whether it was carried out.
func passes(err error) bool {
	return hcloud.IsError(err,
		hcloud.ErrorCodeConflict, hcloud.ErrorCodeLocked, hcloud.ErrorCodeRateLimitExceeded)
}

// until asks again and again whether something is there; what says so for people.
func until(ctx context.Context, what string, there func() (bool, error)) error {
	err := lookFor(ctx, settling, time.Second, func() (bool, error) {
		is, err := there()
		if passes(err) {
			return false, nil
		}
		return is, err
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("%s after %s", what, settling)
	}
	return err
}

// wait passes d, or ends with ctx and says why that ended.
func wait(ctx context.Context, d time.Duration) error {
	if sleep.For(ctx, d) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// code is that of an error that the API answered with.
func code(err error) (string, bool) {
	var answer hcloud.Error
	if !errors.As(err, &answer) {
		return "", false
	}
	return string(answer.Code), true
}
