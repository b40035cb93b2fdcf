package hcloudsim_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestAuthentication(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	tests := []struct {
		header, message string
	}{
		{"", "token is required"},
		{"Bearer ", "token is required"},
		{"Basic " + token, "token is required"},
		{"Bearer wrong", "the token you have provided is invalid"},
		{"Bearer " + token, ""},
		{"bearer " + token, ""},
	}
	for _, test := range tests {
		t.Run(test.header, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "http://sim.test/v1/servers", nil)
			r.Header.Set("Authorization", test.header)
			got := exchange(t, sim, r)
			if test.message == "" {
				got.want(t, http.StatusOK, "")
				return
			}
			got.want(t, http.StatusUnauthorized, "unauthorized")
			if !strings.Contains(got.body, test.message) {
				t.Errorf("answer is %s, want the message %q", got.body, test.message)
			}
		})
	}
}

func TestTokenRotation(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	sim.SetToken("next")
	_, err := client(sim).Server.All(t.Context())
	wantCode(t, err, "unauthorized")
	_, err = client(sim, hcloud.WithToken("next")).Server.All(t.Context())
	noError(t, err)
}

func TestEmptyOptionsAcceptAnyToken(t *testing.T) {
	_, err := client(hcloudsim.New(hcloudsim.Options{})).Server.All(t.Context())
	noError(t, err)
}

func TestMalformedRequests(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	n := seedNetwork(t, sim)
	addRoute := fmt.Sprintf("/v1/networks/%d/actions/add_route", n.ID)
	tests := []struct {
		method, path, body string
		status             int
		code, field        string
	}{
		{"GET", "/", "", 404, "not_found", ""},
		{"GET", "/servers", "", 404, "not_found", ""},
		{"GET", "/v1", "", 404, "not_found", ""},
		{"GET", "/v1/nothing", "", 404, "not_found", ""},
		{"GET", "/v1//servers", "", 404, "not_found", ""},
		{"GET", "/v1/servers/", "", 404, "not_found", ""},
		{"GET", "/v1/servers/../servers", "", 404, "not_found", ""},
		{"GET", "/v1/servers/1/backups", "", 404, "not_found", ""},
		{"PATCH", "/v1/servers", "", 405, "method_not_allowed", ""},
		{"DELETE", "/v1/servers", "", 405, "method_not_allowed", ""},
		{"GET", "/v1/servers/-1", "", 404, "not_found", ""},
		{"GET", "/v1/servers/0", "", 404, "not_found", ""},
		{"GET", "/v1/servers/abc", "", 404, "not_found", ""},
		{"GET", "/v1/servers/99999999999999999999", "", 404, "not_found", ""},
		{"GET", "/v1/servers/7", "", 404, "not_found", ""},
		{"GET", "/v1/networks/7/actions", "", 404, "not_found", ""},
		{"POST", "/v1/servers/7/actions/poweron", "", 404, "not_found", ""},
		{"POST", "/v1/servers", "", 400, "json_error", ""},
		{"POST", "/v1/servers", "{", 400, "json_error", ""},
		{"POST", "/v1/servers", "[]", 400, "json_error", ""},
		{"POST", "/v1/servers", "null", 400, "json_error", ""},
		{"POST", "/v1/servers", `{} {}`, 400, "json_error", ""},
		{"POST", "/v1/servers", strings.Repeat(`{"name":`, 20_000), 400, "json_error", ""},
		{"POST", "/v1/servers", `{"name": "` + strings.Repeat("x", 1<<20) + `"}`, 400, "json_error", ""},
		{"POST", "/v1/servers", `{"nmae": "a", "image": "debian-12", "server_type": "cx22"}`, 422, "invalid_input", "name"},
		{"POST", "/v1/servers", `{"name": "a", "image": "debian-12", "server_type": "cx22", "networks": [-1]}`, 404, "not_found", ""},
		{"POST", "/v1/servers", `{"name": "a", "image": -1, "server_type": "cx22"}`, 422, "invalid_input", "image"},
		{"POST", "/v1/certificates", `{"name": "a", "type": 7}`, 422, "invalid_input", "type"},
		{"POST", "/v1/certificates/-1/actions/retry", "", 404, "not_found", ""},
		{"POST", "/v1/ssh_keys", `{"name": {}}`, 422, "invalid_input", "name"},
		{"GET", "/v1/images/-5", "", 404, "not_found", ""},
		{"GET", "/v1/images?sort=size", "", 422, "invalid_input", "sort"},
		{"GET", "/v1/certificates?type=bought", "", 422, "invalid_input", "type"},
		{"GET", "/v1/servers?status=happy", "", 422, "invalid_input", "status"},
		{"GET", fmt.Sprintf("/v1/networks/%d/members?type=firewall", n.ID), "", 422, "invalid_input", "type"},
		{"GET", fmt.Sprintf("/v1/networks/%d/members?subnet=x", n.ID), "", 422, "invalid_input", "subnet"},
		{"POST", "/v1/servers", `{"name": 5}`, 422, "invalid_input", "name"},
		{"POST", "/v1/servers", `{"server_type": []}`, 422, "invalid_input", "server_type"},
		{"POST", addRoute, `{"destination": {}}`, 422, "invalid_input", "destination"},
		{"POST", "/v1/load_balancers", `{"services": [{"health_check": {"port": "x"}}]}`, 422, "invalid_input", "services.health_check.port"},
		{"GET", "/v1/servers?page=0", "", 422, "invalid_input", "page"},
		{"GET", "/v1/servers?per_page=x", "", 422, "invalid_input", "per_page"},
		{"GET", "/v1/servers?sort=color", "", 422, "invalid_input", "sort"},
		{"GET", "/v1/servers?sort=id:up", "", 422, "invalid_input", "sort"},
		{"GET", "/v1/servers?label_selector=a+in", "", 422, "invalid_input", "label_selector"},
		{"GET", "/v1/actions?id=x", "", 422, "invalid_input", "id"},
		{"GET", "/v1/networks/actions?status=late", "", 422, "invalid_input", "status"},
		{"GET", "/v1/actions", "", 410, "deprecated_api_endpoint", ""},
	}
	for _, test := range tests {
		name := test.method + " " + test.path + " " + test.body[:min(len(test.body), 20)]
		t.Run(name, func(t *testing.T) {
			got := send(t, sim, test.method, test.path, test.body)
			got.want(t, test.status, test.code)
			if got.field() != test.field {
				t.Errorf("answer is about the field %q, want %q: %s", got.field(), test.field, got.body)
			}
			if kind := got.header.Get("Content-Type"); kind != "application/json" {
				t.Errorf("content type is %q", kind)
			}
		})
	}
}

