package hcloudsim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func seedPrimaryIP(
	t *testing.T, sim *hcloudsim.Simulator, seed hcloudsim.PrimaryIPSeed,
) schema.PrimaryIP {
	t.Helper()
	made, err := sim.CreatePrimaryIP(seed)
	noError(t, err)
	return made
}

// at returns the options of a load balancer with these primary IPs; 0 names none.
func at(name string, ipv4, ipv6 int64) hcloud.LoadBalancerCreateOpts {
	opts := hcloud.LoadBalancerCreateOpts{
		Name: name, LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, Location: &hcloud.Location{Name: "fsn1"},
		PublicNet: &hcloud.LoadBalancerCreateOptsPublicNet{},
	}
	if ipv4 != 0 {
		opts.PublicNet.IPv4 = &hcloud.PrimaryIP{ID: ipv4}
	}
	if ipv6 != 0 {
		opts.PublicNet.IPv6 = &hcloud.PrimaryIP{ID: ipv6}
	}
	return opts
}

func createAt(t *testing.T, c *hcloud.Client, name string, ipv4, ipv6 int64) *hcloud.LoadBalancer {
	t.Helper()
	made, _, err := c.LoadBalancer.Create(t.Context(), at(name, ipv4, ipv6))
	noError(t, err)
	noError(t, c.Action.WaitFor(t.Context(), made.Action))
	lb, _, err := c.LoadBalancer.GetByID(t.Context(), made.LoadBalancer.ID)
	noError(t, err)
	return lb
}

// A load balancer that is created again with its primary IPs has its former addresses and their
// reverse DNS.
func TestPrimaryIPsOutliveLoadBalancers(t *testing.T) {
	inBubble(t, hcloudsim.Options{}, func(t *testing.T, w world) {
		ipv4 := seedPrimaryIP(t, w.sim, hcloudsim.PrimaryIPSeed{Name: "web"})
		ipv6 := seedPrimaryIP(t, w.sim, hcloudsim.PrimaryIPSeed{Name: "web-6", Type: "ipv6"})
		first := createAt(t, w.c, "web", ipv4.ID, ipv6.ID)
		net := first.PublicNet
		if net.IPv4.ID != ipv4.ID || net.IPv4.IP.String() != ipv4.IP || net.IPv6.ID != ipv6.ID ||
			!netip.MustParsePrefix(ipv6.IP).Contains(netip.MustParseAddr(net.IPv6.IP.String())) {
			t.Errorf("public net is %+v, want %s and %s", net, ipv4.IP, ipv6.IP)
		}
		if got, _ := w.sim.PrimaryIP(ipv4.ID); got.AssigneeType != "load_balancer" || got.AssigneeID == nil || *got.AssigneeID != first.ID {
			t.Errorf("primary IP is %+v", got)
		}
		named, _, err := w.c.LoadBalancer.ChangeDNSPtr(t.Context(), first, ipv4.IP, hcloud.Ptr("web.example.com"))
		noError(t, err)
		noError(t, w.c.Action.WaitFor(t.Context(), named))
		if got, _ := w.sim.PrimaryIP(ipv4.ID); got.DNSPtr[0].DNSPtr != "web.example.com" {
			t.Errorf("the primary IP's reverse DNS is %+v", got.DNSPtr)
		}
		if made := w.sim.PrimaryIPs(); made[len(made)-1].ID != ipv6.ID {
			t.Errorf("there are primary IPs %+v, want none after the two that were named", made)
		}

		result, _, err := w.c.LoadBalancer.DeleteWithResult(t.Context(), first)
		noError(t, err)
		if _, err := w.c.PrimaryIP.Delete(t.Context(), &hcloud.PrimaryIP{ID: ipv4.ID}); !hcloud.IsError(err, "must_be_unassigned") {
			t.Errorf("deleting one in use: %v", err)
		}
		noError(t, w.c.Action.WaitFor(t.Context(), result.Action))
		if got, _ := w.sim.PrimaryIP(ipv4.ID); got.AssigneeType != "unassigned" || got.AssigneeID != nil {
			t.Errorf("primary IP is %+v after its load balancer went", got)
		}
		if second := createAt(t, w.c, "web", ipv4.ID, ipv6.ID); second.PublicNet.IPv4.IP.String() != ipv4.IP || second.PublicNet.IPv4.DNSPtr != "web.example.com" || second.ID == first.ID {
			t.Errorf("the second load balancer is %d with %+v", second.ID, second.PublicNet)
		}
	})
}

