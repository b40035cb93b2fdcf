package hetzner

import (
	"context"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

// sendAfter sends a change of a load balancer, which accepts one at a time, when the one before
// should have ended; before may be nil. An early change is refused temporarily and retried, and an
// accepted one shows that the one before has ended: both adapt the poll intervals as polls do.
func (w *waiter) sendAfter(
	ctx context.Context, before *started, do func(context.Context) (*hcloud.Action, error),
) (started, error) {
	if before != nil && before.action.Status != hcloud.ActionStatusRunning {
		before = nil
	}
	if before != nil {
		wait, _ := w.intervals.first(before.action.Command)
		if err := sleep.For(ctx, time.Until(before.at.Add(wait))); err != nil {
			return started{}, err
		}
	}
	var action *hcloud.Action
	var sent, refused time.Time
	early := 0
	err := retry(ctx, write, func(ctx context.Context) (err error) {
		sent = time.Now()
		if action, err = do(ctx); hcloud.IsError(err, hcloud.ErrorCodeConflict, hcloud.ErrorCodeLocked) {
			early, refused = early+1, sent
		}
		return err
	})
	if err == nil && before != nil {
		running := max(0, refused.Sub(before.at)) // 0 if none was refused
		w.intervals.learn(before.action.Command, early, running, sent.Sub(before.at))
	}
	return started{action, time.Now()}, err
}
