package speaker

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// logHandler passes GoBGP's log on at lower levels: an unreachable router must not be logged every
// few seconds. The Speaker itself logs the state of sessions. GoBGP reports why a connection
// attempt failed only in its log, so the handler passes that to failed.
type logHandler struct {
	slog.Handler
	closed *atomic.Bool
	failed func(peer, reason string)
	peer   string // address of the log's peer; may be empty
}

// GoBGP's names of attributes.
const (
	peerKey  = "Key"
	errorKey = "Error"
)

func newLogHandler(logger klog.Logger, failed func(peer, reason string)) *logHandler {
	return &logHandler{Handler: logr.ToSlogHandler(logger.WithName("gobgp")), closed: new(atomic.Bool), failed: failed}
}

func (h *logHandler) logger() *slog.Logger { return slog.New(h) }

// close stops logging, because messages during a stop are of no use.
func (h *logHandler) close() { h.closed.Store(true) }

// quieter lowers a record's level: a warning becomes -v=2, information -v=4 and the rest -v=8.
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
