package hcloudsim_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestFaultsRefuse(t *testing.T) {
	tests := []struct {
		fault  hcloudsim.Fault
		status int
		code   string
	}{
		{hcloudsim.Fault{Code: "locked"}, 423, "locked"},
		{hcloudsim.Fault{Code: "resource_unavailable"}, 412, "resource_unavailable"},
		{hcloudsim.Fault{Status: 503}, 503, "unavailable"},
		{hcloudsim.Fault{Status: 429}, 429, "rate_limit_exceeded"},
		{hcloudsim.Fault{Status: 500, Code: "conflict"}, 500, "conflict"},
		{hcloudsim.Fault{Status: 418}, 418, "unknown_error"},
		{hcloudsim.Fault{Code: "server_already_attached"}, 422, "server_already_attached"},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.status, test.code), func(t *testing.T) {
			sim := newSim(hcloudsim.Options{})
			noError(t, sim.Inject(test.fault))
			send(t, sim, "GET", "/v1/servers", "").want(t, test.status, test.code)
			send(t, sim, "GET", "/v1/servers", "").want(t, http.StatusOK, "")
			if log := sim.Requests(); log[0].Status != test.status || log[0].Code != test.code {
				t.Errorf("log has %+v", log[0])
			}
		})
	}
}

func TestFaultsMatch(t *testing.T) {
	tests := []struct {
		match, method, path string
		hit                 bool
	}{
		{"", "GET", "/v1/servers", true},
		{"GET /servers", "GET", "/v1/servers?page=1", true},
		{"GET /servers", "POST", "/v1/servers", false},
		{"GET /servers", "GET", "/v1/servers/5", false},
		{"/servers/{id}", "DELETE", "/v1/servers/5", true},
		{"POST /networks/{id}/actions/add_route", "POST", "/v1/networks/5/actions/add_route", true},
		{"POST /networks/{id}/actions/add_route", "POST", "/v1/networks/5/actions/add_subnet", false},
		{"/networks/{rest...}", "POST", "/v1/networks/5/actions/add_route", true},
		{"POST /", "POST", "/v1/networks/5/actions/add_route", true},
		{"POST /", "GET", "/v1/networks", false},
	}
	for _, test := range tests {
		t.Run(test.match+" "+test.method+" "+test.path, func(t *testing.T) {
			sim := newSim(hcloudsim.Options{})
			noError(t, sim.Inject(hcloudsim.Fault{Match: test.match, Status: 418}))
			if got := send(t, sim, test.method, test.path, "{}"); (got.status == 418) != test.hit {
				t.Errorf("answer is %d, want hit=%v", got.status, test.hit)
			}
		})
	}
	for _, wrong := range []string{"servers", "GET servers", "/{", "A B C"} {
		if err := newSim(hcloudsim.Options{}).Inject(hcloudsim.Fault{Match: wrong}); err == nil || !strings.Contains(err.Error(), "Match") {
			t.Errorf("Match %q: error is %v", wrong, err)
		}
	}
}

func TestFaultsHitSoOften(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	noError(t, sim.Inject(hcloudsim.Fault{Code: "locked", Times: 2}))
	noError(t, sim.Inject(hcloudsim.Fault{Code: "timeout", Times: -1}))
	var got []string
	for range 5 {
		got = append(got, send(t, sim, "GET", "/v1/servers", "").code())
	}
	if want := "[locked locked timeout timeout timeout]"; fmt.Sprint(got) != want {
		t.Errorf("answers are %v, want %s", got, want)
	}
	sim.ClearFaults()
	send(t, sim, "GET", "/v1/servers", "").want(t, http.StatusOK, "")
}

