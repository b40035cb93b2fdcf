package leadership

import (
	"context"
	"sync"
)

// hold is one change that takes several requests, and that must not be cut in half.
type hold struct {
	mu   sync.Mutex
	gate *Gate // that its first write has passed; nil: nothing was sent yet
	over bool
}

type holdKey struct{}

// Hold marks what is done under the returned context as one change: once the first of its writes
// has passed a [Gate], the others pass it too, and Close waits until release is called. Without
// that a leader that stops would leave behind what it took away and did not put back yet. What has
// not begun when the gate closes is refused as everything else is. A Hold within another is a part
// of it.
//
// A context alone can't do that: upstream's application gives controllers one that never ends, and
// a closed gate refuses requests whatever their context is.
func Hold(ctx context.Context) (_ context.Context, release func()) {
	if holdOf(ctx) != nil {
		return ctx, func() {}
	}
	h := &hold{}
	return context.WithValue(ctx, holdKey{}, h), h.release
}

func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}

// begins takes in that a write of the hold passes a gate, and reports whether it is the first.
func (h *hold) begins(g *Gate) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || h.gate != nil {
		return false
	}
	h.gate = g
	return true
}

// under reports whether writes of the hold have passed the gate and more may come.
func (h *hold) under(g *Gate) bool {
	if h == nil {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.gate == g && !h.over
}

func (h *hold) release() {
	h.mu.Lock()
	g := h.gate
	if h.over {
		g = nil
	}
	h.over = true
	h.mu.Unlock()
	if g != nil {
		g.released()
	}
}
