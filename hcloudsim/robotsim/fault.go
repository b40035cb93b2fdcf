package robotsim

import (
	"cmp"
	"time"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Fault is something that goes wrong with the requests it matches.
type Fault struct {
	// Match is a pattern of [http.ServeMux]: "GET /server", "/vswitch/{rest...}".
	// Empty matches all.
	Match string `json:"match"`
	// Times is how many requests are hit: 0 is one, negative is all until
	// ClearFaults.
	Times int `json:"times"`

	// Delay holds the request back before it is looked at.
	Delay time.Duration `json:"-"`

	// Status and Code refuse the request, once its login and quota were
	// accepted. A documented code implies its status. Without a code, the answer
	// is a page of HTML, as a web server in between gives.
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`

	// EmptyList answers a listing as though nothing existed; PartialList leaves
	// out its second half.
	EmptyList   bool `json:"empty_list"`
	PartialList bool `json:"partial_list"`
	// FailChange lets the change that the request starts fail: the members of a
	// vSwitch end as failed, and a failover address stays where it is.
	FailChange bool `json:"fail_change"`

	// DropBeforeApply closes the connection instead of looking at the request;
	// DropAfterApply does what it asks for, and loses the reply.
	DropBeforeApply bool `json:"drop_before_apply"`
	DropAfterApply  bool `json:"drop_after_apply"`
}

// refuses reports whether the fault is the answer.
func (f Fault) refuses() bool { return f.Code != "" || f.Status != 0 }

// spoil makes the fault the answer.
func (s *Simulator) spoil(a *httpsim.Answer, f Fault) {
	status := f.Status
	if status == 0 {
		status = statusOf(f.Code)
	}
	s.refuse(a, &Error{Status: status, Code: f.Code, Message: cmp.Or(f.Message, "injected fault")})
}

// Inject lets requests fail from now on. Faults are tried in the order in which
// they came; each request meets one at most. The error is about Match.
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

// ClearFaults takes back every fault that is still waiting.
func (s *Simulator) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = httpsim.Faults[Fault]{}
}
