package server

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
)

// Feed provides Snapshots of the cluster; survey.Watcher implements it.
type Feed interface {
	// Look returns the newest Snapshot. It returns an error only if ctx is done.
	Look(ctx context.Context) (survey.Live, error)
}

// Server serves the page for one Feed.
type Server struct {
	feed Feed
	key  string

	mu   sync.Mutex
	live survey.Live
	view *webui.View // built from live
}

// New returns a server with a new random key.
func New(feed Feed) *Server { return &Server{feed: feed, key: rand.Text()} }

// Listen listens on a port of 127.0.0.1; port 0 selects a free port.
func Listen(ctx context.Context, port uint16) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		const remedy = "choose another with --port, or leave the flag out for any that is free"
		return nil, fmt.Errorf("port %d of 127.0.0.1: %w: %s", port, err, remedy)
	}
	return l, nil
}

// URL returns the page's URL, which contains the key.
func (s *Server) URL(l net.Listener) string {
	return "http://" + l.Addr().String() + "/" + s.key + "/"
}

// Serve serves the page until ctx is done.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	web := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serving the page: %w", err)
	case <-ctx.Done():
	}
	rest, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer stop()
	if web.Shutdown(rest) != nil {
		return web.Close()
	}
	return nil
}

// shown returns the current view. It builds one view per Snapshot.
func (s *Server) shown(ctx context.Context) (*webui.View, error) {
	live, err := s.feed.Look(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view == nil || live != s.live {
		s.live, s.view = live, webui.ViewOf(live)
	}
	return s.view, nil
}
