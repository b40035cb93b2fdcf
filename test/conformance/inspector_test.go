package conformance_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// endpoint is the description's own server, so that its paths are found.
const endpoint = "https://api.hetzner.cloud/v1"

// inspector stands between a client and the simulator, and compares what they
// say to each other with the description.
type inspector struct {
	t         *testing.T
	sim       *hcloudsim.Simulator
	described description
	way       string // how requests come now: hcloud-go or raw

	succeeded map[string]map[string]bool // way → operation
	used      map[deviation]bool
}

func newInspector(t *testing.T, sim *hcloudsim.Simulator) *inspector {
	return &inspector{
		t: t, sim: sim, described: loadDescription(t),
		succeeded: map[string]map[string]bool{}, used: map[deviation]bool{},
	}
}

// client is hcloud-go, with the inspector in between.
func (i *inspector) client() *hcloud.Client {
	return hcloud.NewClient(
		hcloud.WithToken("token"), hcloud.WithEndpoint(endpoint),
		hcloud.WithHTTPClient(&http.Client{Transport: i}),
		hcloud.WithRetryOpts(hcloud.RetryOpts{BackoffFunc: hcloud.ConstantBackoff(0)}),
	)
}

// RoundTrip passes a request on.
func (i *inspector) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	operation := i.operation(r)
	response, err := i.sim.Transport().RoundTrip(r)
	if err != nil {
		return nil, err
	}
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(reply))
	if response.StatusCode < 300 {
		if i.succeeded[i.way] == nil {
			i.succeeded[i.way] = map[string]bool{}
		}
		i.succeeded[i.way][operation] = true
	}
	i.compare(operation, r, body, response, reply)
	return response, nil
}

// operation is the row of the simulator's surface that a request belongs to;
// "" if it is to none.
func (i *inspector) operation(r *http.Request) string {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/v1"), "/")
	best := ""
	for _, op := range hcloudsim.Operations() {
		if op.Method == r.Method && fits(strings.Split(op.Path, "/"), path) {
			if name := op.Method + " " + op.Path; best == "" || strings.Count(name, "{") < strings.Count(best, "{") {
				best = name
			}
		}
	}
	return best
}

func fits(pattern, path []string) bool {
	return slices.EqualFunc(pattern, path, func(p, s string) bool { return p == s || strings.HasPrefix(p, "{") })
}

// compare reports differences.
func (i *inspector) compare(
	operation string, r *http.Request, body []byte, response *http.Response, reply []byte,
) {
	i.t.Helper()
	for _, f := range i.described.differences(r, body, response, reply) {
		i.report(operation, f, fmt.Sprintf("%s %s %s\n%d %s", r.Method, r.URL, body, response.StatusCode, reply))
	}
}

// differences are what the description would not have. Operations that it
// lacks have none: which those are is tested elsewhere.
func (d description) differences(
	r *http.Request, body []byte, response *http.Response, reply []byte,
) []finding {
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	route, parameters, err := d.router.FindRoute(again)
	if err != nil {
		return nil
	}
	input := &openapi3filter.RequestValidationInput{
		Request: again, PathParams: parameters, Route: route, Options: options(),
	}
	var found []finding
	if response.StatusCode < 300 { // what was refused may well be wrong
		found = findings("request", openapi3filter.ValidateRequest(r.Context(), input))
	}
	answer := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: response.StatusCode, Header: response.Header,
		Body: io.NopCloser(bytes.NewReader(reply)), Options: options(),
	}
	return append(found, findings("response", openapi3filter.ValidateResponse(r.Context(), answer))...)
}

// report fails the test, unless the table has the deviation.
func (i *inspector) report(operation string, f finding, exchange string) {
	i.t.Helper()
	for d := range deviations() {
		if d.matches(operation, i.way, f) {
			i.used[d] = true
			return
		}
	}
	i.t.Errorf("%s, by %s: %+v is not as described:\n%.3000s", operation, i.way, f, exchange)
}

// finish looks at what was covered, and at what the table has for nothing.
func (i *inspector) finish() {
	i.t.Helper()
	for _, way := range []string{byClient, byHand} {
		for _, op := range hcloudsim.Operations() {
			name := op.Method + " " + op.Path
			if !i.succeeded[way][name] && (way == byHand || !unreachable(name)) {
				i.t.Errorf("%s was not driven by %s", name, way)
			}
		}
	}
	for d, reason := range maps.All(deviations()) {
		if !i.used[d] {
			i.t.Errorf("deviation %+v (%s) does not occur any more: take it off the table", d, reason)
		}
	}
}
