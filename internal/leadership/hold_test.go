package leadership_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/underlay-ccm/underlay/internal/leadership"
)

// answering responds at once.
func answering() server {
	s := server{make(chan error)}
	close(s.answers)
	return s
}

// closing closes a gate in the background.
func closing(ctx context.Context, gate *leadership.Gate) <-chan error {
	closed := make(chan error, 1)
	go func() { closed <- gate.Close(ctx, within) }()
	synctest.Wait()
	return closed
}

// A change in progress is completed, with all its writes and reads, before the gate is closed;
// other requests in that time are rejected.
func TestCloseWaitsForHeldChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var gate leadership.Gate
		rt := gate.Wrap(answering())
		held, release := leadership.Hold(t.Context())
		part, partEnds := leadership.Hold(held)
		if err := <-send(part, rt, http.MethodPost); err != nil {
			t.Fatal(err)
		}
		partEnds()
		closed := closing(t.Context(), &gate)
		late, lateEnds := leadership.Hold(t.Context())
		defer lateEnds()
		for _, request := range []struct {
			what, method string
			ctx          context.Context
			passes       bool
		}{
			{"a look", http.MethodGet, t.Context(), true}, // polls serve several changes at once
			{"the second half", http.MethodPost, held, true},
			{"another write", http.MethodPost, t.Context(), false},
			{"what begins later", http.MethodPost, late, false},
			{"the third half", http.MethodPost, held, true},
		} {
			err := <-send(request.ctx, rt, request.method)
			if request.passes && err != nil || !request.passes && !errors.Is(err, leadership.ErrClosed) {
				t.Errorf("%s: %v, want it to pass: %t", request.what, err, request.passes)
			}
			select {
			case err := <-closed:
				t.Fatalf("closed (%v) before the change was over", err)
			default:
			}
		}
		release()
		release() // as a deferred one
		if err := <-closed; err != nil {
			t.Error(err)
		}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if err := <-send(held, rt, method); !errors.Is(err, leadership.ErrClosed) {
				t.Errorf("%s after the end: %v, want it refused", method, err)
			}
		}
	})
}

// A change that has sent no request, or has ended, is not waited for; one that takes too long is
// given up, and then a write may still arrive.
func TestCloseWaitsNoLongerThanItMust(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		sends, releases bool
		safe            bool
	}{
		"nothing sent": {safe: true},
		"over":         {sends: true, releases: true, safe: true},
		"takes long":   {sends: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var gate leadership.Gate
				rt := gate.Wrap(answering())
				held, release := leadership.Hold(t.Context())
				defer release()
				if tt.sends {
					<-send(held, rt, http.MethodPost)
				}
				if tt.releases {
					release()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				began := time.Now()
				err := <-closing(ctx, &gate)
				if (err == nil) != tt.safe || tt.safe && time.Since(began) > 0 {
					t.Errorf("Close returned %v after %s, want safe %t", err, time.Since(began), tt.safe)
				}
			})
		})
	}
}
