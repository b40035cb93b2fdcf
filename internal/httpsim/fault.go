package httpsim

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Fault is a failure injected into matching requests.
type Fault struct {
	// Match is a pattern of [http.ServeMux], for the cloud below /v1: "POST /servers",
	// "GET /networks/{id}", "/load_balancers/{rest...}". Empty matches all.
	Match string `json:"match"`
	// Times is the number of requests to hit: 0 means 1, negative means all until ClearFaults.
	Times int `json:"times"`

	// Delay delays the request before it is processed.
	Delay time.Duration `json:"-"`

	// Status and Code refuse the request. A documented code implies its status. In the cloud, a
	// status also implies its first documented code; in Robot, a refusal without a code is an
	// HTML page.
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`

	// NotJSON refuses the request with an HTML page, as proxies do. The default Status is 502.
	NotJSON bool `json:"not_json"`
	// Applied returns the refusal after the request was carried out.
	Applied bool `json:"applied"`
	// TornBody truncates the body halfway, after complete headers.
	TornBody bool `json:"torn_body"`

	// EmptyList returns empty listings. PartialList omits the second half of each page; the
	// cloud's pagination counts it.
	EmptyList   bool `json:"empty_list"`
	PartialList bool `json:"partial_list"`
	// OtherProject serves a cloud's request from an empty project, as another project's token
	// would.
	OtherProject bool `json:"other_project"`

	// DropBeforeApply closes the connection without processing the request; DropAfterApply
	// processes it, and loses the reply.
	DropBeforeApply bool `json:"drop_before_apply"`
	DropAfterApply  bool `json:"drop_after_apply"`

	// FailAction ends the first action of a cloud's request with this error code and without
	// effect. In Robot, any code lets the change that the request starts fail: the members of a
	// vSwitch become failed, and a failover address keeps its route.
	FailAction string `json:"fail_action"`
	// LoseAction applies the first action of a cloud's request, but the API never returns it.
	LoseAction bool `json:"lose_action"`
}

// Refuses reports whether the fault replaces the response.
func (f Fault) Refuses() bool { return f.Code != "" || f.Status != 0 || f.NotJSON }

type waitingFault struct {
	Fault
	matches func(*http.Request) bool
}

// Inject adds a fault. Faults match in the order of injection; each request meets at most one. It
// returns an error if Match is invalid.
func (s *Service) Inject(f Fault) error {
	matches, err := matcher(s.config.Below, f.Match)
	if err != nil {
		return err
	}
	f.Times = cmp.Or(f.Times, 1)
	s.config.Mu.Lock()
	defer s.config.Mu.Unlock()
	s.faults = append(s.faults, &waitingFault{f, matches})
	return nil
}

// ClearFaults removes all pending faults.
func (s *Service) ClearFaults() {
	s.config.Mu.Lock()
	defer s.config.Mu.Unlock()
	s.faults = nil
}

// takeFault returns the fault for a request, or the zero value.
func (s *Service) takeFault(r *http.Request) Fault {
	i := slices.IndexFunc(s.faults, func(w *waitingFault) bool { return w.matches(r) })
	if i < 0 {
		return Fault{}
	}
	w := s.faults[i]
	if w.Times--; w.Times == 0 {
		s.faults = slices.Delete(s.faults, i, i+1)
	}
	return w.Fault
}

// matcher returns a function that reports whether a request matches a pattern of [http.ServeMux],
// with the path relative to below. It uses a ServeMux with this one pattern, so that patterns have
// exactly Go's semantics. The empty pattern matches all requests.
func matcher(below, pattern string) (matches func(*http.Request) bool, err error) {
	if pattern == "" {
		return func(*http.Request) bool { return true }, nil
	}
	invalid := func(reason any) error {
		return fmt.Errorf("fault: Match %q is no pattern of net/http.ServeMux, "+
			"such as \"POST /servers\": %v", pattern, reason)
	}
	defer func() {
		if reason := recover(); reason != nil { // ServeMux panics on an invalid pattern
			err = invalid(reason)
		}
	}()
	method, path, found := strings.Cut(pattern, " ")
	if !found {
		method, path = "", pattern
	}
	if !strings.HasPrefix(path, "/") {
		return nil, invalid("the path must start with /")
	}
	mux := http.NewServeMux()
	mux.Handle(strings.TrimSpace(method+" "+below+path), http.NotFoundHandler())
	return func(r *http.Request) bool {
		_, matched := mux.Handler(r)
		return matched != ""
	}, nil
}
