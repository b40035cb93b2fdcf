package leadership

import (
	"context"
	"sync"
)

// hold is a change that consists of several requests and must not be interrupted.
type hold struct {
	mu   sync.Mutex
	gate *Gate // that accepted its first write; nil before
	over bool
}

type holdKey struct{}

// Hold marks all requests under the returned context as one change: once a [Gate] has accepted
// its first write, it accepts the rest too, and Close waits until release is called. Otherwise a
// leader that stops could leave resources removed and not restored. A change that has not begun
// when the gate closes is refused. A Hold within another is a part of it.
//
// A context alone isn't sufficient: upstream's application passes controllers a context that
// never ends, and a closed gate refuses requests of any context.
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

// begins records that a gate accepted a write of the hold, and reports whether it was the first.
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

// under reports whether the gate accepted writes of the hold and the hold is not released.
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
