package hetzner

import (
	"context"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

// series is a sequence of changes of one load balancer, which accepts one at a time. Accepting a
// change shows that the previous one has ended, so their results are polled together at the end.
type series struct {
	waiter  *waiter
	started []started
}

// send sends a change when the previous one should have ended. An early change is refused
// temporarily and retried; refusals and acceptances adapt the poll intervals as polls do.
func (s *series) send(ctx context.Context, do func(context.Context) (*hcloud.Action, error)) (at int, err error) {
	var before *started
	if n := len(s.started); n > 0 && s.started[n-1].action.Status == hcloud.ActionStatusRunning {
		before = &s.started[n-1]
		wait, _ := s.waiter.intervals.first(before.action.Command)
		if err := sleep.For(ctx, time.Until(before.at.Add(wait))); err != nil {
			return 0, err
		}
	}
	var action *hcloud.Action
	var sent, refused time.Time
	early := 0
	err = retry(ctx, write, func(ctx context.Context) error {
		sent = time.Now()
		var err error
		if action, err = do(ctx); hcloud.IsError(err, hcloud.ErrorCodeConflict, hcloud.ErrorCodeLocked) {
			early, refused = early+1, sent
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	if before != nil {
		running := time.Duration(0)
		if early > 0 {
			running = refused.Sub(before.at)
		}
		s.waiter.intervals.learn(before.action.Command, early, running, sent.Sub(before.at))
	}
	s.started = append(s.started, started{action: action, at: time.Now()})
	return len(s.started) - 1, nil
}
