package robotsim

import (
	"cmp"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Fault is a failure injected into matching requests.
type Fault struct {
	// Match is a pattern of [http.ServeMux]: "GET /server", "/vswitch/{rest...}"; empty: all.
	Match string `json:"match"`
	// Times is the number of requests to hit: 0 means 1, negative means all until ClearFaults.
	Times int `json:"times"`

	// Delay delays the request before it is processed.
	Delay time.Duration `json:"-"`

	// Status and Code refuse the request after its login and quota were accepted. A documented
	// code implies its status. Without a code, the body is an HTML page.
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`

	// EmptyList returns empty listings; PartialList omits their second half.
	EmptyList   bool `json:"empty_list"`
	PartialList bool `json:"partial_list"`
	// FailChange lets the change that the request starts fail: the members of a vSwitch become
	// failed, and a failover address keeps its route.
	FailChange bool `json:"fail_change"`

	// DropBeforeApply closes the connection without processing the request; DropAfterApply
	// processes it, and loses the reply.
	DropBeforeApply bool `json:"drop_before_apply"`
	DropAfterApply  bool `json:"drop_after_apply"`
}

// refuses reports whether the fault replaces the response.
func (f Fault) refuses() bool { return f.Code != "" || f.Status != 0 }

// spoil replaces the response with the fault.
func (s *Simulator) spoil(a *httpsim.Answer, f Fault) {
	status := f.Status
	if status == 0 {
		status = statusOf(f.Code)
	}
	s.refuse(a, &Error{Status: status, Code: f.Code, Message: cmp.Or(f.Message, "injected fault")})
}

// Inject adds a fault. Faults match in the order of injection; each request meets at most one. It
// returns an error if Match is invalid.
func (s *Simulator) Inject(f Fault) error {
	match, err := httpsim.MatchRequests("", f.Match)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.Add(f, f.Times, match)
	return nil
}

// ClearFaults removes all pending faults.
func (s *Simulator) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = httpsim.Faults[Fault]{}
}
