package hcloudsim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"
)

// maxBody is more than any request of this API needs.
const maxBody = 1 << 20

// errDropped stands for a connection that ended without an answer.
var errDropped = errors.New("connection closed without an answer (injected fault)")

// ServeHTTP answers the API below /v1.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := s.exchange(r)
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's word for closing the connection
	}
	for key, values := range a.header {
		w.Header()[key] = values
	}
	body := a.body.Bytes()
	if r.Method == http.MethodHead {
		body = nil
	}
	if a.fault.TornBody && len(body) > 0 {
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		body = body[:len(body)/2]
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(body) // the client may be gone; nobody else cares
	if a.fault.TornBody {
		_ = http.NewResponseController(w).Flush() // half of it has to arrive
		panic(http.ErrAbortHandler)
	}
}

// exchange takes one request to its answer. An error means that the client
// gets none: its connection was dropped, or it has given up.
func (s *Simulator) exchange(r *http.Request) (*answer, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	fault := s.faults.Take(r)
	s.mu.Unlock()
	if err := wait(r.Context(), s.opts.Latency+fault.Delay); err != nil {
		return nil, err
	}

	a := &answer{header: http.Header{}}
	entry := s.perform(a, r, body, fault)
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(entry)
	}
	if entry.Dropped {
		return nil, errDropped
	}
	return a, nil
}

// perform is the part of the exchange that happens at one moment.
func (s *Simulator) perform(a *answer, r *http.Request, body []byte, fault Fault) Request {
	s.mu.Lock()
	defer s.unlock()
	now := time.Now()
	s.project.at(now)
	if r.Method != http.MethodGet {
		s.project.touched = true
	}
	a.fault = fault

	entry := Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Time: now, UserAgent: r.UserAgent(),
		Dropped: fault.DropBeforeApply || fault.DropAfterApply,
	}
	if !fault.DropBeforeApply {
		s.judge(a, r, body, fault, now)
		entry.Status, entry.Code = a.status, a.code
	}
	s.log.add(entry)
	return entry
}

// judge answers by the first that objects: the rate limit, authentication, an
// injected fault; else the operation itself.
func (s *Simulator) judge(a *answer, r *http.Request, body []byte, fault Fault, now time.Time) {
	allowed := s.budget.take(now)
	s.budget.describe(a.header)
	if !allowed {
		a.refuse(&Error{Status: http.StatusTooManyRequests, Code: "rate_limit_exceeded", Message: "limit of requests per hour reached"})
		return
	}
	if err := s.authenticate(r); err != nil {
		a.refuse(err)
		return
	}
	if fault.refuses() && !fault.Applied {
		fault.spoil(a)
		return
	}
	s.carryOut(a, r, body, fault)
	if fault.refuses() {
		fault.spoil(a)
	}
}

// carryOut lets the operation that a request names answer it.
func (s *Simulator) carryOut(a *answer, r *http.Request, body []byte, fault Fault) {
	below, ok := strings.CutPrefix(r.URL.Path, "/v1")
	if !ok || below != path.Clean(below) {
		a.refuse(errNoSuchPath()) // ServeMux would redirect an unclean path
		return
	}
	a.project = s.serving(fault)
	a.project.actions.next = fault.fate()
	defer func() { a.project.actions.next = fate{} }() // the request may have started none
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = below, ""
	inner.Body = io.NopCloser(bytes.NewReader(body))
	s.mux.ServeHTTP(a, inner)
}

// serving is the project that a request reaches.
func (s *Simulator) serving(fault Fault) *project {
	if !fault.OtherProject {
		return s.project
	}
	if s.stranger == nil {
		s.stranger = newProject(s.opts)
		s.stranger.lastID = strangerIDs
	}
	s.stranger.at(s.project.now)
	return s.stranger
}

// strangerIDs keeps the IDs of the other project apart from ours.
const strangerIDs = 500_000_000

func (s *Simulator) authenticate(r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch token = strings.TrimSpace(token); {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return &Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: "token is required"}
	case s.token != "" && token != s.token:
		return &Error{Status: http.StatusUnauthorized, Code: "unauthorized", Message: "the token you have provided is invalid"}
	}
	return nil
}

// wait passes d, or ends with ctx.
func wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
