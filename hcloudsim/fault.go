package hcloudsim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// Fault is something that goes wrong with the requests it matches.
type Fault struct {
	// Match is a pattern of [http.ServeMux], below /v1: "POST /servers",
	// "GET /networks/{id}", "/load_balancers/{rest...}". Empty matches all.
	Match string
	// Times is how many requests are hit: 0 is one, negative is all until
	// ClearFaults.
	Times int

	// Delay holds the request back before it is looked at.
	Delay time.Duration

	// Status and Code refuse the request. Either is enough for the codes that
	// the API documents.
	Status  int
	Code    string
	Message string

	// NotJSON refuses with a page of HTML, as a proxy in between does; Status,
	// or 502.
	NotJSON bool
	// Applied lets a refusal come only after the request was carried out.
	Applied bool
	// TornBody ends the body halfway, after the headers of a whole one.
	TornBody bool

	// EmptyList answers a listing as though nothing existed. PartialList
	// leaves out the second half of the page, which the pagination still counts.
	EmptyList, PartialList bool
	// OtherProject serves the request from another project, an empty one, as
	// the token of another project would.
	OtherProject bool

	// DropBeforeApply closes the connection instead of looking at the request;
	// DropAfterApply does what it asks for, and loses the reply.
	DropBeforeApply bool
	DropAfterApply  bool

	// FailAction lets the first action that the request starts end with this
	// error code, without effect.
	FailAction string
	// LoseAction lets the first action that the request starts do its work,
	// but nobody finds it any more.
	LoseAction bool
}

// refuses reports whether the fault is the answer.
func (f Fault) refuses() bool { return f.Code != "" || f.Status != 0 || f.NotJSON }

// spoil makes the fault the answer.
func (f Fault) spoil(a *answer) {
	a.body.Reset()
	a.code = ""
	if !f.NotJSON {
		a.refuse(f.refusal())
		return
	}
	a.status = cmp.Or(f.Status, http.StatusBadGateway)
	a.header.Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(&a.body, "<html><head><title>%[1]d %[2]s</title></head><body><h1>%[1]d %[2]s</h1></body></html>\n", a.status, http.StatusText(a.status))
}

// documented lists the API's codes with their status; for a status alone, its
// first code counts.
var documented = []struct {
	status int
	code   string
}{
	{400, "json_error"},
	{401, "unauthorized"},
	{403, "forbidden"},
	{403, "maintenance"},
	{403, "resource_limit_exceeded"},
	{404, "not_found"},
	{405, "method_not_allowed"},
	{409, "conflict"},
	{409, "uniqueness_error"},
	{410, "deprecated_api_endpoint"},
	{412, "resource_unavailable"},
	{422, "invalid_input"},
	{422, "service_error"},
	{422, "unsupported_error"},
	{423, "locked"},
	{423, "protected"},
	{429, "rate_limit_exceeded"},
	{500, "server_error"},
	{502, "bad_gateway"},
	{503, "unavailable"},
	{504, "timeout"},
}

// refusal completes what the fault leaves open.
func (f Fault) refusal() *Error {
	e := &Error{Status: f.Status, Code: f.Code, Message: cmp.Or(f.Message, "injected fault")}
	for _, d := range documented {
		if e.Status == 0 && d.code == e.Code {
			e.Status = d.status
		}
		if e.Code == "" && d.status == e.Status {
			e.Code = d.code
		}
	}
	e.Status = cmp.Or(e.Status, http.StatusUnprocessableEntity)
	e.Code = cmp.Or(e.Code, "unknown_error")
	return e
}

// Faults are faults of one kind that wait for their requests, in the order in which they came. The
// simulator of each API has its own kind.
type Faults[F any] struct{ waiting []*waitingFault[F] }

type waitingFault[F any] struct {
	fault F
	left  int
	match func(*http.Request) bool
}

// Add lets a fault wait for a number of requests that match: 0 is one, negative is all.
func (f *Faults[F]) Add(fault F, times int, match func(*http.Request) bool) {
	f.waiting = append(f.waiting, &waitingFault[F]{fault, cmp.Or(times, 1), match})
}

// Take returns the fault that a request meets; the zero value: none.
func (f *Faults[F]) Take(r *http.Request) F {
	for i, w := range f.waiting {
		if !w.match(r) {
			continue
		}
		if w.left--; w.left == 0 {
			f.waiting = slices.Delete(f.waiting, i, i+1)
		}
		return w.fault
	}
	var none F
	return none
}

// Inject lets requests fail from now on. Faults are tried in the order in
// which they came; each request meets one at most. The error is about Match.
func (s *Simulator) Inject(f Fault) error {
	match, err := MatchRequests("/v1", f.Match)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.Add(f, f.Times, match)
	return nil
}

// ClearFaults takes back every fault that is still waiting.
func (s *Simulator) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = Faults[Fault]{}
}

// MatchRequests returns what reports whether a request matches a pattern of
// [http.ServeMux] whose path is below another, such as "POST /servers" below
// /v1. A ServeMux of one pattern judges, so that patterns mean here what they
// mean everywhere in Go; the empty pattern matches all.
func MatchRequests(below, pattern string) (match func(*http.Request) bool, err error) {
	if pattern == "" {
		return func(*http.Request) bool { return true }, nil
	}
	no := func(reason any) error {
		return fmt.Errorf("fault: Match %q is no pattern of net/http.ServeMux, such as \"POST /servers\": %v", pattern, reason)
	}
	defer func() {
		if reason := recover(); reason != nil { // ServeMux's way to say no
			err = no(reason)
		}
	}()
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		method, path = "", pattern
	}
	if !strings.HasPrefix(path, "/") {
		return nil, no("the path must start with /")
	}
	mux := http.NewServeMux()
	mux.Handle(strings.TrimSpace(method+" "+below+path), http.NotFoundHandler())
	return func(r *http.Request) bool {
		_, matched := mux.Handler(r)
		return matched != ""
	}, nil
}

// fate is what becomes of the first action that the request starts.
func (f Fault) fate() fate {
	next := fate{lost: f.LoseAction}
	if f.FailAction != "" {
		next.fails = &schema.ActionError{Code: f.FailAction, Message: cmp.Or(f.Message, "injected fault")}
	}
	return next
}
