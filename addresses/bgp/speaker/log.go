package speaker

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// logHandler hands the library's log over to ours, more quietly: a router that does not answer is
// nothing that it should tell every few seconds. What matters of sessions the Speaker says itself.
type logHandler struct {
	slog.Handler
	closed *atomic.Bool
}

func newLogHandler(logger klog.Logger) *logHandler {
	return &logHandler{logr.ToSlogHandler(logger.WithName("gobgp")), new(atomic.Bool)}
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
	return !h.closed.Load() && h.Handler.Enabled(ctx, quieter(level))
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, record slog.Record) error {
	record.Level = quieter(record.Level)
	return h.Handler.Handle(ctx, record)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.Handler.WithAttrs(attrs), h.closed}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	return &logHandler{h.Handler.WithGroup(name), h.closed}
}
