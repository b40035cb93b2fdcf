package hcloudsim_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

// route returns hcloud-go's type of a route.
func route(destination, gateway string) hcloud.NetworkRoute {
	return hcloud.NetworkRoute{Destination: ipNet(destination), Gateway: net.ParseIP(gateway)}
}

func addRoute(
	t testing.TB, c *hcloud.Client, n *hcloud.Network, destination, gateway string,
) error {
	_, _, err := c.Network.AddRoute(t.Context(), n, hcloud.NetworkAddRouteOpts{
		Route: route(destination, gateway),
	})
	return err
}

func TestNetworkLife(t *testing.T) {
	c := client(newSim(hcloudsim.Options{}))
	n, _, err := c.Network.Create(t.Context(), hcloud.NetworkCreateOpts{
		Name: "net", IPRange: ipNet("10.0.0.0/8"), Labels: map[string]string{"env": "test"},
		Subnets: []hcloud.NetworkSubnet{{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: "eu-central", IPRange: ipNet("10.1.0.0/16")}},
		Routes:  []hcloud.NetworkRoute{route("10.2.0.0/24", "10.1.0.2")},
	})
	noError(t, err)
	if n.Subnets[0].Gateway.String() != "10.0.0.1" || len(n.Routes) != 1 {
		t.Errorf("network is %+v", n)
	}
	n, _, err = c.Network.Update(t.Context(), n, hcloud.NetworkUpdateOpts{Name: "renamed", Labels: map[string]string{}})
	noError(t, err)
	if n.Name != "renamed" || len(n.Labels) != 0 {
		t.Errorf("network is %+v after its update", n)
	}
	_, _, err = c.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "renamed", IPRange: ipNet("10.0.0.0/8")})
	wantCode(t, err, "uniqueness_error")

	_, _, err = c.Network.ChangeProtection(t.Context(), n, hcloud.NetworkChangeProtectionOpts{
		Delete: hcloud.Ptr(true),
	})
	noError(t, err)
	_, err = c.Network.Delete(t.Context(), n)
	wantCode(t, err, "protected")
	_, _, err = c.Network.ChangeProtection(t.Context(), n, hcloud.NetworkChangeProtectionOpts{
		Delete: hcloud.Ptr(false),
	})
	noError(t, err)
	_, err = c.Network.Delete(t.Context(), n)
	noError(t, err)
	if n, _, err := c.Network.GetByID(t.Context(), n.ID); n != nil || err != nil {
		t.Errorf("network is still there: %v, %v", n, err)
	}
}

func TestRouteRules(t *testing.T) {
	setUp := func(t *testing.T) (*hcloudsim.Simulator, string) {
		sim := newSim(hcloudsim.Options{})
		n, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: "net", IPRange: prefix("10.0.0.0/8"),
			Subnets: []hcloudsim.SubnetSeed{
				{IPRange: prefix("10.0.0.0/16")},
				{IPRange: prefix("10.1.0.0/24"), Type: "vswitch", VSwitch: 7},
			},
			Routes: []hcloudsim.RouteSeed{{Destination: prefix("10.244.0.0/24"), Gateway: prefix("10.0.0.2/32").Addr()}},
		})
		noError(t, err)
		return sim, fmt.Sprintf("/v1/networks/%d/actions/add_route", n.ID)
	}
	tests := []struct {
		destination, gateway, field string
	}{
		{"10.244.1.0/24", "10.0.0.3", ""},
		{"10.244.1.7/32", "10.0.0.3", ""},
		{"192.168.0.0/16", "10.0.0.3", ""},
		{"172.16.0.0/16", "10.0.0.3", ""},
		{"0.0.0.0/0", "10.0.0.3", ""},
		{"10.244.1.0/24", "10.9.9.9", ""}, // no member's, which the API accepts
		{"10.244.0.0/24", "10.0.0.3", "destination"},
		{"10.244.0.128/25", "10.0.0.3", "destination"},
		{"10.244.0.0/16", "10.0.0.3", "destination"},
		{"10.0.5.0/24", "10.0.0.3", "destination"},
		{"10.0.0.0/8", "10.0.0.3", "destination"},
		{"172.31.1.0/24", "10.0.0.3", "destination"},
		{"172.31.1.1/32", "10.0.0.3", "destination"},
		{"172.16.0.0/12", "10.0.0.3", "destination"},
		{"8.8.8.0/24", "10.0.0.3", "destination"},
		{"10.0.0.0/7", "10.0.0.3", "destination"},
		{"0.0.0.0/1", "10.0.0.3", "destination"},
		{"10.244.1.1/24", "10.0.0.3", "destination"},
		{"10.244.1.0", "10.0.0.3", "destination"},
		{"fd00::/64", "10.0.0.3", "destination"},
		{"10.244.1.0/24", "10.0.0.1", "gateway"},
		{"10.244.1.0/24", "10.1.0.5", "gateway"}, // behind the vSwitch
		{"10.244.1.0/24", "172.31.1.1", "gateway"},
		{"10.244.1.0/24", "192.168.0.5", "gateway"},
		{"10.244.1.0/24", "nil", "gateway"},
		{"10.244.1.0/24", "fd00::1", "gateway"},
	}
	for _, test := range tests {
		t.Run(test.destination+" via "+test.gateway, func(t *testing.T) {
			sim, path := setUp(t)
			got := send(t, sim, "POST", path, fmt.Sprintf(`{"destination": %q, "gateway": %q}`, test.destination, test.gateway))
			if test.field == "" {
				got.want(t, http.StatusCreated, "")
				return
			}
			got.want(t, http.StatusUnprocessableEntity, "invalid_input")
			if got.field() != test.field {
				t.Errorf("answer is about %q, want %q", got.field(), test.field)
			}
		})
	}
}

