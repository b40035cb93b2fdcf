package hcloudsim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestServerLife(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	made, _, err := c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "node-1", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		Location: &hcloud.Location{Name: "fsn1"}, Labels: map[string]string{"role": "worker"}, Networks: []*hcloud.Network{n},
	})
	noError(t, err)
	noError(t, c.Action.WaitFor(t.Context(), append(made.NextActions, made.Action)...))
	s, _, err := c.Server.GetByName(t.Context(), "node-1")
	noError(t, err)
	switch {
	case s.Status != hcloud.ServerStatusRunning, s.Location.Name != "fsn1", s.ServerType.Name != "cx22",
		s.Image.Name != "ubuntu-24.04", s.Labels["role"] != "worker":
		t.Errorf("server is %+v", s)
	case len(s.PrivateNet) != 1 || s.PrivateNet[0].IP.String() != "10.0.0.2" || s.PrivateNet[0].Network.ID != n.ID:
		t.Errorf("server's private networks are %+v", s.PrivateNet)
	case s.PublicNet.IPv4.IP == nil || s.PublicNet.IPv6.Network == nil:
		t.Errorf("server's public network is %+v", s.PublicNet)
	}

	for _, step := range []struct {
		do   func() (*hcloud.Action, error)
		want hcloud.ServerStatus
	}{
		{
			func() (*hcloud.Action, error) { a, _, err := c.Server.Shutdown(t.Context(), s); return a, err },
			hcloud.ServerStatusOff,
		},
		{
			func() (*hcloud.Action, error) { a, _, err := c.Server.Poweron(t.Context(), s); return a, err },
			hcloud.ServerStatusRunning,
		},
		{
			func() (*hcloud.Action, error) { a, _, err := c.Server.Poweroff(t.Context(), s); return a, err },
			hcloud.ServerStatusOff,
		},
	} {
		a, err := step.do()
		noError(t, err)
		noError(t, c.Action.WaitFor(t.Context(), a))
		if s, _, _ := c.Server.GetByID(t.Context(), s.ID); s.Status != step.want {
			t.Errorf("after %s the server is %s, want %s", a.Command, s.Status, step.want)
		}
	}

	s, _, err = c.Server.Update(t.Context(), s, hcloud.ServerUpdateOpts{Name: "renamed", Labels: map[string]string{"a": "b"}})
	noError(t, err)
	if s.Name != "renamed" || len(s.Labels) != 1 || s.Labels["a"] != "b" {
		t.Errorf("server is %s %v after its update", s.Name, s.Labels)
	}
	noError(t, addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2"))
	_, _, err = c.Server.DeleteWithResult(t.Context(), s)
	noError(t, err)
	if gone, _, err := c.Server.GetByID(t.Context(), s.ID); gone != nil || err != nil {
		t.Errorf("server is still there: %v, %v", gone, err)
	}
	if now, _ := sim.Network(n.ID); len(now.Servers) != 0 || len(now.Routes) != 1 {
		t.Errorf("network is %+v, want no server, and the route left over", now)
	}
}

func TestServerRules(t *testing.T) {
	const valid = `"server_type": "cx22", "image": "debian-12"`
	tests := []struct {
		body        string
		status      int
		code, field string
	}{
		{`{"name": "a", ` + valid + `}`, 201, "", ""},
		{`{"name": "a.example.com", "location": "2", "server_type": 104, "image": 5}`, 201, "", ""},
		{`{"name": "taken", ` + valid + `}`, 409, "uniqueness_error", "name"},
		{`{"name": "", ` + valid + `}`, 422, "invalid_input", "name"},
		{`{"name": "under_score", ` + valid + `}`, 422, "invalid_input", "name"},
		{`{"name": "a", "server_type": "huge", "image": "debian-12"}`, 422, "invalid_input", "server_type"},
		{`{"name": "a", "server_type": "cx22"}`, 422, "invalid_input", "image"},
		{`{"name": "a", "location": "moon", ` + valid + `}`, 422, "invalid_input", "location"},
		{`{"name": "a", "location": "ash", ` + valid + `}`, 422, "invalid_input", "location"}, // not sold there
		{`{"name": "a", "labels": {"hetzner.cloud/a": ""}, ` + valid + `}`, 422, "invalid_input", "labels"},
		{`{"name": "a", "labels": {"a b": ""}, ` + valid + `}`, 422, "invalid_input", "labels"},
		{`{"name": "a", "labels": {"a": "-"}, ` + valid + `}`, 422, "invalid_input", "labels"},
		{`{"name": "a", "networks": [7], ` + valid + `}`, 404, "not_found", ""},
		{`{"name": "a", "volumes": [7], ` + valid + `}`, 404, "not_found", ""},
		{`{"name": "a", "firewalls": [{"firewall": 7}], ` + valid + `}`, 404, "not_found", ""},
		{`{"name": "a", "placement_group": 7, ` + valid + `}`, 404, "not_found", ""},
		{`{"name": "a", "public_net": {"enable_ipv4": true, "ipv4": 7}, ` + valid + `}`, 404, "not_found", ""},
	}
	for _, test := range tests {
		t.Run(test.body, func(t *testing.T) {
			sim := newSim(hcloudsim.Options{})
			seedServer(t, sim, hcloudsim.ServerSeed{Name: "taken"})
			got := send(t, sim, "POST", "/v1/servers", test.body)
			got.want(t, test.status, test.code)
			if got.field() != test.field {
				t.Errorf("answer is about %q, want %q", got.field(), test.field)
			}
			if left := len(sim.Servers()); test.status != 201 && left != 1 {
				t.Errorf("a refused request left %d servers behind, want 1", left)
			}
		})
	}
}

// A family without an address is null, and there is no datacenter any more.
func TestServerJSON(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", NoIPv4: true, NoIPv6: true})
	got := send(t, sim, "GET", fmt.Sprintf("/v1/servers/%d", s.ID), "")
	for _, want := range []string{`"ipv4":null`, `"ipv6":null`, `"location":{`, `"private_net":[]`, `"labels":{}`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("server is %s, want %s in it", got.body, want)
		}
	}
	if strings.Contains(got.body, "datacenter") {
		t.Errorf("server still has a datacenter: %s", got.body)
	}
	parsed, _, err := client(sim).Server.GetByID(t.Context(), s.ID)
	noError(t, err)
	if !parsed.PublicNet.IPv4.IsUnspecified() || !parsed.PublicNet.IPv6.IsUnspecified() {
		t.Errorf("hcloud-go reads the public network %+v", parsed.PublicNet)
	}
}

func TestServersByStatus(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "b", Status: "off"})
	got, _, err := client(sim).Server.List(t.Context(), hcloud.ServerListOpts{
		Status: []hcloud.ServerStatus{hcloud.ServerStatusOff},
	})
	noError(t, err)
	if len(got) != 1 || got[0].Name != "b" {
		t.Errorf("off are %v", got)
	}
}

func TestServerWithoutPublicNetwork(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	made, _, err := client(sim).Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "a", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "ubuntu-24.04"},
		PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv6: true}, StartAfterCreate: hcloud.Ptr(false),
	})
	noError(t, err)
	s, _ := sim.Server(made.Server.ID)
	if s.Status != "off" || s.PublicNet.IPv4.IP != "" || s.PublicNet.IPv6.IP == "" {
		t.Errorf("server is %s with %+v", s.Status, s.PublicNet)
	}
}