func TestPagination(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	for i := range 120 {
		seedServer(t, sim, hcloudsim.ServerSeed{Name: fmt.Sprintf("node-%03d", i)})
	}
	all, err := client(sim).Server.All(t.Context())
	noError(t, err)
	if len(all) != 120 || all[119].Name != "node-119" {
		t.Fatalf("All returns %d servers", len(all))
	}
	if requests := sim.Requests(); len(requests) != 3 {
		t.Errorf("All took %d requests, want 3 pages of 50", len(requests))
	}

	type meta struct {
		page, per            int
		previous, next, last any
		entries              int
	}
	tests := []struct {
		query string
		want  meta
	}{
		{"", meta{1, 25, nil, 2., 5., 25}},
		{"?page=2&per_page=50", meta{2, 50, 1., 3., 3., 50}},
		{"?page=3&per_page=50", meta{3, 50, 2., nil, 3., 20}},
		{"?per_page=1000", meta{1, 50, nil, 2., 3., 50}},
		{"?page=9000000000000000000", meta{9000000000000000000, 25, 5., nil, 5., 0}},
		{"?name=node-007", meta{1, 25, nil, nil, 1., 1}},
		{"?name=nobody", meta{1, 25, nil, nil, 1., 0}},
	}
	for _, test := range tests {
		t.Run(test.query, func(t *testing.T) {
			got := send(t, sim, "GET", "/v1/servers"+test.query, "")
			p := got.object["meta"].(map[string]any)["pagination"].(map[string]any)
			have := meta{
				int(p["page"].(float64)), int(p["per_page"].(float64)),
				p["previous_page"], p["next_page"], p["last_page"], len(got.object["servers"].([]any)),
			}
			if have != test.want {
				t.Errorf("pagination is %+v, want %+v", have, test.want)
			}
		})
	}
}

func TestSorting(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	for _, name := range []string{"b", "c", "a"} {
		seedServer(t, sim, hcloudsim.ServerSeed{Name: name})
	}
	for sort, want := range map[string]string{"id": "bca", "id:desc": "acb", "name": "abc", "name:asc": "abc", "name:desc": "cba"} {
		list, _, err := client(sim).Server.List(t.Context(), hcloud.ServerListOpts{Sort: []string{sort}})
		noError(t, err)
		var got string
		for _, s := range list {
			got += s.Name
		}
		if got != want {
			t.Errorf("sort=%s lists %s, want %s", sort, got, want)
		}
	}
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(hcloudsim.Options{RateLimit: 10, RateRefill: 1})
		c := client(sim)
		start := time.Now()
		for i := range 10 {
			_, response, err := c.Server.List(t.Context(), hcloud.ServerListOpts{})
			noError(t, err)
			rate := response.Meta.Ratelimit
			full := time.Unix(start.Unix()+int64(i)+1, 0)
			if rate.Limit != 10 || rate.Remaining != 9-i || !rate.Reset.Equal(full) {
				t.Errorf("request %d: rate limit is %+v, want %d remaining, full at %v", i, rate, 9-i, full)
			}
		}
		_, err := c.Server.All(t.Context())
		wantCode(t, err, "rate_limit_exceeded")

		time.Sleep(3 * time.Second)
		for range 3 {
			_, err := c.Server.All(t.Context())
			noError(t, err)
		}
		_, err = client(sim, hcloud.WithToken("wrong")).Server.All(t.Context())
		wantCode(t, err, "rate_limit_exceeded") // requests without a token count as well
	})
}

