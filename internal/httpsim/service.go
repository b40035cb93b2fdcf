package httpsim

import (
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/underlay-ccm/underlay/internal/sleep"
)

// MaxBody is larger than any valid request of the simulated services, in bytes. A longer body is
// truncated to one more byte.
const MaxBody = 1 << 20

// Request is one entry of the request log.
type Request struct {
	Time      time.Time `json:"time"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	Query     string    `json:"query,omitempty"`
	From      string    `json:"from,omitempty"` // client address
	User      string    `json:"user,omitempty"` // of basic authentication
	Status    int       `json:"status"`         // 0 if dropped before processing
	Code      string    `json:"code,omitempty"` // error code
	UserAgent string    `json:"user_agent"`
	Dropped   bool      `json:"dropped,omitempty"` // the client got no reply
}

// Config configures a Service.
type Config struct {
	Mu        *sync.Mutex // guards the simulator, and the service's faults and log
	Below     string      // path of the service, such as /v1
	Latency   time.Duration
	LogSize   int // number of requests kept; negative: all
	OnRequest func(Request)
	// Perform processes a request, unless its fault drops it before, and calls Log while it holds
	// Mu. It returns an error if the client's context has ended.
	Perform func(a *Answer, r *http.Request, body []byte) error
}

// Service is what all simulators have in common. Its methods are safe for concurrent use.
type Service struct {
	config Config
	faults []*waitingFault
	log    []Request
}

// NewService returns a Service without faults and with an empty log.
func NewService(c Config) Service { return Service{config: c} }

// ServeHTTP serves requests over a socket.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := s.exchange(r)
	if err != nil {
		panic(http.ErrAbortHandler) // closes the connection
	}
	a.write(w, r)
}

// Transport serves requests to any host in process. A dropped connection is an error that wraps
// [io.ErrUnexpectedEOF], as over a socket.
func (s *Service) Transport() http.RoundTripper { return transport(s.exchange) }

// exchange returns the response to a request. An error means that the client gets no response: it
// is errDropped, or the client's context has ended.
func (s *Service) exchange(r *http.Request) (*Answer, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return nil, err
	}
	s.config.Mu.Lock()
	fault := s.takeFault(r)
	s.config.Mu.Unlock()
	if err := sleep.For(r.Context(), s.config.Latency+fault.Delay); err != nil {
		return nil, err
	}
	a := &Answer{Fault: fault, Dropped: fault.DropBeforeApply || fault.DropAfterApply}
	err = s.config.Perform(a, r, body)
	if s.config.OnRequest != nil {
		s.config.OnRequest(a.entry)
	}
	if a.Dropped {
		return nil, errDropped
	}
	return a, err
}

// Log adds a request that was received at a time to the log.
func (s *Service) Log(a *Answer, r *http.Request, received time.Time) {
	user, _, _ := r.BasicAuth()
	a.entry = Request{
		Time: received, Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, From: Remote(r),
		User: user, Status: a.Status, Code: a.Code, UserAgent: r.UserAgent(), Dropped: a.Dropped,
	}
	s.log = append(s.log, a.entry)
	// Trimming a quarter at a time keeps appends cheap.
	if most := s.config.LogSize; most >= 0 && len(s.log) > most+most/4 {
		s.log = slices.Clone(s.latest())
	}
}

func (s *Service) latest() []Request {
	if most := s.config.LogSize; most >= 0 && len(s.log) > most {
		return s.log[len(s.log)-most:]
	}
	return s.log
}

// Remote returns the client's address; in process there is only one.
func Remote(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// Requests returns the request log, oldest first.
func (s *Service) Requests() []Request {
	s.config.Mu.Lock()
	defer s.config.Mu.Unlock()
	return append([]Request{}, s.latest()...)
}

// ResetRequests clears the request log.
func (s *Service) ResetRequests() {
	s.config.Mu.Lock()
	defer s.config.Mu.Unlock()
	s.log = nil
}
