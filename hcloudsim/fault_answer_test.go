package hcloudsim_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// A proxy in between responds with a page, before or after the API executed the request.
func TestNotJSON(t *testing.T) {
	for _, applied := range []bool{false, true} {
		sim := newSim(hcloudsim.Options{})
		c, n := client(sim), seedNetwork(t, sim)
		noError(t, sim.Inject(hcloudsim.Fault{Match: "POST /", Status: 504, NotJSON: true, Applied: applied}))
		err := addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2")
		if err == nil || hcloud.IsError(err, hcloud.ErrorCodeTimeout) {
			t.Errorf("error is %v, want one without a code", err)
		}
		if now, _ := sim.Network(n.ID); (len(now.Routes) == 1) != applied {
			t.Errorf("applied=%v: routes are %v", applied, now.Routes)
		}
		noError(t, sim.Inject(hcloudsim.Fault{NotJSON: true}))
		got := send(t, sim, "GET", "/v1/servers", "")
		if got.status != 502 || !strings.Contains(got.header.Get("Content-Type"), "text/html") || !strings.Contains(got.body, "<h1>502") {
			t.Errorf("answer is %d %s", got.status, got.body)
		}
	}
}

func TestRefusalAfterTheWork(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	noError(t, sim.Inject(hcloudsim.Fault{Match: "POST /", Code: "timeout", Applied: true}))
	wantCode(t, addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2"), "timeout")
	if now, _ := sim.Network(n.ID); len(now.Routes) != 1 {
		t.Errorf("routes are %v", now.Routes)
	}
}

func TestLostActions(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /", LoseAction: true}))
		a, _, err := w.c.Network.AddRoute(t.Context(), w.net, hcloud.NetworkAddRouteOpts{Route: route("10.244.0.0/24", "10.0.0.2")})
		noError(t, err)
		if err := w.c.Action.WaitFor(t.Context(), a); err == nil {
			t.Error("waiting for a lost action succeeds")
		}
		wantCode(t, addRoute(t, w.c, w.net, "10.244.1.0/24", "10.0.0.2"), "conflict") // it runs all the same
		if found, _, err := w.c.Action.GetByID(t.Context(), a.ID); found != nil || err != nil {
			t.Errorf("the action is found: %+v, %v", found, err)
		}
	})
}

func TestWrongLists(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	for i := range 8 {
		seedServer(t, sim, hcloudsim.ServerSeed{Name: fmt.Sprintf("s%d", i)})
	}
	tests := []struct {
		fault hcloudsim.Fault
		want  int // servers in the list
		total string
	}{
		{hcloudsim.Fault{EmptyList: true}, 0, `"total_entries":0`},
		{hcloudsim.Fault{PartialList: true}, 4, `"total_entries":8`},
		{hcloudsim.Fault{OtherProject: true}, 0, `"total_entries":0`},
	}
	for _, test := range tests {
		test.fault.Times = 2
		noError(t, sim.Inject(test.fault))
		all, err := c.Server.All(t.Context())
		noError(t, err)
		if got := send(t, sim, "GET", "/v1/servers", ""); len(all) != test.want || !strings.Contains(got.body, test.total) {
			t.Errorf("%+v: %d servers, %s", test.fault, len(all), got.body)
		}
	}
	if all, err := c.Server.All(t.Context()); err != nil || len(all) != 8 {
		t.Errorf("afterwards there are %d servers, %v", len(all), err)
	}
}

// With the token of another project, nothing exists, and a creation has its effect elsewhere.
func TestOtherProject(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	noError(t, sim.Inject(hcloudsim.Fault{OtherProject: true, Times: -1}))
	if found, _, err := c.Server.GetByID(t.Context(), s.ID); found != nil || err != nil {
		t.Errorf("the server is found: %v, %v", found, err)
	}
	made, _, err := c.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "net", IPRange: ipNet("10.0.0.0/8")})
	noError(t, err)
	noError(t, addRoute(t, c, made, "10.244.0.0/24", "10.0.0.2"))
	sim.ClearFaults()
	if found, _, err := c.Network.GetByID(t.Context(), made.ID); found != nil || err != nil ||
		len(sim.Networks()) != 0 {
		t.Errorf("the other project's network is found: %v, %v", found, err)
	}
	if found, _, err := c.Server.GetByID(t.Context(), s.ID); found == nil || err != nil {
		t.Errorf("the server is not back: %v", err)
	}
}

func TestTornBodies(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	server := httptest.NewServer(sim)
	defer server.Close()
	for name, c := range map[string]*hcloud.Client{
		"in process":    client(sim),
		"over a socket": client(sim, hcloud.WithEndpoint(server.URL+"/v1"), hcloud.WithHTTPClient(&http.Client{Transport: &http.Transport{DisableKeepAlives: true}})),
	} {
		noError(t, sim.Inject(hcloudsim.Fault{TornBody: true}))
		if _, err := c.Server.All(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: error is %v, want the body to end too early", name, err)
		}
	}
}
