// Package sleep lets time pass unless a context ends. It must know nothing else: how long, and what
// an end means, is the caller's.
package sleep

import (
	"context"
	"time"
)

// For passes d and returns nil, or returns the context's error as soon as it has ended. Without a
// time to pass it is the same as ctx.Err.
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
