package robotsim

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

// Request is one entry of the request log.
type Request struct {
	Time    time.Time `json:"time"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	From    string    `json:"from,omitempty"` // client address
	User    string    `json:"user,omitempty"`
	Status  int       `json:"status"`         // 0: no reply
	Code    string    `json:"code,omitempty"` // error code
	Agent   string    `json:"user_agent,omitempty"`
	Dropped bool      `json:"dropped,omitempty"`
}

// ServeHTTP serves the web service.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	httpsim.Exchange(s.exchange).ServeHTTP(w, r)
}

// Transport serves requests to any host in process. A dropped connection is an error that wraps
// [io.ErrUnexpectedEOF], as over a socket.
func (s *Simulator) Transport() http.RoundTripper { return httpsim.Exchange(s.exchange) }

// exchange returns the response to a request. An error means that the client gets no response:
// its connection was dropped, or its context has ended.
func (s *Simulator) exchange(r *http.Request) (*httpsim.Answer, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, httpsim.MaxBody))
	if err != nil {
		return nil, err
	}
	// Call it before locking: the cloud's simulator has its own lock.
	var coupled []CloudSubnet
	if s.opts.CloudSubnets != nil {
		coupled = s.opts.CloudSubnets()
	}
	s.mu.Lock()
	fault := s.faults.Take(r)
	s.mu.Unlock()
	if err := sleep.For(r.Context(), s.opts.Latency+fault.Delay); err != nil {
		return nil, err
	}

	a := &httpsim.Answer{}
	c := &call{request: r, form: form(r, body), fault: fault, coupled: coupled, moment: time.Now()}
	dropped := fault.DropBeforeApply
	if !dropped {
		dropped, err = s.answer(a, c)
	}
	dropped = dropped || fault.DropAfterApply
	user, _, _ := r.BasicAuth()
	entry := Request{
		Time: c.moment, Method: r.Method, Path: r.URL.Path, From: remote(r), User: user,
		Agent: r.UserAgent(), Status: a.Status, Code: a.Code, Dropped: dropped,
	}
	if dropped {
		entry.Status = 0
	}
	s.record(entry)
	if dropped {
		return nil, httpsim.ErrDropped
	}
	return a, err
}

// answer carries out a request, atomically under the lock except for the time that it takes. An
// error means that the client's context has ended.
func (s *Simulator) answer(a *httpsim.Answer, c *call) (dropped bool, err error) {
	s.mu.Lock()
	dropped = s.perform(a, c)
	s.mu.Unlock()
	if c.until.IsZero() {
		return dropped, nil
	}
	if err := sleep.For(c.request.Context(), time.Until(c.until)); err != nil {
		return dropped, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account.at(time.Now())
	c.account = s.account
	s.finish(a, c.after, c)
	return dropped, nil
}

// perform responds with the first error of maintenance, the login, the quota and an injected
// fault; otherwise it carries out the operation.
func (s *Simulator) perform(a *httpsim.Answer, c *call) (dropped bool) {
	s.account.at(c.moment)
	c.account = s.account
	if s.maintenance {
		a.Page(http.StatusServiceUnavailable)
		return false
	}
	refused, dropped := s.authenticate(c.request, c.moment)
	if dropped || refused != nil {
		if refused != nil {
			s.refuse(a, refused)
		}
		return dropped
	}
	if c.request.URL.Path != path.Clean(c.request.URL.Path) {
		s.refuse(a, errNoSuchPath()) // ServeMux would redirect
		return false
	}
	s.mux.ServeHTTP(&handled{a, c}, c.request)
	return false
}

type handled struct {
	*httpsim.Answer
	call *call
}

func (s *Simulator) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, op := range operations() {
		mux.HandleFunc(op.Name(), func(w http.ResponseWriter, r *http.Request) {
			h := w.(*handled) // perform passes no other writer
			h.call.request = r
			s.carryOut(h.Answer, op, h.call)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h := w.(*handled)
		if r.Method == http.MethodGet && r.URL.Path == "/" {
			h.Status = http.StatusOK // clients check their credentials with GET /
			return
		}
		s.refuse(h.Answer, errNoSuchPath())
	})
	return mux
}

func (s *Simulator) carryOut(a *httpsim.Answer, op operation, c *call) {
	q := s.quotas[op.Name()]
	if !q.take(c.moment) {
		refused := refusal(codeRateLimit, "rate limit exceeded")
		refused.limit = q.limit
		s.refuse(a, refused)
		return
	}
	if c.fault.refuses() {
		s.spoil(a, c.fault)
		return
	}
	s.finish(a, op.do, c)
}

func (s *Simulator) finish(a *httpsim.Answer, do endpoint, c *call) {
	out, err := do(c)
	var refused *Error
	switch {
	case errors.As(err, &refused):
		s.refuse(a, refused)
	case err != nil:
		panic(fmt.Sprintf("robotsim: an operation failed with something else than an API error: %v", err))
	default:
		a.Send(cmp.Or(out.status, http.StatusOK), out.body)
	}
}

func (s *Simulator) refuse(a *httpsim.Answer, refused *Error) {
	if refused.Code == "" {
		a.Page(refused.Status)
		return
	}
	a.Code = refused.Code
	field := "max_request"
	if s.opts.MaxRequests {
		field = "max_requests"
	}
	a.Send(refused.Status, refused.body(field))
}

// form returns the parameters of a form-encoded body, also of a DELETE request.
func form(r *http.Request, body []byte) url.Values {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return url.Values{}
	}
	values, _ := url.ParseQuery(string(body)) // parameters before an error remain valid
	return values
}

func (s *Simulator) record(entry Request) {
	s.mu.Lock()
	s.log.Add(entry)
	s.mu.Unlock()
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(entry)
	}
}

// Requests returns the request log, in the order of the replies.
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
