package hcloudsim

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// perform carries out the part of an exchange that is atomic under the lock.
func (s *Simulator) perform(a *httpsim.Answer, r *http.Request, body []byte) error {
	s.mu.Lock()
	defer s.unlock()
	s.project.at(time.Now())
	if r.Method != http.MethodGet {
		s.project.touched = true
	}
	if !a.Fault.DropBeforeApply {
		s.respond(a, r, body)
	}
	s.Log(a, r, s.project.now)
	return nil
}

// respond responds with the first error of the rate limit, authentication and an injected fault;
// otherwise it carries out the operation.
func (s *Simulator) respond(a *httpsim.Answer, r *http.Request, body []byte) {
	err := s.authenticate(r)
	allowed := s.budget.take(s.project.now)
	s.budget.describe(a.Header())
	switch {
	case !allowed:
		refuse(a, newError(http.StatusTooManyRequests, "rate_limit_exceeded",
			"limit of requests per hour reached"))
		return
	case err != nil:
		refuse(a, err)
		return
	case !a.Fault.Refuses() || a.Fault.Applied:
		s.carryOut(a, r, body)
	}
	switch {
	case a.Fault.NotJSON:
		a.Page(cmp.Or(a.Fault.Status, http.StatusBadGateway))
	case a.Fault.Refuses():
		refuse(a, injected(a.Fault))
	}
}

func (s *Simulator) authenticate(r *http.Request) error {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch token = strings.TrimSpace(token); {
	case !strings.EqualFold(scheme, "Bearer") || token == "":
		return newError(http.StatusUnauthorized, "unauthorized", "token is required")
	case s.token != "" && token != s.token:
		return newError(http.StatusUnauthorized, "unauthorized",
			"the token you have provided is invalid")
	}
	return nil
}

func (s *Simulator) carryOut(a *httpsim.Answer, r *http.Request, body []byte) {
	below, ok := strings.CutPrefix(r.URL.Path, "/v1")
	if !ok || below != path.Clean(below) {
		refuse(a, errNoSuchPath()) // ServeMux would redirect an unclean path
		return
	}
	p := s.serving(a.Fault)
	p.actions.next = fateOf(a.Fault)
	defer func() { p.actions.next = fate{} }() // the request may have started no action
	inner := r.Clone(r.Context())
	inner.URL.Path, inner.URL.RawPath = below, ""
	inner.Body = io.NopCloser(bytes.NewReader(body))
	s.mux.ServeHTTP(&call{Answer: a, project: p}, inner)
}

// otherProjectIDs separates the IDs of the other project from those of this project.
const otherProjectIDs = 500_000_000

func (s *Simulator) serving(fault Fault) *project {
	if !fault.OtherProject {
		return s.project
	}
	if s.otherProject == nil {
		s.otherProject = newProject(s.opts)
		s.otherProject.lastID = otherProjectIDs
	}
	s.otherProject.at(s.project.now)
	return s.otherProject
}

// refuse responds with an error of the API.
func refuse(a *httpsim.Answer, err error) {
	var refusal *Error
	if !errors.As(err, &refusal) {
		panic(fmt.Sprintf("hcloudsim: an endpoint failed with something else than an API error: %v", err))
	}
	a.Code = refusal.Code
	a.Send(refusal.Status, map[string]*Error{"error": refusal})
}

// documented are the API's error codes. A status without a code gets its first code.
func documented() []Error {
	return []Error{
		{Status: 400, Code: "json_error"},
		{Status: 401, Code: "unauthorized"},
		{Status: 403, Code: "forbidden"},
		{Status: 403, Code: "maintenance"},
		{Status: 403, Code: "resource_limit_exceeded"},
		{Status: 404, Code: "not_found"},
		{Status: 405, Code: "method_not_allowed"},
		{Status: 409, Code: "conflict"},
		{Status: 409, Code: "uniqueness_error"},
		{Status: 410, Code: "deprecated_api_endpoint"},
		{Status: 412, Code: "resource_unavailable"},
		{Status: 422, Code: "invalid_input"},
		{Status: 422, Code: "service_error"},
		{Status: 422, Code: "unsupported_error"},
		{Status: 423, Code: "locked"},
		{Status: 423, Code: "protected"},
		{Status: 429, Code: "rate_limit_exceeded"},
		{Status: 500, Code: "server_error"},
		{Status: 502, Code: "bad_gateway"},
		{Status: 503, Code: "unavailable"},
		{Status: 504, Code: "timeout"},
	}
}

// injected returns the refusal of a fault, with the fields that the fault leaves empty.
func injected(f Fault) *Error {
	e := &Error{Status: f.Status, Code: f.Code, Message: cmp.Or(f.Message, "injected fault")}
	for _, d := range documented() {
		if e.Status == 0 && d.Code == e.Code {
			e.Status = d.Status
		}
		if e.Code == "" && d.Status == e.Status {
			e.Code = d.Code
		}
	}
	e.Status = cmp.Or(e.Status, http.StatusUnprocessableEntity)
	e.Code = cmp.Or(e.Code, "unknown_error")
	return e
}

// fate is the outcome of the next action, as set by an injected fault.
type fate struct {
	fails *schema.ActionError // the error that it ends with; nil: it succeeds
	lost  bool                // it is missing from the action log
}

func fateOf(f Fault) fate {
	next := fate{lost: f.LoseAction}
	if f.FailAction != "" {
		message := cmp.Or(f.Message, "injected fault")
		next.fails = &schema.ActionError{Code: f.FailAction, Message: message}
	}
	return next
}

// budget is the project's rate limit, a token bucket with constant refill.
type budget struct {
	limit  int // Unlimited: no limit
	refill float64
	left   float64
	since  time.Time
}

// take spends one request and reports whether it is allowed.
func (b *budget) take(now time.Time) bool {
	if b.limit == Unlimited {
		return true
	}
	b.left = min(float64(b.limit), b.left+now.Sub(b.since).Seconds()*b.refill)
	b.since = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// describe sets the rate limit headers. Reset is the time when the budget is full again, not when
// the next request is possible.
func (b *budget) describe(h http.Header) {
	if b.limit == Unlimited {
		return
	}
	missing := float64(b.limit) - b.left
	full := b.since.Add(time.Duration(math.Ceil(missing/b.refill)) * time.Second)
	h.Set("RateLimit-Limit", strconv.Itoa(b.limit))
	h.Set("RateLimit-Remaining", strconv.Itoa(int(b.left)))
	h.Set("RateLimit-Reset", strconv.FormatInt(full.Unix(), 10))
}
