package hcloudsim_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// loadBalancerWorld has a network with a vSwitch, a server in it, one outside,
// one without public IPv4, a load balancer attached and one not.
func loadBalancerWorld(
	t *testing.T,
) (sim *hcloudsim.Simulator, in, out, private int64, attached, lone *hcloud.LoadBalancer) {
	t.Helper()
	sim = newSim(hcloudsim.Options{
		OwnedIPs: []netip.Addr{netip.MustParseAddr("203.0.113.7")},
		Owned:    func(ip netip.Addr) bool { return ip == netip.MustParseAddr("203.0.113.17") },
	})
	n, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "net", IPRange: prefix("10.0.0.0/8"),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: prefix("10.0.0.0/16")}, {IPRange: prefix("10.1.0.0/24"), Type: "vswitch", VSwitch: 7}},
	})
	noError(t, err)
	in = seedServer(t, sim, hcloudsim.ServerSeed{Name: "in", Network: n.ID, Labels: map[string]string{"role": "web"}}).ID
	out = seedServer(t, sim, hcloudsim.ServerSeed{Name: "out", PublicIPv6: prefix("2001:db8:7::/64")}).ID
	private = seedServer(t, sim, hcloudsim.ServerSeed{Name: "private", Network: n.ID, NoIPv4: true}).ID
	c := client(sim)
	attached = createWhole(t, c, &hcloud.Network{ID: n.ID}).LoadBalancer
	made, _, err := c.LoadBalancer.Create(t.Context(), hcloud.LoadBalancerCreateOpts{
		Name: "lone", LoadBalancerType: &hcloud.LoadBalancerType{Name: "lb11"}, NetworkZone: "eu-central",
	})
	noError(t, err)
	return sim, in, out, private, attached, made.LoadBalancer
}

func TestTargetRules(t *testing.T) {
	sim, in, out, private, attached, lone := loadBalancerWorld(t)
	server := func(id int64, rest string) string {
		return fmt.Sprintf(`{"type": "server", "server": {"id": %d}%s}`, id, rest)
	}
	const usePrivate = `, "use_private_ip": true`
	for _, test := range []struct {
		lb         *hcloud.LoadBalancer
		body, code string
	}{
		{attached, server(in, usePrivate), ""},
		{attached, server(in, usePrivate), "target_already_defined"},
		{attached, server(in, ""), "target_already_defined"},
		{attached, server(out, usePrivate), "resolve_cloud_private_targets_error"},
		{attached, server(out, ""), ""},
		{attached, server(private, ""), "resolve_cloud_public_targets_error"},
		{attached, server(private, usePrivate), ""},
		{attached, server(4711, ""), "not_found"},
		{lone, server(in, usePrivate), "load_balancer_not_attached_to_network"},
		{lone, server(in, ""), ""},
		{lone, fmt.Sprintf(`{"type": "server", "server": {"id": %d, "ip": "2001:db8:7::5"}}`, out), ""},
		{lone, fmt.Sprintf(`{"type": "server", "server": {"id": %d, "ip": "2001:db8:8::5"}}`, out), "ip_not_assigned_to_server"},
		{lone, `{"type": "server"}`, "invalid_input"},
		{lone, `{"type": "cloud"}`, "invalid_input"},
		{lone, `{"type": "label_selector", "label_selector": {"selector": "role=web"}}`, ""},
		{lone, `{"type": "label_selector", "label_selector": {"selector": "role=web"}}`, "target_already_defined"},
		{lone, `{"type": "label_selector", "label_selector": {"selector": "role="}, "use_private_ip": true}`, "load_balancer_not_attached_to_network"},
		{lone, `{"type": "label_selector", "label_selector": {"selector": "a b"}}`, "invalid_input"},
		{lone, `{"type": "label_selector"}`, "invalid_input"},
		{lone, `{"type": "ip", "ip": {"ip": "203.0.113.7"}}`, ""},
		{lone, `{"type": "ip", "ip": {"ip": "203.0.113.17"}}`, ""},
		{lone, `{"type": "ip", "ip": {"ip": "203.0.113.8"}}`, "ip_not_owned"},
		{lone, `{"type": "ip", "ip": {"ip": "198.18.0.1"}}`, "cloud_resource_ip_not_allowed"},
		{lone, `{"type": "ip", "ip": {"ip": "10.1.0.5"}}`, "load_balancer_not_attached_to_network"},
		{attached, `{"type": "ip", "ip": {"ip": "10.1.0.5"}}`, ""},
		{attached, `{"type": "ip", "ip": {"ip": "10.0.0.5"}}`, "ip_not_in_vswitch_subnet"},
		{attached, `{"type": "ip", "ip": {"ip": "10.1.0.6"}, "use_private_ip": true}`, "invalid_input"},
		{attached, `{"type": "ip", "ip": {"ip": "here"}}`, "invalid_input"},
	} {
		t.Run(test.lb.Name+" "+test.body, func(t *testing.T) {
			got := send(t, sim, "POST", fmt.Sprintf("/v1/load_balancers/%d/actions/add_target", test.lb.ID), test.body)
			if got.code() != test.code {
				t.Errorf("answer is %s, want the code %q", got.body, test.code)
			}
			if test.code != "" && test.code != "not_found" && got.status != http.StatusUnprocessableEntity {
				t.Errorf("status of %s is %d", test.code, got.status)
			}
		})
	}
}