func TestDefaultRouteOnlyOnce(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	noError(t, addRoute(t, c, n, "0.0.0.0/0", "10.0.0.2"))
	noError(t, addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2"))
	wantCode(t, addRoute(t, c, n, "0.0.0.0/0", "10.0.0.3"), "invalid_input")
}

func TestDeleteRoute(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	noError(t, addRoute(t, c, n, "10.244.0.0/24", "10.0.0.2"))
	_, _, err := c.Network.DeleteRoute(t.Context(), n, hcloud.NetworkDeleteRouteOpts{Route: route("10.244.0.0/24", "10.0.0.3")})
	wantCode(t, err, "not_found")
	_, _, err = c.Network.DeleteRoute(t.Context(), n, hcloud.NetworkDeleteRouteOpts{Route: route("10.244.0.0/24", "10.0.0.2")})
	noError(t, err)
	if now, _ := sim.Network(n.ID); len(now.Routes) != 0 {
		t.Errorf("routes are %v after the deletion", now.Routes)
	}
}

func TestNetworkRanges(t *testing.T) {
	for ipRange, accepted := range map[string]bool{
		"10.0.0.0/8": true, "10.0.0.0/24": true, "172.16.0.0/12": true, "192.168.1.0/24": true,
		"10.0.0.0/25": false, "10.0.0.0/7": false, "8.0.0.0/16": false, "10.0.0.1/16": false, "fd00::/16": false, "": false,
	} {
		got := send(t, newSim(hcloudsim.Options{}), "POST", "/v1/networks", fmt.Sprintf(`{"name": "net", "ip_range": %q}`, ipRange))
		if accepted {
			got.want(t, http.StatusCreated, "")
		} else {
			got.want(t, http.StatusUnprocessableEntity, "invalid_input")
		}
	}
}

func TestChangeIPRange(t *testing.T) {
	for to, accepted := range map[string]bool{
		"10.0.0.0/15": true, "10.0.0.0/8": true, "10.0.0.0/16": true,
		"10.0.0.0/17": false, "10.1.0.0/16": false, "10.0.0.0/7": false,
	} {
		sim := newSim(hcloudsim.Options{})
		made, err := sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "net", IPRange: prefix("10.0.0.0/16")})
		noError(t, err)
		_, _, err = client(sim).Network.ChangeIPRange(t.Context(), &hcloud.Network{ID: made.ID},
			hcloud.NetworkChangeIPRangeOpts{IPRange: ipNet(to)})
		if accepted {
			noError(t, err)
		} else {
			wantCode(t, err, "invalid_input")
		}
	}
}

func TestNetworkLimits(t *testing.T) {
	sim := newSim(hcloudsim.Options{RouteLimit: 2, AttachmentLimit: 2, SubnetLimit: 2, Quotas: map[string]int{"network": 1, "server": 3}})
	c, n := client(sim), seedNetwork(t, sim)
	for i := range 2 {
		noError(t, addRoute(t, c, n, fmt.Sprintf("10.244.%d.0/24", i), "10.0.0.2"))
		seedServer(t, sim, hcloudsim.ServerSeed{Name: fmt.Sprintf("node-%d", i), Network: n.ID})
	}
	late := seedServer(t, sim, hcloudsim.ServerSeed{Name: "late"})
	subnet := func(ipRange string) error {
		_, _, err := c.Network.AddSubnet(t.Context(), n, hcloud.NetworkAddSubnetOpts{
			Subnet: hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: "eu-central", IPRange: ipNet(ipRange)},
		})
		return err
	}
	noError(t, subnet("10.1.0.0/16"))
	_, _, attached := c.Server.AttachToNetwork(t.Context(), late, hcloud.ServerAttachToNetworkOpts{
		Network: n,
	})
	_, _, network := c.Network.Create(t.Context(), hcloud.NetworkCreateOpts{Name: "more", IPRange: ipNet("10.0.0.0/8")})
	_, server := sim.CreateServer(hcloudsim.ServerSeed{Name: "more"})
	refusals := map[string]error{
		"network_route_limit":      addRoute(t, c, n, "10.244.2.0/24", "10.0.0.2"),
		"network_subnet_limit":     subnet("10.2.0.0/16"),
		"network_attachment_limit": attached,
		"network_limit":            network,
		"server_limit":             server,
	}
	for limit, err := range refusals {
		var local *hcloudsim.Error // the error of the Go API
		if errors.As(err, &local) {
			if local.Code != "resource_limit_exceeded" || local.Status != http.StatusForbidden {
				t.Errorf("%s: error is %v", limit, err)
			}
			continue
		}
		wantCode(t, err, "resource_limit_exceeded")
		if !strings.Contains(err.Error(), limit) {
			t.Errorf("error %q does not name %s", err, limit)
		}
	}
	got := send(t, sim, "POST", fmt.Sprintf("/v1/networks/%d/actions/add_route", n.ID), `{"destination": "10.244.2.0/24", "gateway": "10.0.0.2"}`)
	if !strings.Contains(got.body, `"limits":[{"name":"network_route_limit"}]`) {
		t.Errorf("answer %s does not name the limit in its details", got.body)
	}
}

func TestDeleteNetworkDetaches(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
	_, err := c.Network.Delete(t.Context(), n)
	noError(t, err)
	if now, _ := sim.Server(s.ID); len(now.PrivateNet) != 0 {
		t.Errorf("server is still in %+v", now.PrivateNet)
	}
}
