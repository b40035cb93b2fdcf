package hetzner_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/hetzner"
)

// A bubble's clock starts at midnight UTC 2000-01-01.
const wantMetrics = `
# HELP underlay_cloud_requests_remaining [ALPHA] Number of requests that the project could still send according to the last response; other programs of the project use the same limit.
# TYPE underlay_cloud_requests_remaining gauge
underlay_cloud_requests_remaining 3595
# HELP underlay_cloud_requests_server_list_timestamp_seconds [ALPHA] Unix time at which the cached server list was requested; the time since then is the cache's age. 0 before the first.
# TYPE underlay_cloud_requests_server_list_timestamp_seconds gauge
underlay_cloud_requests_server_list_timestamp_seconds 9.4668486e+08
# HELP underlay_cloud_requests_total [ALPHA] Number of requests sent to the cloud's API by operation (such as ` + "`POST /networks/{id}/actions/add_route`" + `), priority (urgent, normal, background) and code (the HTTP status, or ` + "`unanswered`" + `).
# TYPE underlay_cloud_requests_total counter
underlay_cloud_requests_total{code="200",operation="GET /actions",priority="urgent"} 1
underlay_cloud_requests_total{code="200",operation="GET /load_balancers",priority="background"} 1
underlay_cloud_requests_total{code="200",operation="GET /networks",priority="normal"} 1
underlay_cloud_requests_total{code="200",operation="GET /servers",priority="normal"} 1
underlay_cloud_requests_total{code="201",operation="POST /networks/{id}/actions/add_route",priority="urgent"} 1
underlay_cloud_requests_total{code="unanswered",operation="GET /load_balancers",priority="background"} 1
`

// Metrics show the cost of requests: by operation, priority and code, the remaining budget, the
// delay of requests, and the age of the server list.
func TestRequestsShowAsMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, _, id := project(t, hcloudsim.Options{ActionTime: 400 * time.Millisecond})
		seed(t, sim, id, 1)
		registry := metrics.NewKubeRegistry()
		c, err := hetzner.New(hetzner.Options{
			Endpoint: "http://cloud.test/v1", Version: "test", Registry: registry, Transport: sim.Transport(),
			Token: func() (string, error) { return "right", nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // so that the list isn't as old as the clock
		table, err := c.Network(t.Context(), "cluster")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Servers(id).List(t.Context(), time.Time{}); err != nil {
			t.Fatal(err)
		}
		if err := table.Add(t.Context(), entry("10.244.1.0/24", "10.0.0.2")); err != nil {
			t.Fatal(err)
		}
		if err := sim.Inject(hcloudsim.Fault{Match: "GET /load_balancers", DropBeforeApply: true}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.LoadBalancers().List(t.Context(), "kubernetes", true); err != nil {
			t.Fatal(err)
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(wantMetrics), "underlay_cloud_requests_total",
			"underlay_cloud_requests_remaining", "underlay_cloud_requests_server_list_timestamp_seconds"); err != nil {
			t.Error(err)
		}
		waits := map[string]uint64{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				if f.GetName() == "underlay_cloud_requests_wait_seconds" {
					waits[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
				}
			}
		}
		if waits["urgent"] != 2 || waits["normal"] != 2 || waits["background"] != 2 {
			t.Errorf("waits by priority: %v, want 2 of each", waits)
		}
		for _, r := range sim.Requests() {
			if !strings.HasPrefix(r.UserAgent, "underlay-ccm/test ") {
				t.Errorf("User-Agent %q", r.UserAgent)
			}
		}
	})
}

// While the budget is low, requests that allow it get the previous server list, though not forever.
func TestTheServerListIsStretched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c, id := project(t, hcloudsim.Options{RateLimit: 3600, RateRefill: 0.02})
		seed(t, sim, id, 1)
		table, err := c.Network(t.Context(), fmt.Sprint(id))
		if err != nil {
			t.Fatal(err)
		}
		servers := c.Servers(id)
		lists := func() int {
			t.Helper()
			if _, err := servers.List(t.Context(), time.Time{}); err != nil {
				t.Fatal(err)
			}
			return requested(sim, "GET /v1/servers")
		}
		if n := lists(); n != 1 || !c.Spare() {
			t.Fatalf("%d lists, room for more: %v", n, c.Spare())
		}
		for range 3500 { // by another program
			r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://cloud.test/v1/locations", nil)
			if _, err := sim.Transport().RoundTrip(r); err != nil {
				t.Fatal(err)
			}
		}
		for minute := 0; minute < 28; minute += 4 {
			if _, err := table.List(t.Context()); err != nil { // contains the remaining budget
				t.Fatal(err)
			}
			if c.Spare() {
				t.Error("there is room for what could wait although the budget is low")
			}
			if n := lists(); n != 1 {
				t.Fatalf("the list was read again at minute %d", minute)
			}
			time.Sleep(4 * time.Minute)
		}
		time.Sleep(3 * time.Minute)
		if n := lists(); n != 2 {
			t.Errorf("%d lists after half an hour, want a new one", n)
		}
	})
}

// Operations have the API's names, whatever the endpoint's path.
func TestOperationsAreNamedBelowTheEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := metrics.NewKubeRegistry()
		c, err := hetzner.New(hetzner.Options{
			Endpoint: "http://proxy.test/hetzner/v1", Registry: registry, Token: func() (string, error) { return "right", nil },
			Transport: transport(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: http.StatusNotFound, Request: r, Body: http.NoBody, Header: http.Header{},
				}, nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Servers(0).Get(t.Context(), 4711); !hetzner.NotFound(err) {
			t.Errorf("got %v, want that nothing is there", err)
		}
		found, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(found); !strings.Contains(text, `"GET /servers/{id}"`) {
			t.Errorf("no operation GET /servers/{id} in %s", text)
		}
	})
}
