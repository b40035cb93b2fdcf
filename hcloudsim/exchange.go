package hcloudsim

import (
	"bytes"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

// ServeHTTP serves the API below /v1.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpsim.Exchange(s.exchange).ServeHTTP(w, r)
}

// Transport serves requests in process; requests for any host whose path is below /v1 reach the
// simulator. A dropped connection is an error that wraps [io.ErrUnexpectedEOF], as over a socket.
func (s *Simulator) Transport() http.RoundTripper { return httpsim.Exchange(s.exchange) }

// exchange returns the response to a request. An error means that the client gets no response:
// its connection was dropped, or its context has ended.
func (s *Simulator) exchange(r *http.Request) (*httpsim.Answer, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, httpsim.MaxBody+1))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	fault := s.faults.Take(r)
	s.mu.Unlock()
	if err := sleep.For(r.Context(), s.opts.Latency+fault.Delay); err != nil {
		return nil, err
	}

	a := &answer{}
	entry := s.perform(a, r, body, fault)
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(entry)
	}
	if entry.Dropped {
		return nil, httpsim.ErrDropped
	}
	return &a.Answer, nil
}

// perform carries out the part of the exchange that is atomic under the lock.
func (s *Simulator) perform(a *answer, r *http.Request, body []byte, fault Fault) Request {
	s.mu.Lock()
	defer s.unlock()
	now := time.Now()
	s.project.at(now)
	if r.Method != http.MethodGet {
		s.project.touched = true
	}
	a.fault, a.Torn = fault, fault.TornBody

	entry := Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Time: now, UserAgent: r.UserAgent(),
		Dropped: fault.DropBeforeApply || fault.DropAfterApply,
	}
	if !fault.DropBeforeApply {
		s.judge(a, r, body, fault, now)
		entry.Status, entry.Code = a.Status, a.Code
	}
	s.log.Add(entry)
	return entry
}

// judge responds with the first error of the rate limit, authentication and an injected fault;
// otherwise it carries out the operation.
func (s *Simulator) judge(a *answer, r *http.Request, body []byte, fault Fault, now time.Time) {
	allowed := s.budget.take(now)
	s.budget.describe(a.Header())
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

func (s *Simulator) carryOut(a *answer, r *http.Request, body []byte, fault Fault) {
	below, ok := strings.CutPrefix(r.URL.Path, "/v1")
	if !ok || below != path.Clean(below) {
		a.refuse(errNoSuchPath()) // ServeMux would redirect an unclean path
		return
	}
	a.project = s.serving(fault)
	a.project.actions.next = fault.fate()
	defer func() { a.project.actions.next = fate{} }() // the request may have started no action
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = below, ""
	inner.Body = io.NopCloser(bytes.NewReader(body))
	s.mux.ServeHTTP(a, inner)
}

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

// strangerIDs separates the IDs of the other project from those of this project.
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
