package schedule

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/fakeapi"
)

var errConnection = errors.New("connection lost")

// fate is the treatment of a request.
type fate struct {
	// hold is how long the request is in flight. One that is canceled in that time is not applied,
	// unless its sender can't cancel it: a frozen process closes no connection.
	hold time.Duration
	// refuse is the status of a response without effect; 0: none.
	refuse int
	// lose breaks the connection after the request was applied; late breaks it at once, and the
	// request is applied that much later.
	lose bool
	late time.Duration
}

// lateness is the longest time that a request is in flight after its sender gave up.
const lateness = 5 * time.Second

// process is one manager's process. It can be frozen, as by SIGSTOP: it neither sends requests nor
// receives responses until it is thawed. It can be killed, as by SIGKILL: requests that it sent may
// still be applied.
type process struct {
	mu     sync.Mutex
	gate   chan struct{} // closed on thaw; nil: not frozen
	dead   chan struct{}
	cancel context.CancelFunc
}

func newProcess(cancel context.CancelFunc) *process {
	return &process{dead: make(chan struct{}), cancel: cancel}
}

func (p *process) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

func (p *process) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

func (p *process) die() {
	p.mu.Lock()
	if p.alive() {
		close(p.dead)
	}
	p.mu.Unlock()
	p.cancel()
}

// alive reports whether the process was not killed.
func (p *process) alive() bool {
	select {
	case <-p.dead:
		return false
	default:
		return true
	}
}

func (p *process) frozen() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate != nil
}

// pass waits while the process is frozen, and reports whether it is alive.
func (p *process) pass() bool {
	for {
		p.mu.Lock()
		gate := p.gate
		p.mu.Unlock()
		switch {
		case !p.alive():
			return false
		case gate == nil:
			return true
		}
		select {
		case <-gate:
		case <-p.dead:
		}
	}
}

// line is a process's connection to a server.
type line struct {
	*process
	next  http.RoundTripper
	draw  func(*http.Request) fate
	heard func(sent sending, body []byte, answer *http.Response)
}

// sending is a request that reached the server.
type sending struct {
	path string
	at   time.Time // when it was sent
	// held means that its sender could not cancel it when it arrived: it was frozen or dead.
	held bool
}

// RoundTrip implements http.RoundTripper.
func (l *line) RoundTrip(req *http.Request) (*http.Response, error) {
	if !l.pass() {
		return nil, errConnection
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if isWatch(req) {
		answer, err := l.next.RoundTrip(req)
		if err == nil {
			answer.Body = &streamed{answer.Body, l.process}
		}
		return answer, err
	}
	body, err := fakeapi.ReadBody(req)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	what := l.draw(req)
	if err := l.travel(req, body, sent, what); err != nil {
		return nil, err
	}
	switch {
	case what.refuse > 0:
		return refusal(what.refuse), nil
	case what.late > 0:
		l.later(req, body, sent, what.late)
		return nil, errConnection
	}
	answer, err := l.deliver(req.Context(), req, body, sent)
	if what.lose || !l.pass() {
		return nil, errConnection
	}
	return answer, err
}

// travel delays a request as if it were in flight.
func (l *line) travel(req *http.Request, body []byte, sent time.Time, what fate) error {
	if fakeapi.Elapse(req.Context().Done(), what.hold) {
		return nil
	}
	left := what.hold - time.Since(sent)
	switch {
	case l.frozen():
		l.later(req, body, sent, left)
	case !l.alive():
		l.later(req, body, sent, min(left, lateness))
	}
	return req.Context().Err()
}

// later delivers a request after its sender has given up.
func (l *line) later(req *http.Request, body []byte, sent time.Time, after time.Duration) {
	time.AfterFunc(after, func() {
		answer, err := l.deliver(context.Background(), req, body, sent)
		if err == nil {
			answer.Body.Close()
		}
	})
}

func (l *line) deliver(
	ctx context.Context, req *http.Request, body []byte, sent time.Time,
) (*http.Response, error) {
	req = req.Clone(ctx)
	req.Body = io.NopCloser(bytes.NewReader(body))
	answer, err := l.next.RoundTrip(req)
	if err == nil && l.heard != nil {
		l.heard(sending{req.URL.Path, sent, l.frozen() || !l.alive()}, body, answer)
	}
	return answer, err
}

// refusal is the response of a proxy in front of an unresponsive server: no JSON.
func refusal(code int) *http.Response {
	answer := fakeapi.Response(code, io.NopCloser(bytes.NewReader([]byte("not available"))))
	answer.Header.Set("Content-Type", "text/plain")
	return answer
}

// streamed withholds the data of a watch while its process is frozen.
type streamed struct {
	io.ReadCloser
	process *process
}

func (s *streamed) Read(buffer []byte) (int, error) {
	n, err := s.ReadCloser.Read(buffer)
	if !s.process.pass() {
		return 0, errConnection
	}
	return n, err
}
