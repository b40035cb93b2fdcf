package leadership

import (
	"context"
	"sync/atomic"
)

// hold is a change that consists of several requests and must not be interrupted.
type hold struct {
	gate atomic.Pointer[Gate] // that accepted its first write, or any once it is released
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
	return context.WithValue(ctx, holdKey{}, h), func() {
		if g := h.gate.Swap(&Gate{}); g != nil {
			g.released(h)
		}
	}
}

func holdOf(ctx context.Context) *hold {
	h, _ := ctx.Value(holdKey{}).(*hold)
	return h
}