// After a lost reply the change is done or not, and the client can't determine which.
func TestDroppedReplies(t *testing.T) {
	for _, applied := range []bool{false, true} {
		sim := newSim(hcloudsim.Options{})
		c, n := client(sim), seedNetwork(t, sim)
		noError(t, sim.Inject(hcloudsim.Fault{Match: "POST /networks/{id}/actions/add_route", DropBeforeApply: !applied, DropAfterApply: applied}))
		err := addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2")
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("error is %v, want the connection to end", err)
		}
		now, _ := sim.Network(n.ID)
		if (len(now.Routes) == 1) != applied {
			t.Errorf("applied=%v: routes are %v", applied, now.Routes)
		}
		if log := sim.Requests(); len(log) != 1 || !log[0].Dropped ||
			(log[0].Status == http.StatusCreated) != applied {
			t.Errorf("applied=%v: log is %+v", applied, log)
		}
	}
}

func TestDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := newSim(hcloudsim.Options{Latency: 20 * time.Millisecond})
		noError(t, sim.Inject(hcloudsim.Fault{Delay: time.Second}))
		start := time.Now()
		_, err := client(sim).Server.All(t.Context())
		noError(t, err)
		if took := time.Since(start); took != 1020*time.Millisecond {
			t.Errorf("request took %v", took)
		}
		noError(t, sim.Inject(hcloudsim.Fault{Match: "POST /", Delay: time.Minute}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = client(sim).Network.Create(ctx, hcloud.NetworkCreateOpts{Name: "net", IPRange: ipNet("10.0.0.0/8")})
		if !errors.Is(err, context.DeadlineExceeded) || len(sim.Networks()) != 0 {
			t.Errorf("error is %v, networks are %v: want the client gone before anything happened", err, sim.Networks())
		}
	})
}

func TestFailingActions(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		lb := createWhole(t, w.c, nil).LoadBalancer
		time.Sleep(actionTime)
		fails := func(match string, do func() (*hcloud.Action, error)) {
			t.Helper()
			noError(t, w.sim.Inject(hcloudsim.Fault{Match: match, FailAction: "service_error"}))
			a, err := do()
			noError(t, err)
			var failure hcloud.ActionError
			if err := w.c.Action.WaitFor(t.Context(), a); !errors.As(err, &failure) || failure.Code != "service_error" {
				t.Errorf("%s ends with %v", match, err)
			}
		}
		fails("POST /networks/{id}/actions/add_route", func() (*hcloud.Action, error) {
			a, _, err := w.c.Network.AddRoute(t.Context(), w.net, hcloud.NetworkAddRouteOpts{Route: route("10.244.0.0/24", "10.0.0.2")})
			return a, err
		})
		fails("POST /networks/{id}/actions/add_subnet", func() (*hcloud.Action, error) {
			a, _, err := w.c.Network.AddSubnet(t.Context(), w.net, hcloud.NetworkAddSubnetOpts{Subnet: hcloud.NetworkSubnet{Type: "cloud", NetworkZone: "eu-central"}})
			return a, err
		})
		fails("POST /servers/{id}/actions/attach_to_network", func() (*hcloud.Action, error) {
			a, _, err := w.c.Server.AttachToNetwork(t.Context(), w.b, hcloud.ServerAttachToNetworkOpts{
				Network: w.net,
			})
			return a, err
		})
		fails("POST /servers/{id}/actions/poweroff", func() (*hcloud.Action, error) {
			a, _, err := w.c.Server.Poweroff(t.Context(), w.b)
			return a, err
		})
		fails("POST /load_balancers/{id}/actions/add_target", func() (*hcloud.Action, error) {
			a, _, err := w.c.LoadBalancer.AddServerTarget(t.Context(), lb,
				hcloud.LoadBalancerAddServerTargetOpts{Server: w.a})
			return a, err
		})
		fails("POST /load_balancers/{id}/actions/attach_to_network", func() (*hcloud.Action, error) {
			a, _, err := w.c.LoadBalancer.AttachToNetwork(t.Context(), lb,
				hcloud.LoadBalancerAttachToNetworkOpts{Network: w.net})
			return a, err
		})
		fails("POST /load_balancers", func() (*hcloud.Action, error) {
			made, _, err := w.c.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
				Name: "more", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: "eu-central", Network: w.net,
			})
			return made.Action, err
		})

		n, _ := w.sim.Network(w.net.ID)
		b, _ := w.sim.Server(w.b.ID)
		lbs := w.sim.LoadBalancers()
		if len(n.Routes) != 0 || len(n.Subnets) != 1 || len(n.Servers) != 1 || len(n.LoadBalancers) != 0 {
			t.Errorf("failed actions have left the network as %+v", n)
		}
		if b.Status != "running" || len(b.PrivateNet) != 0 || len(lbs) != 1 || len(lbs[0].Targets) != 0 {
			t.Errorf("failed actions have left the server as %+v, the load balancers as %+v", b, lbs)
		}
		noError(t, addRoute(t, w.c, w.net, "10.244.0.0/24", "10.0.0.2")) // nothing holds its place
	})
}

