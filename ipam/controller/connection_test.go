package controller

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// A connection carries the requests of one process to the API server. It can be frozen, as SIGSTOP
// does with the process: it sends no requests and delivers no responses until it is thawed. It can
// be cut for good, as SIGKILL does: the requests that were sent may still be applied.
type connection struct {
	next http.RoundTripper

	mu   sync.Mutex
	gate chan struct{} // closed on thaw; nil: not frozen
	dead chan struct{}
	kill func()
	trap *trap
}

// A trap freezes or ends a process at one of its requests.
type trap struct {
	kind   string // of request; empty: any write
	nth    int    // counted from 1
	early  bool   // before the request is sent, else when the response arrives
	freeze bool   // the process freezes, else it dies
}

func newConnection(next http.RoundTripper) *connection {
	return &connection{next: next, dead: make(chan struct{}), kill: func() {}}
}

// RoundTrip forwards a request. A frozen process's clock does not run: a deadline that ends while
// it is frozen takes effect only after the request was sent.
func (s *connection) RoundTrip(req *http.Request) (*http.Response, error) {
	sprung := s.step(req)
	if sprung != nil && sprung.early {
		s.spring(sprung)
	}
	if !s.pass() {
		return nil, errConnection
	}
	response, err := s.next.RoundTrip(req)
	if sprung != nil && !sprung.early {
		s.spring(sprung)
	}
	if !s.pass() {
		return nil, errConnection
	}
	if response != nil {
		response.Body = &connectionBody{response.Body, s}
	}
	return response, err
}

// step returns the trap if this request springs it.
func (s *connection) step(req *http.Request) *trap {
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.trap
	if set == nil {
		return nil
	}
	kind := identify(req, nil).kind
	if set.kind != kind && (set.kind != "" || req.Method == http.MethodGet) {
		return nil
	}
	if set.nth--; set.nth > 0 {
		return nil
	}
	s.trap = nil
	return set
}

func (s *connection) spring(sprung *trap) {
	if sprung.freeze {
		s.freeze()
	} else {
		s.die()
	}
}

// pass waits while the process is frozen. It returns false if the process is dead.
func (s *connection) pass() bool {
	for {
		s.mu.Lock()
		gate := s.gate
		s.mu.Unlock()
		select {
		case <-s.dead:
			return false
		default:
		}
		if gate == nil {
			return true
		}
		select {
		case <-gate:
		case <-s.dead:
		}
	}
}

func (s *connection) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate == nil {
		s.gate = make(chan struct{})
	}
}

func (s *connection) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gate != nil {
		close(s.gate)
		s.gate = nil
	}
}

func (s *connection) die() {
	s.mu.Lock()
	kill := s.kill
	select {
	case <-s.dead:
	default:
		close(s.dead)
	}
	s.mu.Unlock()
	kill()
}

func (s *connection) alive() bool {
	select {
	case <-s.dead:
		return false
	default:
		return true
	}
}

// connectionBody holds back the stream of a watch while the process is frozen.
type connectionBody struct {
	io.ReadCloser
	connection *connection
}

func (b *connectionBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	if !b.connection.pass() {
		return 0, errConnection
	}
	return n, err
}

// isLedger reports whether a request is for the stored ledger.
func isLedger(req *http.Request) bool { return strings.HasPrefix(req.URL.Path, ledgersPath) }
