package robotsim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"time"
)

// maxBody is more than any request of this API needs.
const maxBody = 1 << 20

// errDropped stands for a connection that ended without an answer.
var errDropped = errors.New("connection closed without an answer")

// answer is a response in the making, so that a whole one exists before any byte
// of it leaves.
type answer struct {
	status int
	header http.Header
	body   bytes.Buffer
	code   string // of the error, for the log
}

// Request is one line of the request log.
type Request struct {
	Time    time.Time `json:"time"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	From    string    `json:"from,omitempty"` // the client's address
	User    string    `json:"user,omitempty"`
	Status  int       `json:"status"`         // 0: the client got no answer
	Code    string    `json:"code,omitempty"` // of the error
	Agent   string    `json:"user_agent,omitempty"`
	Dropped bool      `json:"dropped,omitempty"`
}

// ServeHTTP answers the web service's requests.
func (s *Simulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a, err := s.exchange(r)
	if err != nil {
		panic(http.ErrAbortHandler) // net/http's word for closing the connection
	}
	for key, values := range a.header {
		w.Header()[key] = values
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client may be gone; nobody else cares
}

// exchange takes one request to its answer. An error means that the client gets
// none: its connection was dropped, or it has given up.
func (s *Simulator) exchange(r *http.Request) (*answer, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return nil, err
	}
	// Before the lock: the cloud's simulator has a lock of its own.
	var coupled []CloudSubnet
	if s.opts.CloudSubnets != nil {
		coupled = s.opts.CloudSubnets()
	}
	s.mu.Lock()
	fault := s.faults.Take(r)
	s.mu.Unlock()
	if err := wait(r.Context(), s.opts.Latency+fault.Delay); err != nil {
		return nil, err
	}

	a := &answer{header: http.Header{}}
	c := &call{request: r, form: form(r, body), fault: fault, coupled: coupled, moment: time.Now()}
	dropped := fault.DropBeforeApply
	if !dropped {
		dropped, err = s.answer(a, c)
	}
	dropped = dropped || fault.DropAfterApply
	user, _, _ := r.BasicAuth()
	entry := Request{
		Time: c.moment, Method: r.Method, Path: r.URL.Path, From: remote(r), User: user,
		Agent: r.UserAgent(), Status: a.status, Code: a.code, Dropped: dropped,
	}
	if dropped {
		entry.Status = 0
	}
	s.record(entry)
	if dropped {
		return nil, errDropped
	}
	return a, err
}

// answer carries a request out, all but the time that it takes at one moment.
// The error means that the client has given up meanwhile.
func (s *Simulator) answer(a *answer, c *call) (dropped bool, err error) {
	s.mu.Lock()
	dropped = s.perform(a, c)
	s.mu.Unlock()
	if c.until.IsZero() {
		return dropped, nil
	}
	if err := wait(c.request.Context(), time.Until(c.until)); err != nil {
		return dropped, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.account.at(time.Now())
	c.account = s.account
	s.finish(a, c.after, c)
	return dropped, nil
}

// perform answers by the first that objects: maintenance, the login, the quota,
// an injected fault; else the operation itself.
func (s *Simulator) perform(a *answer, c *call) (dropped bool) {
	s.account.at(c.moment)
	c.account = s.account
	if s.maintenance {
		a.page(http.StatusServiceUnavailable)
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
	s.mux.ServeHTTP(&handled{answer: a, call: c}, c.request)
	return false
}

// handled is the ResponseWriter that the operations see.
type handled struct {
	*answer
	call *call
}

func (h *handled) Header() http.Header         { return h.header }
func (h *handled) WriteHeader(status int)      { h.status = status }
func (h *handled) Write(b []byte) (int, error) { return h.body.Write(b) }

// routes makes a handler of each operation.
func (s *Simulator) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, op := range operations() {
		mux.HandleFunc(op.Name(), func(w http.ResponseWriter, r *http.Request) {
			h := w.(*handled) // perform passes nothing else
			h.call.request = r
			s.carryOut(h.answer, op, h.call)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		h := w.(*handled)
		if r.Method == http.MethodGet && r.URL.Path == "/" {
			h.status = http.StatusOK // clients check their credentials so
			return
		}
		s.refuse(h.answer, errNoSuchPath())
	})
	return mux
}

func (s *Simulator) carryOut(a *answer, op operation, c *call) {
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

// finish sends what an operation answers with.
func (s *Simulator) finish(a *answer, do endpoint, c *call) {
	out, err := do(c)
	var refused *Error
	switch {
	case errors.As(err, &refused):
		s.refuse(a, refused)
	case err != nil:
		panic(fmt.Sprintf("robotsim: an operation failed with something else than an API error: %v", err))
	default:
		a.send(cmp.Or(out.status, http.StatusOK), out.body)
	}
}

func (a *answer) send(status int, body any) {
	a.status = status
	a.body.Reset()
	if body == nil {
		return
	}
	a.header.Set("Content-Type", "application/json")
	if err := json.NewEncoder(&a.body).Encode(body); err != nil {
		panic(fmt.Sprintf("robotsim: encoding a response: %v", err)) // structs of ours
	}
}

func (s *Simulator) refuse(a *answer, refused *Error) {
	a.code = refused.Code
	if refused.Code == "" {
		a.page(refused.Status)
		return
	}
	field := "max_request"
	if s.opts.MaxRequests {
		field = "max_requests"
	}
	a.send(refused.Status, refused.body(field))
}

// page answers as a web server does that stands before the service.
func (a *answer) page(status int) {
	a.status = status
	a.body.Reset()
	a.header.Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(&a.body, "<html><head><title>%[1]d %[2]s</title></head><body><h1>%[1]d %[2]s</h1></body></html>\n", status, http.StatusText(status))
}

// form reads the parameters: those of a body that says it is a form. A DELETE
// has them too.
func form(r *http.Request, body []byte) url.Values {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return url.Values{}
	}
	values, _ := url.ParseQuery(string(body)) // what can be read counts
	return values
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

func (s *Simulator) record(entry Request) {
	s.mu.Lock()
	s.log = append(s.log, entry)
	// Dropping a quarter at a time keeps adding cheap.
	if most := s.opts.RequestLogSize; most != Unlimited && len(s.log) > most+most/4 {
		s.log = slices.Clone(s.log[len(s.log)-most:])
	}
	s.mu.Unlock()
	if s.opts.OnRequest != nil {
		s.opts.OnRequest(entry)
	}
}

// Requests returns the request log, in the order of the answers.
func (s *Simulator) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// ResetRequests empties the request log.
func (s *Simulator) ResetRequests() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = nil
}