// Without a name, and with auto_delete, a primary IP is deleted with its load balancer.
func TestPrimaryIPsThatGoWithLoadBalancers(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	kept := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "kept"})
	gone := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "gone", Type: "ipv6", AutoDelete: true})
	for _, lb := range []*hcloud.LoadBalancer{createAt(t, c, "a", 0, 0), createAt(t, c, "b", kept.ID, gone.ID)} {
		for _, id := range []int64{lb.PublicNet.IPv4.ID, lb.PublicNet.IPv6.ID} {
			ip, _, err := c.PrimaryIP.GetByID(t.Context(), id)
			noError(t, err)
			if ip.AssigneeID != lb.ID || ip.AutoDelete != (id != kept.ID) {
				t.Errorf("load balancer %s has %+v", lb.Name, ip)
			}
		}
		_, _, err := c.LoadBalancer.DeleteWithResult(t.Context(), lb)
		noError(t, err)
	}
	if left := sim.PrimaryIPs(); len(left) != 1 || left[0].ID != kept.ID {
		t.Errorf("left are %+v, want the one without auto_delete", left)
	}
	// A failed creation leaves no resources.
	again := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "again", AutoDelete: true})
	noError(t, sim.Inject(hcloudsim.Fault{Match: "POST /load_balancers", FailAction: "server_error"}))
	made, _, err := c.LoadBalancer.Create(t.Context(), at("c", again.ID, 0))
	noError(t, err)
	if err := c.Action.WaitFor(t.Context(), made.Action); err == nil {
		t.Error("the creation did not fail")
	}
	if got, there := sim.PrimaryIP(again.ID); !there || got.AssigneeID != nil ||
		len(sim.PrimaryIPs()) != 2 {
		t.Errorf("left are %+v", sim.PrimaryIPs())
	}
}

func TestRefusedPrimaryIPsOfLoadBalancers(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	taken := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "taken"})
	createAt(t, c, "first", taken.ID, 0)
	ipv6 := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "six", Type: "ipv6"})
	away := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "away", Location: "nbg1"})
	for _, test := range []struct {
		name       string
		ipv4, ipv6 int64
		code       hcloud.ErrorCode
	}{
		{"in use", taken.ID, 0, hcloud.ErrorCodePrimaryIPAssigned},
		{"of the other type", ipv6.ID, 0, hcloud.ErrorCodePrimaryIPVersionMismatch},
		{"elsewhere", away.ID, 0, hcloud.ErrorCodePrimaryIPDatacenterMismatch},
		{"unknown", 0, 4711, hcloud.ErrorCodeNotFound},
	} {
		before := len(sim.PrimaryIPs())
		if _, _, err := c.LoadBalancer.Create(t.Context(), at("second", test.ipv4, test.ipv6)); !hcloud.IsError(err, test.code) {
			t.Errorf("%s: %v, want %s", test.name, err, test.code)
		}
		if len(sim.LoadBalancers()) != 1 || len(sim.PrimaryIPs()) != before {
			t.Errorf("%s: something was made all the same", test.name)
		}
	}
	// A zone doesn't fix the location, so it is that of the primary IP.
	opts := at("zone", away.ID, 0)
	opts.Location, opts.NetworkZone = nil, hcloud.NetworkZoneEUCentral
	made, _, err := c.LoadBalancer.Create(t.Context(), opts)
	if err != nil || made.LoadBalancer.Location.Name != "nbg1" {
		t.Errorf("created %+v, %v; want it where its primary IP is", made.LoadBalancer, err)
	}
}

func TestPrimaryIPRules(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	ip := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "web"})
	goes := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "goes", Type: "ipv6", AutoDelete: true})
	on := seedServer(t, sim, hcloudsim.ServerSeed{Name: "on", Location: "fsn1", NoIPv4: true})
	off := seedServer(t, sim, hcloudsim.ServerSeed{Name: "off", Location: "fsn1", Status: "off", NoIPv4: true})
	lb := createAt(t, c, "lb", 0, 0)
	assign := func(id, to int64, kind string) string {
		return fmt.Sprintf(`POST /v1/primary_ips/%d/actions/assign {"assignee_type": %q, "assignee_id": %d}`, id, kind, to)
	}
	path := fmt.Sprintf("/v1/primary_ips/%d", ip.ID)
	for _, test := range []struct {
		request string
		status  int
		code    string
	}{
		{`POST /v1/primary_ips {"name": "web", "type": "ipv4", "location": "fsn1"}`, 409, "uniqueness_error"},
		{`POST /v1/primary_ips {"name": "x", "type": "ipv5", "location": "fsn1"}`, 422, "invalid_input"},
		{`POST /v1/primary_ips {"name": "x", "type": "ipv4"}`, 422, "invalid_input"},
		{`POST /v1/primary_ips {"name": "x", "type": "ipv4", "location": "moon"}`, 422, "invalid_input"},
		{`POST /v1/primary_ips {"name": "x", "type": "ipv4", "location": 2}`, 201, ""},
		{`PUT ` + path + ` {"name": "goes"}`, 409, "uniqueness_error"},
		{`POST ` + path + `/actions/change_dns_ptr {"ip": "192.0.2.1", "dns_ptr": "x.example.com"}`, 422, "invalid_input"},
		{assign(ip.ID, on.ID, "server"), 422, "server_not_stopped"},
		{assign(ip.ID, lb.ID, "load_balancer"), 422, "invalid_input"},
		{assign(goes.ID, off.ID, "server"), 422, "server_has_ipv6"},
		{fmt.Sprintf(`POST /v1/primary_ips/%d/actions/unassign`, lb.PublicNet.IPv4.ID), 422, "invalid_input"},
		{assign(ip.ID, off.ID, "server"), 201, ""},
		{assign(ip.ID, off.ID, "server"), 422, "primary_ip_already_assigned"},
		{`POST ` + path + `/actions/change_protection {"delete": true}`, 201, ""},
		{`PUT ` + path + ` {"auto_delete": true}`, 422, "invalid_input"},
		{fmt.Sprintf(`POST /v1/primary_ips/%d/actions/change_protection {"delete": true}`, goes.ID), 422, "invalid_input"},
		{`DELETE ` + path, 423, "protected"},
		{`GET /v1/primary_ips?sort=name`, 422, "invalid_input"},
	} {
		var method, to, body string
		_, err := fmt.Sscan(test.request, &method, &to)
		noError(t, err)
		if rest := len(method) + len(to) + 2; rest < len(test.request) {
			body = test.request[rest:]
		}
		if got := send(t, sim, method, to, body); got.status != test.status || got.code() != test.code {
			t.Errorf("%s answers %d %s, want %d %s", test.request, got.status, got.body, test.status, test.code)
		}
	}
	// A server with one shows it as its own, and doesn't delete it.
	got, _ := sim.Server(off.ID)
	if got.PublicNet.IPv4.IP != ip.IP || got.PublicNet.IPv4.ID != ip.ID {
		t.Errorf("the server has %+v, want %s", got.PublicNet.IPv4, ip.IP)
	}
	noError(t, sim.DeleteServer(off.ID))
	if got, _ := sim.PrimaryIP(ip.ID); got.AssigneeID != nil {
		t.Errorf("primary IP is %+v after its server went", got)
	}
	// The same holds for one that is created with it.
	made, _, err := c.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "with", ServerType: &hcloud.ServerType{Name: "cx22"}, Image: &hcloud.Image{Name: "debian-12"}, Location: &hcloud.Location{Name: "fsn1"},
		PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv4: true, IPv4: &hcloud.PrimaryIP{ID: ip.ID}},
	})
	noError(t, err)
	if got, _ := sim.Server(made.Server.ID); got.PublicNet.IPv4.IP != ip.IP {
		t.Errorf("the server has %+v, want %s", got.PublicNet.IPv4, ip.IP)
	}
}

