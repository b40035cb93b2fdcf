package leadership

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// ErrClosed is the error of a request that a closed Gate refuses.
var ErrClosed = errors.New("the process is stopping and sends nothing any more")

// Gate controls the requests by which a process changes anything. The zero Gate is open.
type Gate struct {
	mu     sync.Mutex
	closed bool
	writes int            // pending
	holds  map[*hold]bool // pending, with at least one write sent
	// noResponse is when the last write ended without a response: it may still arrive.
	noResponse time.Time
	ended      chan struct{} // not nil once closed; closed when no write and no hold is pending
}

// Wrap returns a transport that sends requests through the gate to next.
func (g *Gate) Wrap(next http.RoundTripper) http.RoundTripper { return gated{g, next} }

// Close refuses new requests and returns once all pending writes have a response and all changes
// begun under [Hold] are complete. Until then it accepts reads, because such changes need them. An
// error means that a write may still arrive: ctx ended, or a write within the given time got no
// response.
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
		return fmt.Errorf("waiting for the responses to the last requests, and for changes that must not be left half done: %w", context.Cause(ctx))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if ago := time.Since(g.noResponse); ago < within {
		return fmt.Errorf("a request got no response %s ago and may still arrive",
			ago.Round(time.Millisecond))
	}
	return nil
}

func (g *Gate) enter(write bool, of *hold) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed && !g.holds[of] && (write || len(g.holds) == 0) {
		return ErrClosed
	}
	if !write {
		return nil
	}
	g.writes++
	if of != nil && of.gate.CompareAndSwap(nil, g) {
		if g.holds == nil {
			g.holds = map[*hold]bool{}
		}
		g.holds[of] = true
	}
	return nil
}

func (g *Gate) leave(responded bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !responded {
		g.noResponse = time.Now()
	}
	g.writes--
	g.end()
}

func (g *Gate) released(of *hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.holds, of)
	g.end()
}

// end unblocks Close once nothing is pending. After that no request is accepted.
func (g *Gate) end() {
	if g.closed && g.writes == 0 && len(g.holds) == 0 {
		close(g.ended)
	}
}

type gated struct {
	gate *Gate
	next http.RoundTripper
}

// RoundTrip sends a request if the gate is open or the request's Hold began before Close.
func (g gated) RoundTrip(r *http.Request) (*http.Response, error) {
	write := r.Method != http.MethodGet && r.Method != http.MethodHead
	if err := g.gate.enter(write, holdOf(r.Context())); err != nil {
		return nil, err
	}
	resp, err := g.next.RoundTrip(r)
	if write {
		// After a server error, the write may still take effect.
		g.gate.leave(err == nil && resp.StatusCode < http.StatusInternalServerError)
	}
	return resp, err
}

// WrappedRoundTripper lets client-go find the transport that can close idle connections.
func (g gated) WrappedRoundTripper() http.RoundTripper { return g.next }
