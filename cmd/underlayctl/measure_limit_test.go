package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// The time limit is over by either clock: that of contexts stands still while a machine sleeps.
func TestWithLimit(t *testing.T) {
	for name, test := range map[string]struct {
		slept time.Duration // after ten minutes
		ends  time.Duration // by the clock of contexts
	}{
		"awake":                    {ends: 30 * time.Minute},
		"a nap":                    {slept: 5 * time.Minute, ends: 25 * time.Minute},
		"a night":                  {slept: 8 * time.Hour, ends: 10 * time.Minute},
		"a clock that is set back": {slept: -8 * time.Hour, ends: 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				wall := func() time.Time {
					now := time.Now()
					if now.Sub(began) >= 10*time.Minute {
						now = now.Add(test.slept)
					}
					return now
				}
				ctx, cancel := withLimit(t.Context(), 30*time.Minute, wall)
				defer cancel()
				<-ctx.Done()
				if took := time.Since(began); took < test.ends || took > test.ends+time.Second {
					t.Errorf("it ended after %s, want %s", took, test.ends)
				}
				if cause := context.Cause(ctx); !errors.Is(cause, context.DeadlineExceeded) || cause.Error() != "the time limit of 30m0s was over" {
					t.Errorf("the cause is %v", cause)
				}
			})
		})
	}
}

// An interruption isn't the end of the time.
func TestWithLimitInterrupted(t *testing.T) {
	outer, interrupt := context.WithCancel(t.Context())
	ctx, cancel := withLimit(outer, time.Hour, time.Now)
	defer cancel()
	interrupt()
	<-ctx.Done()
	if cause := context.Cause(ctx); errors.Is(cause, context.DeadlineExceeded) {
		t.Errorf("the cause is %v", cause)
	}
}
