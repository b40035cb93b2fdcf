package sleep_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

func TestFor(t *testing.T) {
	tests := map[string]struct {
		ends, d, want time.Duration // ends 0: before
		err           error
	}{
		"passes":            {ends: time.Hour, d: time.Minute, want: time.Minute},
		"ends":              {ends: time.Second, d: time.Minute, want: time.Second, err: context.DeadlineExceeded},
		"ended":             {d: time.Minute, err: context.DeadlineExceeded},
		"nothing to pass":   {ends: time.Second, d: 0},
		"less than that":    {ends: time.Second, d: -time.Minute},
		"nothing and ended": {d: 0, err: context.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithDeadline(t.Context(), began.Add(test.ends))
				defer cancel()
				err := sleep.For(ctx, test.d)
				if took := time.Since(began); took != test.want || !errors.Is(err, test.err) ||
					(err == nil) != (test.err == nil) {
					t.Errorf("%v after %s, want %v after %s", err, took, test.err, test.want)
				}
			})
		})
	}
}
