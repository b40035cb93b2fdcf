package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/internal/webui"
)

// Feed is where looks at the cluster come from.
type Feed interface {
	// Latest is the newest look, and what is wrong with it.
	Latest() survey.Live
	// Changes has an entry when Latest is another than it was.
	Changes() <-chan struct{}
	// Attend tells that somebody watches, until leave is called.
	Attend() (leave func())
	// Inspect looks at what only the timeline of one object shows.
	Inspect(ctx context.Context, want survey.Want) (*survey.Snapshot, error)
}

// Server serves one page to a few browsers.
type Server struct {
	feed Feed
	key  string
	hub  *hub
}

// New makes a server with a key of its own.
func New(feed Feed) *Server {
	return &Server{feed: feed, key: rand.Text(), hub: newHub()}
}

// Listen opens a port of this machine alone; 0 takes any that is free.
func Listen(ctx context.Context, port uint16) (net.Listener, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		const remedy = "choose another with --port, or leave the flag out for any that is free"
		return nil, fmt.Errorf("port %d of 127.0.0.1: %w: %s", port, err, remedy)
	}
	return l, nil
}

// URL is the page's address at a listener, with the key.
func (s *Server) URL(l net.Listener) string {
	return "http://" + l.Addr().String() + "/" + s.key + "/"
}

// Serve serves until ctx ends, and follows the feed meanwhile.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	web := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(l) }()
	err := s.follow(ctx, ended)
	cancel() // streams end, which Shutdown waits for
	rest, stop := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer stop()
	if web.Shutdown(rest) != nil {
		err = errors.Join(err, web.Close())
	}
	return err
}

// follow tells browsers what is new.
func (s *Server) follow(ctx context.Context, ended <-chan error) error {
	for {
		s.hub.show(s.page())
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return fmt.Errorf("serving the page: %w", err)
		case <-s.feed.Changes():
		}
	}
}

// page is what is shown now.
func (s *Server) page() page {
	live := s.feed.Latest()
	v := webui.ViewOf(live.Snapshot)
	return page{message: message{View: &v, Trouble: live.Trouble}}
}

// page is a message and how it is written.
type page struct {
	message message
	text    []byte
}

// message is what goes to browsers.
type message struct {
	View    *webui.View `json:"view"`
	Trouble string      `json:"trouble,omitempty"`
}

// write writes a value as JSON. Every value here can be written.
func write(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value) // the browser went away
}
