package hcloudsim_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func seedFloatingIP(
	t testing.TB, sim *hcloudsim.Simulator, seed hcloudsim.FloatingIPSeed,
) schema.FloatingIP {
	t.Helper()
	made, err := sim.CreateFloatingIP(seed)
	noError(t, err)
	return made
}

// on returns the server of a floating IP, by the floating IP and by the data plane; 0: none.
func on(t *testing.T, sim *hcloudsim.Simulator, id int64) int64 {
	t.Helper()
	f, there := sim.FloatingIP(id)
	if !there {
		t.Fatalf("there is no floating IP %d", id)
	}
	var leads int64
	if f.Server != nil {
		leads = *f.Server
	}
	plane := sim.DataPlane().FloatingIPs
	if i := slices.IndexFunc(plane, func(p hcloudsim.PlaneFloatingIP) bool {
		return p.ID == id
	}); i < 0 || plane[i].Server != leads {
		t.Errorf("the data plane has %+v, want floating IP %d at server %d", plane, id, leads)
	}
	return leads
}

// A floating IP moves from server to server by an action, and each server shows its own.
func TestFloatingIPsMove(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		a, b := seedServer(t, w.sim, hcloudsim.ServerSeed{Name: "one"}), seedServer(t, w.sim, hcloudsim.ServerSeed{Name: "two", Location: "hel1"})
		made, _, err := w.c.FloatingIP.Create(t.Context(), hcloud.FloatingIPCreateOpts{
			Type: hcloud.FloatingIPTypeIPv4, Server: a, Name: hcloud.Ptr("web"), Description: hcloud.Ptr("the shop"), Labels: map[string]string{"x": "y"},
		})
		noError(t, err)
		id := made.FloatingIP.ID
		if got := on(t, w.sim, id); got != 0 {
			t.Errorf("it leads to %d before its action is over", got)
		}
		// During the action no other request can move it.
		_, _, err = w.c.FloatingIP.Assign(t.Context(), made.FloatingIP, b)
		wantCode(t, err, "conflict")
		noError(t, w.c.Action.WaitFor(t.Context(), made.Action))
		if got := on(t, w.sim, id); got != a.ID {
			t.Errorf("it leads to %d, want %d", got, a.ID)
		}
		action, _, err := w.c.FloatingIP.Assign(t.Context(), made.FloatingIP, b)
		noError(t, err)
		if got := on(t, w.sim, id); got != a.ID {
			t.Errorf("it leads to %d before the second action is over", got)
		}
		noError(t, w.c.Action.WaitFor(t.Context(), action))
		for _, s := range []*hcloud.Server{a, b} {
			got, _, err := w.c.Server.GetByID(t.Context(), s.ID)
			noError(t, err)
			if has := len(got.PublicNet.FloatingIPs) == 1 &&
				got.PublicNet.FloatingIPs[0].ID == id; has != (s == b) {
				t.Errorf("server %s has floating IPs %v", got.Name, got.PublicNet.FloatingIPs)
			}
		}
		found, _, err := w.c.FloatingIP.GetByID(t.Context(), id)
		noError(t, err)
		if found.Server.ID != b.ID || found.Name != "web" || found.Description != "the shop" || found.HomeLocation.Name != "fsn1" || found.Labels["x"] != "y" {
			t.Errorf("it is %+v", found)
		}
		noError(t, w.sim.DeleteServer(b.ID))
		if got := on(t, w.sim, id); got != 0 {
			t.Errorf("it leads to %d, a server that is no more", got)
		}
	})
}

// A floating IP whose server is deleted during its assignment has no server, and a failed
// assignment changes nothing.
func TestFloatingIPsThatDontArrive(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		a, b := seedServer(t, w.sim, hcloudsim.ServerSeed{Name: "one"}), seedServer(t, w.sim, hcloudsim.ServerSeed{Name: "two"})
		f := seedFloatingIP(t, w.sim, hcloudsim.FloatingIPSeed{Server: a.ID})
		noError(t, w.sim.Inject(hcloudsim.Fault{Match: "POST /floating_ips/{id}/actions/assign", FailAction: "action_failed"}))
		action, _, err := w.c.FloatingIP.Assign(t.Context(), &hcloud.FloatingIP{ID: f.ID}, b)
		noError(t, err)
		if err := w.c.Action.WaitFor(t.Context(), action); err == nil || on(t, w.sim, f.ID) != a.ID {
			t.Errorf("after %v it leads to %d", err, on(t, w.sim, f.ID))
		}
		_, _, err = w.c.FloatingIP.Assign(t.Context(), &hcloud.FloatingIP{ID: f.ID}, b)
		noError(t, err)
		noError(t, w.sim.DeleteServer(b.ID))
		noError(t, w.sim.AssignFloatingIP(f.ID, 0))
		time.Sleep(actionTime)
		if got := on(t, w.sim, f.ID); got != 0 {
			t.Errorf("it leads to %d", got)
		}
	})
}