func TestRateLimitCountsUnauthorizedRequests(t *testing.T) {
	sim := newSim(hcloudsim.Options{RateLimit: 2, RateRefill: 0.001})
	stranger := client(sim, hcloud.WithToken("wrong"))
	for range 2 {
		_, err := stranger.Server.All(t.Context())
		wantCode(t, err, "unauthorized")
	}
	_, err := client(sim).Server.All(t.Context())
	wantCode(t, err, "rate_limit_exceeded")
}

func TestRequestLog(t *testing.T) {
	var told []hcloudsim.Request
	sim := newSim(hcloudsim.Options{
		RequestLogSize: 4,
		OnRequest:      func(r hcloudsim.Request) { told = append(told, r) },
	})
	c := client(sim, hcloud.WithApplication("test", "1"))
	_, _, err := c.Server.Update(t.Context(), &hcloud.Server{ID: 5}, hcloud.ServerUpdateOpts{Name: "x"})
	wantCode(t, err, "not_found")
	got := sim.Requests()
	if len(got) != 1 || got[0] != told[0] {
		t.Fatalf("log is %+v, told %+v", got, told)
	}
	r := got[0]
	if r.Method != "PUT" || r.Path != "/v1/servers/5" || r.Status != 404 || r.Code != "not_found" || !strings.HasPrefix(r.UserAgent, "test/1 hcloud-go/") {
		t.Errorf("log is %+v", r)
	}
	for range 20 {
		_, err := c.Location.All(t.Context())
		noError(t, err)
	}
	if got := sim.Requests(); len(got) != 4 || got[3] != told[20] {
		t.Errorf("log has %d requests, want the latest 4", len(got))
	}
	sim.ResetRequests()
	if got := sim.Requests(); len(got) != 0 {
		t.Errorf("log has %d requests after it was emptied", len(got))
	}
}

func TestCatalog(t *testing.T) {
	c := client(newSim(hcloudsim.Options{}))
	location, _, err := c.Location.GetByName(t.Context(), "hel1")
	noError(t, err)
	if location == nil || location.NetworkZone != hcloud.NetworkZoneEUCentral {
		t.Errorf("hel1 is %+v", location)
	}
	serverType, _, err := c.ServerType.GetByName(t.Context(), "cax11")
	noError(t, err)
	if serverType == nil || serverType.Architecture != hcloud.ArchitectureARM ||
		len(serverType.Pricings) != 3 {
		t.Errorf("cax11 is %+v", serverType)
	}
	size, _, err := c.LoadBalancerType.GetByID(t.Context(), 2)
	noError(t, err)
	if size == nil || size.Name != "lb21" || size.MaxServices != 15 || size.MaxTargets != 75 || size.MaxAssignedCertificates != 25 {
		t.Errorf("load balancer type 2 is %+v", size)
	}
	none, _, err := c.Location.GetByName(t.Context(), "moon")
	noError(t, err)
	if none != nil {
		t.Errorf("there is a location moon: %+v", none)
	}
}

// Over a real connection, net/http adds headers that a RoundTripper doesn't.
func TestOverHTTP(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	server := httptest.NewServer(sim)
	defer server.Close()
	n := seedNetwork(t, sim)
	c := client(sim, hcloud.WithEndpoint(server.URL+"/v1"), hcloud.WithHTTPClient(server.Client()))
	got, _, err := c.Network.Get(t.Context(), "cluster")
	noError(t, err)
	if got == nil || got.ID != n.ID {
		t.Errorf("network is %+v", got)
	}
	noError(t, sim.Inject(hcloudsim.Fault{DropAfterApply: true}))
	if _, _, err := c.Network.Update(t.Context(), n, hcloud.NetworkUpdateOpts{Name: "renamed"}); err == nil || hcloud.IsError(err) {
		t.Errorf("a dropped reply is %v, want an error of the connection", err)
	}
	if now, _ := sim.Network(n.ID); now.Name != "renamed" {
		t.Errorf("network is called %s, want the dropped request applied", now.Name)
	}
}
