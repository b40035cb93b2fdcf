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
	holds  int // that have sent something and are not over
	// unanswered is when the last write ended without an answer: it may arrive yet.
	unanswered time.Time
	ended      chan struct{} // not nil once closed; closed when no write and no hold is under way
}

// Wrap returns next behind the gate.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper { return gated{g, next} }

// Close refuses every request from now on and returns when all writes under way
// have been answered, and what [Hold] has begun is over. Until then reads pass: what
// is held has to look, too. The error says that a write may still arrive: the context
// ended before, or another got no answer within the time given.
func (g *Gate) Close(ctx context.Context, within time.Duration) error {
	g.mu.Lock()
	if !g.closed {
		g.closed, g.ended = true, make(chan struct{})
		g.end()
	}
	ended := g.ended
	g.mu.Unlock()
	select {
	case <-ended:
	case <-ctx.Done():
		return fmt.Errorf("waiting for the answers to the last requests, and for what must not be left half done: %w", context.Cause(ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if ago := time.Since(g.unanswered); ago < within {
		return fmt.Errorf("a request got no answer %s ago and may still arrive", ago.Round(time.Millisecond))
	}
	return nil
}

func (g *Gate) enter(write bool, of *hold) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed && !of.under(g) && (write || g.holds == 0) {
		return ErrClosed
	}
	if write {
		g.writes++
		if of.begins(g) {
			g.holds++
		}
	}
	return nil
}

func (g *Gate) leave(answered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !answered {
		g.unanswered = time.Now()
	}
	g.writes--
	g.end()
}

func (g *Gate) released() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.holds--
	g.end()
}

// end tells Close that nothing is under way any more. After that nothing begins.
func (g *Gate) end() {
	if g.closed && g.writes == 0 && g.holds == 0 {
		close(g.ended)
	}
}

type gated struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip sends a request if the gate is open, or closed later than what it belongs to began.
func (g gated) RoundTrip(r *http.Request) (*http.Response, error) {
	write := r.Method != http.MethodGet && r.Method != http.MethodHead
	if err := g.gate.enter(write, holdOf(r.Context())); err != nil {
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
