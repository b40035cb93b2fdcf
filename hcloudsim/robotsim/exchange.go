package robotsim

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
	"github.com/underlay-ccm/underlay/internal/sleep"
)

// call is a request at its operation, with its response and the current account.
type call struct {
	*httpsim.Answer
	*account
	request *http.Request
	form    url.Values
	coupled []CloudSubnet
	moment  time.Time // arrival time of the request

	// For an operation that takes time: its end, and the endpoint that replies then.
	until time.Time
	after endpoint
}

type reply struct {
	status int // 0: 200
	body   any // nil: no body
}

// endpoint carries out one operation. Its errors are *Error.
type endpoint func(*call) (reply, error)

// on returns an endpoint for a resource that a request names.
func on[T any](find func(*call) (T, error), do func(*call, T) (reply, error)) endpoint {
	return func(c *call) (reply, error) {
		one, err := find(c)
		if err != nil {
			return reply{}, err
		}
		return do(c, one)
	}
}

// perform carries out a request, atomically under the lock except for the time that it takes.
func (s *Simulator) perform(a *httpsim.Answer, r *http.Request, body []byte) error {
	c := &call{Answer: a, form: form(r, body), moment: time.Now()}
	if s.opts.CloudSubnets != nil { // called before locking: the cloud has its own lock
		c.coupled = s.opts.CloudSubnets()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.Log(a, r, c.moment)
	if a.Fault.DropBeforeApply {
		return nil
	}
	s.account.at(c.moment)
	c.account = s.account
	s.respond(c, r)
	if c.until.IsZero() {
		return nil
	}
	s.mu.Unlock()
	err := sleep.For(r.Context(), time.Until(c.until))
	s.mu.Lock()
	if err != nil {
		return err
	}
	s.account.at(time.Now())
	c.run(c.after)
	return nil
}

// respond responds with the first error of maintenance, the login, the quota and an injected
// fault; otherwise it carries out the operation.
func (s *Simulator) respond(c *call, r *http.Request) {
	if s.maintenance {
		c.Page(http.StatusServiceUnavailable)
		return
	}
	refused, dropped := s.authenticate(r, c.moment)
	switch {
	case dropped:
		c.Dropped = true
	case refused != nil:
		c.refuse(refused)
	case r.URL.Path != path.Clean(r.URL.Path):
		c.refuse(errNoSuchPath()) // ServeMux would redirect
	default:
		s.mux.ServeHTTP(c, r)
	}
}

func (s *Simulator) routes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, op := range operations() {
		mux.HandleFunc(op.Name(), func(w http.ResponseWriter, r *http.Request) {
			c := w.(*call) // respond passes no other writer
			c.request = r
			s.carryOut(op, c)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		c := w.(*call)
		if r.Method == http.MethodGet && r.URL.Path == "/" {
			c.Status = http.StatusOK // clients check their credentials with GET /
			return
		}
		c.refuse(errNoSuchPath())
	})
	return mux
}

func (s *Simulator) carryOut(op operation, c *call) {
	q := s.quotas[op.Name()]
	if !q.take(c.moment) {
		field := "max_request"
		if s.opts.MaxRequests {
			field = "max_requests"
		}
		e := refusal(codeRateLimit, "rate limit exceeded")
		e.details = map[string]any{field: q.limit, "interval": int(interval.Seconds())}
		c.refuse(e)
		return
	}
	f := c.Fault
	if !f.Refuses() || f.Applied {
		c.run(op.do)
	}
	switch {
	case f.NotJSON:
		c.Page(cmp.Or(f.Status, http.StatusBadGateway))
	case f.Refuses():
		e := refusal(f.Code, "%s", cmp.Or(f.Message, "injected fault"))
		e.Status = cmp.Or(f.Status, e.Status)
		c.refuse(e)
	}
}

// run carries out an operation and responds with its result.
func (c *call) run(do endpoint) {
	out, err := do(c)
	var refused *Error
	switch {
	case errors.As(err, &refused):
		c.refuse(refused)
	case err != nil:
		panic(fmt.Sprintf("robotsim: an operation failed with something else than an API error: %v", err))
	default:
		c.Send(cmp.Or(out.status, http.StatusOK), out.body)
	}
}

// refuse responds with an error, or without a code with an HTML page.
func (c *call) refuse(e *Error) {
	if e.Code == "" {
		c.Page(e.Status)
		return
	}
	c.Answer.Code = e.Code
	fields := map[string]any{"status": e.Status, "code": e.Code, "message": e.Message}
	maps.Copy(fields, e.details)
	c.Send(e.Status, map[string]any{"error": fields})
}

// later delays the reply of after until the given time.
func (c *call) later(until time.Time, after endpoint) (reply, error) {
	if !until.After(c.now) {
		return after(c)
	}
	c.until, c.after = until, after
	return reply{}, nil
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

// list returns a parameter that may be repeated, in PHP's syntax: server=1,
// server[]=1&server[]=2, server[0]=1&server[1]=2.
func (c *call) list(field string) []string {
	found := slices.Concat(c.form[field], c.form[field+"[]"])
	for i := 0; ; i++ {
		values, more := c.form[field+"["+strconv.Itoa(i)+"]"]
		if !more {
			return found
		}
		found = append(found, values...)
	}
}

// half applies EmptyList and PartialList of an injected fault to a list.
func half[T any](f Fault, list []T) []T {
	switch {
	case f.EmptyList:
		return nil
	case f.PartialList:
		return list[:(len(list)+1)/2]
	default:
		return list
	}
}

// first returns the first element that a condition holds for, or the zero value.
func first[T any](list []T, is func(T) bool) (found T) {
	if i := slices.IndexFunc(list, is); i >= 0 {
		found = list[i]
	}
	return found
}

// each returns the result of a function for each element, never nil.
func each[T, J any](list []T, render func(T) J) []J {
	out := make([]J, 0, len(list))
	for _, one := range list {
		out = append(out, render(one))
	}
	return out
}

const interval = time.Hour

// quota counts the requests of an operation.
type quota struct {
	limit   int // Unlimited: no limit
	opts    Options
	counted []time.Time
}

func newQuotas(opts Options) map[string]*quota {
	quotas := map[string]*quota{}
	for _, op := range operations() {
		limit := cmp.Or(opts.Quotas[op.Name()], op.Quota)
		quotas[op.Name()] = &quota{limit: limit, opts: opts}
	}
	return quotas
}

// take counts one request and reports whether it is allowed.
func (q *quota) take(now time.Time) bool {
	if q.limit == Unlimited {
		return true
	}
	q.counted = slices.DeleteFunc(q.counted, func(t time.Time) bool {
		if q.opts.FixedHours {
			return t.Before(now.Truncate(interval))
		}
		return now.Sub(t) >= interval
	})
	allowed := len(q.counted) < q.limit
	if allowed || q.opts.RefusedCount {
		q.counted = append(q.counted, now)
	}
	return allowed
}
