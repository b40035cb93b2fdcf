package main

import (
	"context"
	"fmt"
	"time"
)

// late is the cause of the end of a context whose time limit was over.
type late struct{ limit time.Duration }

func (l late) Error() string { return fmt.Sprintf("the time limit of %s was over", l.limit) }

// Unwrap makes it the end of a deadline, whichever clock it was by.
func (late) Unwrap() error { return context.DeadlineExceeded }

// withLimit ends a context when limit is over, by the clock of contexts or by the one on the wall.
// The clock of contexts stands still while the machine sleeps, but what was made costs meanwhile,
// so a run that wakes up too late is over at once. now is the wall's clock.
func withLimit(
	ctx context.Context, limit time.Duration, now func() time.Time,
) (context.Context, context.CancelFunc) {
	cause := late{limit}
	ctx, stop := context.WithTimeoutCause(ctx, limit, cause)
	ctx, cancel := context.WithCancelCause(ctx)
	end := now().Round(0).Add(limit) // without a monotonic reading
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if !now().Round(0).Before(end) {
					cancel(cause)
					return
				}
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled); stop() }
}
