package leadership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// ErrClosed is what a request gets that comes to a closed Gate.
var ErrClosed = errors.New("the process is stopping and sends nothing any more")

// Gate stands before the connections over which a process changes anything. The
// zero Gate is open.
type Gate struct {
	mu     sync.Mutex
	closed bool
	writes int // under way
	// unanswered is when the last write ended without an answer: it may arrive yet.
	unanswered time.Time
	ended      chan struct{} // not nil once closed; closed when no write is under way
}

// Wrap returns next behind the gate.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper { return gated{g, next} }

// Close refuses every request from now on and returns when all writes under way
// have been answered. The error says that one may still arrive: the context ended
// before its answer came, or another got none within the time given.
func (g *Gate) Close(ctx context.Context, within time.Duration) error {
	g.mu.Lock()
	if !g.closed {
		g.closed, g.ended = true, make(chan struct{})
		if g.writes == 0 {
			close(g.ended)
		}
	}
	ended := g.ended
	g.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the answers to the last requests: %w", context.Cause(ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if ago := time.Since(g.unanswered); ago < within {
		return fmt.Errorf("a request got no answer %s ago and may still arrive", ago.Round(time.Millisecond))
	}
	return nil
}

func (g *Gate) enter(write bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return ErrClosed
	}
	if write {
		g.writes++
	}
	return nil
}

func (g *Gate) leave(answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !answered {
		g.unanswered = time.Now()
	}
	if g.writes--; g.writes == 0 && g.closed {
		close(g.ended)
	}
}

type gated struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip sends a request if the gate is open.
func (g gated) RoundTrip(r *http.Request) (*http.Response, error) {
	write := r.Method != http.MethodGet && r.Method != http.MethodHead
	if err := g.gate.enter(write); err != nil {
		return nil, err
	}
	resp, err := g.next.RoundTrip(r)
	if write {
		// A server error leaves open whether the write goes on.
		g.gate.leave(err == nil && resp.StatusCode < http.StatusInternalServerError)
	}
	return resp, err
}

// WrappedRoundTripper returns what is behind the gate; client-go looks through it
// for the one that can close idle connections.
func (g gated) WrappedRoundTripper() http.RoundTripper { return g.next }