// The filter accepts an address without a prefix length, of both families.
func TestPrimaryIPByAddress(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "other", Type: "ipv6"})
	for _, kind := range []string{"ipv4", "ipv6"} {
		ip := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: kind, Type: kind})
		text, _, _ := strings.Cut(ip.IP, "/")
		got, _, err := client(sim).PrimaryIP.GetByIP(t.Context(), text)
		noError(t, err)
		if got == nil || got.ID != ip.ID {
			t.Errorf("at %s there is %+v, want %d", text, got, ip.ID)
		}
	}
}

// A seed is validated, too.
func TestPrimaryIPSeed(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "web"})
	_, err := sim.CreatePrimaryIP(hcloudsim.PrimaryIPSeed{Name: "web"})
	var refused *hcloudsim.Error
	if !errors.As(err, &refused) || refused.Code != "uniqueness_error" {
		t.Errorf("the same name again: %v", err)
	}
}

// A snapshot without one of its load balancers, or from before there were primary IPs, is
// completed.
func TestRestoredPrimaryIPs(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	kept := seedPrimaryIP(t, sim, hcloudsim.PrimaryIPSeed{Name: "kept"})
	lb := createAt(t, client(sim), "web", kept.ID, 0)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "node"})
	before, _ := sim.Server(s.ID)
	var project map[string]any
	noError(t, json.Unmarshal(sim.Snapshot(), &project))
	restored := func(change func()) *hcloudsim.Simulator {
		change()
		text, err := json.Marshal(project)
		noError(t, err)
		other := newSim(hcloudsim.Options{})
		noError(t, other.Restore(text))
		return other
	}
	old := restored(func() { delete(project, "primary_ips") })
	if got := old.LoadBalancers()[0].PublicNet; got.IPv4.IP != kept.IP ||
		got.IPv6.IP != lb.PublicNet.IPv6.IP.String() || len(old.PrimaryIPs()) != 4 {
		t.Errorf("without primary IPs: %+v, %+v", got, old.PrimaryIPs())
	}
	got := old.Servers()[0].PublicNet
	if ip, there := old.PrimaryIP(got.IPv4.ID); got.IPv4.IP != before.PublicNet.IPv4.IP || !there ||
		ip.AssigneeID == nil || *ip.AssigneeID != s.ID {
		t.Errorf("without primary IPs, the server has %+v, and primary IP %+v", got, ip)
	}
	noError(t, json.Unmarshal(sim.Snapshot(), &project))
	same := restored(func() {})
	if now, _ := same.Server(s.ID); !reflect.DeepEqual(now.PublicNet, before.PublicNet) ||
		len(same.PrimaryIPs()) != 4 {
		t.Errorf("restored, the server has %+v, want %+v", now.PublicNet, before.PublicNet)
	}
	gone := restored(func() { project["load_balancers"], project["servers"] = nil, nil })
	if left := gone.PrimaryIPs(); len(left) != 1 || left[0].AssigneeID != nil {
		t.Errorf("without its load balancer: %+v", left)
	}
}
