package hcloudsim

import (
	"slices"
	"time"
)

// Request is one line of the request log.
type Request struct {
	Time      time.Time `json:"time"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // with /v1
	Query     string    `json:"query,omitempty"`
	Status    int       `json:"status"`         // 0 if dropped before it was looked at
	Code      string    `json:"code,omitempty"` // of the error
	UserAgent string    `json:"user_agent"`
	Dropped   bool      `json:"dropped,omitempty"` // the client got no answer
}

// requestLog remembers the latest requests.
type requestLog struct {
	most    int
	entries []Request
}

func (l *requestLog) add(r Request) {
	l.entries = append(l.entries, r)
	// Dropping a quarter at a time keeps adding cheap.
	if l.most != Unlimited && len(l.entries) > l.most+l.most/4 {
		l.entries = slices.Clone(l.latest())
	}
}

func (l *requestLog) latest() []Request {
	if l.most == Unlimited || len(l.entries) <= l.most {
		return l.entries
	}
	return l.entries[len(l.entries)-l.most:]
}

// Requests returns the request log, oldest first.
func (s *Simulator) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log.latest())
}

// ResetRequests empties the request log.
func (s *Simulator) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.entries = nil
}