func TestIPTargetNeedsVSwitch(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	lb := createWhole(t, client(sim), seedNetwork(t, sim)).LoadBalancer
	got := send(t, sim, "POST", fmt.Sprintf("/v1/load_balancers/%d/actions/add_target", lb.ID), `{"type": "ip", "ip": {"ip": "10.1.0.5"}}`)
	got.want(t, http.StatusUnprocessableEntity, "network_has_no_vswitch_subnet")
}

func TestIPv6AddressAsTarget(t *testing.T) {
	sim := newSim(hcloudsim.Options{
		Owned: func(ip netip.Addr) bool { return prefix("2001:db8:9::/64").Contains(ip) },
	})
	lb := createWhole(t, client(sim), nil).LoadBalancer
	path := fmt.Sprintf("/v1/load_balancers/%d/actions/add_target", lb.ID)
	send(t, sim, "POST", path, `{"type": "ip", "ip": {"ip": "2001:db8:9::2"}}`).want(t, 201, "")
}

// Targets of both kinds in a creation are validated like added ones, and counted together.
func TestCreationWithTargetsOfBothKinds(t *testing.T) {
	sim, in, _, _, attached, _ := loadBalancerWorld(t)
	network := attached.PrivateNet[0].Network.ID
	create := func(name, ip string) response {
		return send(t, sim, "POST", "/v1/load_balancers", fmt.Sprintf(`{"name": %q, "load_balancer_type": "lb11", "location": "nbg1", "network": %d, "targets": [
			{"type": "server", "server": {"id": %d}, "use_private_ip": true}, {"type": "ip", "ip": {"ip": %q}}]}`, name, network, in, ip))
	}
	if got := create("both", "10.1.0.5"); got.status != http.StatusCreated {
		t.Fatalf("%s", got.body)
	}
	create("cloud", "10.0.0.5").want(t, http.StatusUnprocessableEntity, "ip_not_in_vswitch_subnet")
	create("foreign", "203.0.113.8").want(t, http.StatusUnprocessableEntity, "ip_not_owned")

	i := slices.IndexFunc(sim.LoadBalancers(), func(b schema.LoadBalancer) bool { return b.Name == "both" })
	both := sim.LoadBalancers()[i]
	if len(both.Targets) != 2 || len(sim.LoadBalancers()) != 3 {
		t.Fatalf("%d load balancers, targets %+v", len(sim.LoadBalancers()), both.Targets)
	}
	for n := range 24 {
		got := send(t, sim, "POST", fmt.Sprintf("/v1/load_balancers/%d/actions/add_target", both.ID), fmt.Sprintf(`{"type": "ip", "ip": {"ip": "10.1.0.%d"}}`, 100+n))
		if n < 23 && got.status != http.StatusCreated {
			t.Fatalf("target %d: %s", n+3, got.body)
		}
		if n == 23 {
			got.want(t, http.StatusForbidden, "resource_limit_exceeded")
		}
	}
}

func TestRemoveTarget(t *testing.T) {
	sim, in, _, _, attached, _ := loadBalancerWorld(t)
	c, s := client(sim), &hcloud.Server{ID: in}
	_, _, err := c.LoadBalancer.RemoveServerTarget(t.Context(), attached, s)
	wantCode(t, err, "not_found")
	_, _, err = c.LoadBalancer.AddServerTarget(t.Context(), attached,
		hcloud.LoadBalancerAddServerTargetOpts{Server: s, UsePrivateIP: hcloud.Ptr(true)})
	noError(t, err)
	_, _, err = c.LoadBalancer.RemoveServerTarget(t.Context(), attached, s)
	noError(t, err)
	if lb, _ := sim.LoadBalancer(attached.ID); len(lb.Targets) != 0 {
		t.Errorf("targets are %+v", lb.Targets)
	}
}

