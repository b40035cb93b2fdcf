package hcloudsim

import (
	"cmp"
	"net/http"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/internal/httpsim"
)

// Fault is a failure injected into matching requests.
type Fault struct {
	// Match is a pattern of [http.ServeMux], below /v1: "POST /servers", "GET /networks/{id}",
	// "/load_balancers/{rest...}". Empty matches all.
	Match string `json:"match"`
	// Times is the number of requests to hit: 0 means 1, negative means all until ClearFaults.
	Times int `json:"times"`

	// Delay delays the request before it is processed.
	Delay time.Duration `json:"-"`

	// Status and Code refuse the request. Either is sufficient for codes that the API documents.
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`

	// NotJSON refuses the request with an HTML page, as proxies do. The default Status is 502.
	NotJSON bool `json:"not_json"`
	// Applied returns the refusal after the request was carried out.
	Applied bool `json:"applied"`
	// TornBody truncates the body halfway, after complete headers.
	TornBody bool `json:"torn_body"`

	// EmptyList returns empty listings. PartialList omits the second half of each page, but
	// counts it in the pagination.
	EmptyList   bool `json:"empty_list"`
	PartialList bool `json:"partial_list"`
	// OtherProject serves the request from an empty project, as another project's token would.
	OtherProject bool `json:"other_project"`

	// DropBeforeApply closes the connection without processing the request; DropAfterApply
	// processes it, and loses the reply.
	DropBeforeApply bool `json:"drop_before_apply"`
	DropAfterApply  bool `json:"drop_after_apply"`

	// FailAction ends the first action of the request with this error code and without effect.
	FailAction string `json:"fail_action"`
	// LoseAction applies the first action of the request, but the API never returns the action.
	LoseAction bool `json:"lose_action"`
}

// refuses reports whether the fault replaces the response.
func (f Fault) refuses() bool { return f.Code != "" || f.Status != 0 || f.NotJSON }

// spoil replaces the response with the fault.
func (f Fault) spoil(a *answer) {
	if f.NotJSON {
		a.Page(cmp.Or(f.Status, http.StatusBadGateway))
		return
	}
	a.refuse(f.refusal())
}

// documented lists the API's error codes. A status without a code gets its first code.
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

// refusal fills in the fields that the fault leaves empty.
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

// Inject adds a fault. Faults match in the order of injection; each request meets at most one. It
// returns an error if Match is invalid.
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

// ClearFaults removes all pending faults.
func (s *Simulator) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = httpsim.Faults[Fault]{}
}

func (f Fault) fate() fate {
	next := fate{lost: f.LoseAction}
	if f.FailAction != "" {
		next.fails = &schema.ActionError{Code: f.FailAction, Message: cmp.Or(f.Message, "injected fault")}
	}
	return next
}
