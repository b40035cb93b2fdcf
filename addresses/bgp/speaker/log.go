package speaker

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// logHandler hands the library's log over to ours, more quietly: a router that does not answer is
// nothing that it should tell every few seconds. What matters of sessions the Speaker says itself;
// why an attempt to reach a router failed is in the log alone, so it is taken from there.
type logHandler struct {
	slog.Handler
	closed *atomic.Bool
	failed func(peer, reason string)
	peer   string // whose log it is; empty: nobody's
}

// What the library calls the attributes that count here.
const (
	peerKey  = "Key"
	errorKey = "Error"
)

// newLogHandler returns one that calls failed with the address of a peer and why an attempt failed.
func newLogHandler(logger klog.Logger, failed func(peer, reason string)) *logHandler {
	return &logHandler{Handler: logr.ToSlogHandler(logger.WithName("gobgp")), closed: new(atomic.Bool), failed: failed}
}

func (h *logHandler) logger() *slog.Logger { return slog.New(h) }

// close ends all logging: what the library says while it is stopped is of no use.
func (h *logHandler) close() { h.closed.Store(true) }

// quieter is the level of a record in ours: errors stay errors, a warning is -v=2, information
// -v=4, and the rest -v=8.
func quieter(level slog.Level) slog.Level {
	switch {
	case level >= slog.LevelError:
		return level
	case level >= slog.LevelWarn:
		return -2
	case level >= slog.LevelInfo:
		return -4
	}
	return -8
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return !h.closed.Load() && (h.peer != "" || h.Handler.Enabled(ctx, quieter(level)))
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, record slog.Record) error {
	if h.peer != "" {
		record.Attrs(func(a slog.Attr) bool {
			if a.Key == errorKey {
				h.failed(h.peer, a.Value.String())
			}
			return true
		})
	}
	record.Level = quieter(record.Level)
	if !h.Handler.Enabled(ctx, record.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	for _, a := range attrs {
		if a.Key == peerKey {
			next.peer = a.Value.String()
		}
	}
	return &next
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithGroup(name)
	return &next
}