func TestDetachDropsPrivateTargets(t *testing.T) {
	sim, in, out, _, attached, _ := loadBalancerWorld(t)
	c := client(sim)
	for id, usePrivate := range map[int64]bool{in: true, out: false} {
		_, _, err := c.LoadBalancer.AddServerTarget(t.Context(), attached,
			hcloud.LoadBalancerAddServerTargetOpts{
				Server: &hcloud.Server{ID: id}, UsePrivateIP: &usePrivate,
			})
		noError(t, err)
	}
	_, _, err := c.LoadBalancer.DisablePublicInterface(t.Context(), attached)
	wantCode(t, err, "targets_without_use_private_ip")
	_, _, err = c.LoadBalancer.DetachFromNetwork(t.Context(), attached,
		hcloud.LoadBalancerDetachFromNetworkOpts{Network: attached.PrivateNet[0].Network})
	noError(t, err)
	lb, _ := sim.LoadBalancer(attached.ID)
	if len(lb.PrivateNet) != 0 || len(lb.Targets) != 1 || lb.Targets[0].Server.ID != out {
		t.Errorf("load balancer is in %+v with the targets %+v", lb.PrivateNet, lb.Targets)
	}
	_, _, err = c.LoadBalancer.DisablePublicInterface(t.Context(), attached)
	wantCode(t, err, "load_balancer_not_attached_to_network")
}

func TestPublicInterface(t *testing.T) {
	sim, in, out, _, attached, _ := loadBalancerWorld(t)
	c := client(sim)
	_, _, err := c.LoadBalancer.DisablePublicInterface(t.Context(), attached)
	noError(t, err)
	_, _, err = c.LoadBalancer.AddServerTarget(t.Context(), attached,
		hcloud.LoadBalancerAddServerTargetOpts{Server: &hcloud.Server{ID: out}})
	wantCode(t, err, "load_balancer_public_interface_disabled")
	_, _, err = c.LoadBalancer.AddServerTarget(t.Context(), attached,
		hcloud.LoadBalancerAddServerTargetOpts{
			Server: &hcloud.Server{ID: in}, UsePrivateIP: hcloud.Ptr(true),
		})
	noError(t, err)
	_, _, err = c.LoadBalancer.EnablePublicInterface(t.Context(), attached)
	noError(t, err)
	if lb, _ := sim.LoadBalancer(attached.ID); !lb.PublicNet.Enabled {
		t.Error("public interface is still disabled")
	}
	_, _, err = c.LoadBalancer.AttachToNetwork(t.Context(), attached,
		hcloud.LoadBalancerAttachToNetworkOpts{Network: attached.PrivateNet[0].Network})
	wantCode(t, err, "load_balancer_already_attached")
}

func TestLabelSelectorTargetFollowsServers(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c := client(sim)
	lb := createWhole(t, c, nil).LoadBalancer
	_, _, err := c.LoadBalancer.AddLabelSelectorTarget(t.Context(), lb, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: "role=web"})
	noError(t, err)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Labels: map[string]string{"role": "web"}})
	now, _, err := c.LoadBalancer.GetByID(t.Context(), lb.ID)
	noError(t, err)
	if in := now.Targets[0].Targets; len(in) != 1 || in[0].Server.Server.ID != s.ID || in[0].HealthStatus[0].Status != "healthy" {
		t.Errorf("target is %+v", now.Targets[0])
	}
	noError(t, sim.DeleteServer(s.ID))
	if now, _ := sim.LoadBalancer(lb.ID); len(now.Targets) != 1 || len(now.Targets[0].Targets) != 0 {
		t.Errorf("targets are %+v", now.Targets)
	}
}

func TestDeletedServerIsNoTarget(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	lb := createWhole(t, client(sim), nil, s).LoadBalancer
	_, _, err := client(sim).Server.DeleteWithResult(t.Context(), s)
	noError(t, err)
	if now, _ := sim.LoadBalancer(lb.ID); len(now.Targets) != 0 {
		t.Errorf("targets are %+v", now.Targets)
	}
}