func TestAdmin(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	n := seedNetwork(t, sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
	createWhole(t, client(sim), n, s)
	admin := func(method, path, body string) (int, string) {
		recorder := httptest.NewRecorder()
		sim.Admin().ServeHTTP(recorder, httptest.NewRequest(method, path, strings.NewReader(body)))
		return recorder.Code, recorder.Body.String()
	}
	expect := func(method, path, body string, status int, parts ...string) {
		t.Helper()
		got, text := admin(method, path, body)
		if got != status {
			t.Errorf("%s %s answers %d %s, want %d", method, path, got, text, status)
		}
		for _, part := range parts {
			if !strings.Contains(text, part) {
				t.Errorf("%s %s answers %s, want %s in it", method, path, text, part)
			}
		}
	}
	expect("GET", "/_sim/requests", "", 200, `"method":"POST"`, `"path":"/v1/load_balancers"`, `"status":201`)
	expect("DELETE", "/_sim/requests", "", 204)
	expect("GET", "/_sim/requests", "", 200, `{"requests":[]}`)
	expect("GET", "/_sim/state", "", 200, `"servers":[{`, `"networks":[{`, `"load_balancers":[{`, `"command":"create_load_balancer"`)
	expect("POST", "/_sim/faults", `{"match": "GET /servers", "times": -1, "code": "locked", "delay": "1ms"}`, 204)
	send(t, sim, "GET", "/v1/servers", "").want(t, 423, "locked")
	expect("DELETE", "/_sim/faults", "", 204)
	send(t, sim, "GET", "/v1/servers", "").want(t, 200, "")
	expect("POST", "/_sim/faults", `{"mach": "GET /servers"}`, 400, "mach")
	expect("POST", "/_sim/faults", `{"match": "servers"}`, 400, "Match")
	expect("POST", "/_sim/faults", `{"delay": "long"}`, 400, "long")
	expect("DELETE", fmt.Sprintf("/_sim/servers/%d", s.ID), "", 204)
	expect("DELETE", fmt.Sprintf("/_sim/servers/%d", s.ID), "", 404)
	expect("DELETE", "/_sim/servers/x", "", 404)
	if left := sim.Servers(); len(left) != 0 {
		t.Errorf("servers are %+v", left)
	}
}

// The how-to page about faults uses fields that exist.
func TestHowToNamesTheFaults(t *testing.T) {
	page, err := os.ReadFile("../docs/how-to/hcloud-sim.md")
	noError(t, err)
	_, rows, found := strings.Cut(string(page), "| field | meaning |\n|---|---|\n")
	rows, _, ended := strings.Cut(rows, "\n\n")
	if !found || !ended {
		t.Fatal("the page has no table of faults any more")
	}
	for row := range strings.SplitSeq(rows, "\n") {
		cell := strings.Split(row, "|")[1]
		for field := range strings.SplitSeq(cell, ",") {
			recorder := httptest.NewRecorder()
			body := fmt.Sprintf(`{%q: null}`, strings.Trim(field, " `"))
			newSim(hcloudsim.Options{}).Admin().ServeHTTP(recorder, httptest.NewRequest("POST", "/_sim/faults", strings.NewReader(body)))
			if recorder.Code != http.StatusNoContent {
				t.Errorf("%s: %s", body, recorder.Body)
			}
		}
	}
}
