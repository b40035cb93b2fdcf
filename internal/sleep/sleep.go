// Package sleep provides a sleep that a context can end.
package sleep

import (
	"context"
	"time"
)

// For sleeps for d and returns nil, or returns the context's error as soon as it has one. If d
// is not positive, it returns ctx.Err.
func For(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
