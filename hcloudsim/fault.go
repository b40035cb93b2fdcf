package hcloudsim

import (
	"cmp"
	"net/http"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Fault is something that goes wrong with the requests it matches.
type Fault struct {
	// Match is a pattern of [http.ServeMux], below /v1: "POST /servers",
	// "GET /networks/{id}", "/load_balancers/{rest...}". Empty matches all.
	Match string `json:"match"`
	// Times is how many requests are hit: 0 is one, negative is all until
	// ClearFaults.
	Times int `json:"times"`

	// Delay holds the request back before it is looked at.
	Delay time.Duration `json:"-"`

	// Status and Code refuse the request. Either is enough for the codes that
	// the API documents.
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`

	// NotJSON refuses with a page of HTML, as a proxy in between does; Status,
	// or 502.
	NotJSON bool `json:"not_json"`
	// Applied lets a refusal come only after the request was carried out.
	Applied bool `json:"applied"`
	// TornBody ends the body halfway, after the headers of a whole one.
	TornBody bool `json:"torn_body"`

	// EmptyList answers a listing as though nothing existed. PartialList
	// leaves out the second half of the page, which the pagination still counts.
	EmptyList   bool `json:"empty_list"`
	PartialList bool `json:"partial_list"`
	// OtherProject serves the request from another project, an empty one, as
	// the token of another project would.
	OtherProject bool `json:"other_project"`

	// DropBeforeApply closes the connection instead of looking at the request;
	// DropAfterApply does what it asks for, and loses the reply.
	DropBeforeApply bool `json:"drop_before_apply"`
	DropAfterApply  bool `json:"drop_after_apply"`

	// FailAction lets the first action that the request starts end with this
	// error code, without effect.
	FailAction string `json:"fail_action"`
	// LoseAction lets the first action that the request starts do its work,
	// but nobody finds it any more.
	LoseAction bool `json:"lose_action"`
}

// refuses reports whether the fault is the answer.
func (f Fault) refuses() bool { return f.Code != "" || f.Status != 0 || f.NotJSON }

// spoil makes the fault the answer.
func (f Fault) spoil(a *answer) {
	if f.NotJSON {
		a.Page(cmp.Or(f.Status, http.StatusBadGateway))
		return
	}
	a.refuse(f.refusal())
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

// Inject lets requests fail from now on. Faults are tried in the order in
// which they came; each request meets one at most. The error is about Match.
func (s *Simulator) Inject(f Fault) error {
	match, err := httpsim.MatchRequests("/v1", f.Match)
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

// fate is what becomes of the first action that the request starts.
func (f Fault) fate() fate {
	next := fate{lost: f.LoseAction}
	if f.FailAction != "" {
		next.fails = &schema.ActionError{Code: f.FailAction, Message: cmp.Or(f.Message, "injected fault")}
	}
	return next
}