// The rules, by the codes.
func TestFloatingIPRules(t *testing.T) {
	sim := newSim(hcloudsim.Options{Quotas: map[string]int{"floating_ip": 5}, RefuseReassign: true})
	a := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	far := seedServer(t, sim, hcloudsim.ServerSeed{Name: "far", Type: "cpx11", Location: "ash"})
	web := seedFloatingIP(t, sim, hcloudsim.FloatingIPSeed{Name: "web"})
	net := seedFloatingIP(t, sim, hcloudsim.FloatingIPSeed{Name: "net", Type: "ipv6", IP: netip.MustParsePrefix("2001:db8:f::/64")})
	for _, seed := range []hcloudsim.FloatingIPSeed{
		{Name: "web"},
		{IP: netip.MustParsePrefix("2001:db8:f::/64")},
		{Type: "ipv6", IP: netip.MustParsePrefix("2001:db8:f::/64")},
		{Type: "ipv6", IP: netip.MustParsePrefix("2001:db8:f::/48")},
		{Server: far.ID},
	} {
		if made, err := sim.CreateFloatingIP(seed); err == nil {
			t.Errorf("seeded %+v", made)
		}
	}
	path := fmt.Sprintf("/v1/floating_ips/%d", web.ID)
	for _, test := range []struct {
		method, path, body string
		status             int
		code               string
	}{
		{"POST", "/v1/floating_ips", `{"type": "ipv4", "home_location": "fsn1", "name": "web"}`, 409, "uniqueness_error"},
		{"POST", "/v1/floating_ips", `{"type": "ipv5", "home_location": "fsn1"}`, 422, "invalid_input"},
		{"POST", "/v1/floating_ips", `{"type": "ipv4"}`, 422, "invalid_input"},
		{"POST", "/v1/floating_ips", `{"type": "ipv4", "home_location": "moon"}`, 422, "invalid_input"},
		{"POST", "/v1/floating_ips", `{"type": "ipv4", "server": 7}`, 404, "not_found"},
		{"POST", "/v1/floating_ips", `{"type": "ipv4", "home_location": 2}`, 201, ""},
		{"PUT", path, `{"name": "net"}`, 409, "uniqueness_error"},
		{"PUT", path, `{"name": "shop", "description": "", "labels": {"a": "b"}}`, 200, ""},
		{"POST", path + "/actions/unassign", "", 422, "invalid_input"},
		{"POST", path + "/actions/assign", `{}`, 422, "invalid_input"},
		{"POST", path + "/actions/assign", `{"server": null}`, 422, "invalid_input"},
		{"POST", path + "/actions/assign", `{"server": 7}`, 404, "not_found"},
		{"POST", path + "/actions/assign", fmt.Sprintf(`{"server": %d}`, far.ID), 422, "invalid_input"},
		{"POST", path + "/actions/assign", fmt.Sprintf(`{"server": %d}`, a.ID), 201, ""},
		{"POST", path + "/actions/assign", fmt.Sprintf(`{"server": %d}`, a.ID), 422, "floating_ip_assigned"},
		{"POST", path + "/actions/change_dns_ptr", `{"ip": "192.0.2.1", "dns_ptr": "x.example.com"}`, 422, "invalid_input"},
		{"POST", fmt.Sprintf("/v1/floating_ips/%d/actions/change_dns_ptr", net.ID), `{"ip": "2001:db8:f::7", "dns_ptr": "x.example.com"}`, 201, ""},
		{"DELETE", path, "", 422, "must_be_unassigned"},
		{"POST", path + "/actions/unassign", "", 201, ""},
		{"POST", path + "/actions/change_protection", `{"delete": true}`, 201, ""},
		{"DELETE", path, "", 423, "protected"},
		{"POST", path + "/actions/change_protection", `{"delete": false}`, 201, ""},
		{"GET", "/v1/floating_ips?sort=name", "", 422, "invalid_input"},
		{"POST", "/v1/floating_ips", `{"type": "ipv6", "home_location": "fsn1"}`, 201, ""},
		{"POST", "/v1/floating_ips", fmt.Sprintf(`{"type": "ipv6", "server": %d}`, a.ID), 201, ""},
		{"POST", "/v1/floating_ips", `{"type": "ipv6", "home_location": "fsn1"}`, 403, "resource_limit_exceeded"},
		{"DELETE", path, "", 204, ""},
		{"GET", path, "", 404, "not_found"},
	} {
		if got := send(t, sim, test.method, test.path, test.body); got.status != test.status ||
			got.code() != test.code {
			t.Errorf("%s %s %s answers %d %s, want %d %s", test.method, test.path, test.body, got.status, got.body, test.status, test.code)
		}
	}
	if got, _ := sim.FloatingIP(net.ID); len(got.DNSPtr) != 1 || got.DNSPtr[0].IP != "2001:db8:f::7" {
		t.Errorf("the net's reverse DNS is %+v", got.DNSPtr)
	}
	named, err := client(sim).FloatingIP.AllWithOpts(t.Context(), hcloud.FloatingIPListOpts{Name: "net"})
	noError(t, err)
	if len(named) != 1 || named[0].Network.String() != "2001:db8:f::/64" {
		t.Errorf("by its name there are %+v", named)
	}
}
