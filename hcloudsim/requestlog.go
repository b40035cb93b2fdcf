package hcloudsim

import "time"

// Request is one entry of the request log.
type Request struct {
	Time      time.Time `json:"time"`
	Method    string    `json:"method"`
	Path      string    `json:"path"` // with /v1
	Query     string    `json:"query,omitempty"`
	Status    int       `json:"status"`         // 0 if dropped before processing
	Code      string    `json:"code,omitempty"` // error code
	UserAgent string    `json:"user_agent"`
	Dropped   bool      `json:"dropped,omitempty"` // the client got no reply
}

// Requests returns the request log, oldest first.
func (s *Simulator) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Latest()
}

// ResetRequests clears the request log.
func (s *Simulator) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Reset()
}
