package hcloudsim

import "time"

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

// Requests returns the request log, oldest first.
func (s *Simulator) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Latest()
}

// ResetRequests empties the request log.
func (s *Simulator) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Reset()
}
