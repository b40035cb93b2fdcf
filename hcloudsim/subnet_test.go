package hcloudsim_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestSubnetRules(t *testing.T) {
	setUp := func(t *testing.T) (*hcloudsim.Simulator, string) {
		sim := newSim(hcloudsim.Options{})
		n, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: "net", IPRange: prefix("10.0.0.0/16"),
			Subnets: []hcloudsim.SubnetSeed{{IPRange: prefix("10.0.0.0/24")}},
			Routes:  []hcloudsim.RouteSeed{{Destination: prefix("10.0.9.0/24"), Gateway: prefix("10.0.0.2/32").Addr()}},
		})
		noError(t, err)
		return sim, fmt.Sprintf("/v1/networks/%d/actions/add_subnet", n.ID)
	}
	tests := []struct {
		body, field string
	}{
		{`{"type":"cloud","network_zone":"eu-central","ip_range":"10.0.1.0/24"}`, ""},
		{`{"type":"server","network_zone":"eu-central","ip_range":"10.0.1.0/30"}`, ""},
		{`{"type":"vswitch","network_zone":"eu-central","ip_range":"10.0.1.0/24","vswitch_id":5}`, ""},
		{`{"type":"cloud","network_zone":"eu-central"}`, ""},
		{`{"type":"cloud","network_zone":"eu-central","ip_range":"10.0.1.0/31"}`, "ip_range"},
		{`{"type":"cloud","network_zone":"eu-central","ip_range":"10.0.0.128/25"}`, "ip_range"},
		{`{"type":"cloud","network_zone":"eu-central","ip_range":"10.0.9.0/25"}`, "ip_range"},
		{`{"type":"cloud","network_zone":"eu-central","ip_range":"10.1.0.0/24"}`, "ip_range"},
		{`{"type":"cloud","network_zone":"eu-central","ip_range":"10.0.0.0/8"}`, "ip_range"},
		{`{"type":"cloud","network_zone":"us-east","ip_range":"10.0.1.0/24"}`, "network_zone"},
		{`{"type":"cloud","network_zone":"moon","ip_range":"10.0.1.0/24"}`, "network_zone"},
		{`{"type":"wire","network_zone":"eu-central"}`, "type"},
		{`{"type":"vswitch","network_zone":"eu-central"}`, "vswitch_id"},
		{`{"type":"cloud","network_zone":"eu-central","vswitch_id":5}`, "vswitch_id"},
	}
	for _, test := range tests {
		t.Run(test.body, func(t *testing.T) {
			sim, path := setUp(t)
			got := send(t, sim, "POST", path, test.body)
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

// Without a range, a subnet gets the first /24 that is free of subnets and
// routes, until there is none.
func TestSubnetWithoutRange(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	made, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
		Name: "net", IPRange: prefix("10.0.252.0/22"),
		Subnets: []hcloudsim.SubnetSeed{{IPRange: prefix("10.0.252.0/25")}},
		Routes:  []hcloudsim.RouteSeed{{Destination: prefix("10.0.254.128/25"), Gateway: prefix("10.0.252.2/32").Addr()}},
	})
	noError(t, err)
	c, n := client(sim), &hcloud.Network{ID: made.ID}
	add := func() error {
		_, _, err := c.Network.AddSubnet(t.Context(), n, hcloud.NetworkAddSubnetOpts{
			Subnet: hcloud.NetworkSubnet{Type: hcloud.NetworkSubnetTypeCloud, NetworkZone: "eu-central"},
		})
		return err
	}
	noError(t, add())
	noError(t, add())
	wantCode(t, add(), "invalid_input")
	now, _ := sim.Network(n.ID)
	if now.Subnets[1].IPRange != "10.0.253.0/24" || now.Subnets[2].IPRange != "10.0.255.0/24" {
		t.Errorf("subnets are %+v", now.Subnets)
	}
}

func TestDeleteSubnet(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
	remove := func(ipRange string) error {
		_, _, err := c.Network.DeleteSubnet(t.Context(), n, hcloud.NetworkDeleteSubnetOpts{
			Subnet: hcloud.NetworkSubnet{IPRange: ipNet(ipRange)},
		})
		return err
	}
	// Terraform's provider also matches the text.
	refused := func(words string) {
		t.Helper()
		err := remove("10.0.0.0/16")
		wantCode(t, err, "service_error")
		if !strings.Contains(err.Error(), words) {
			t.Errorf("the answer is %q, want %q in it", err, words)
		}
	}
	wantCode(t, remove("10.7.0.0/16"), "not_found")
	refused("servers are attached")
	_, _, err := c.Server.DetachFromNetwork(t.Context(), s, hcloud.ServerDetachFromNetworkOpts{
		Network: n,
	})
	noError(t, err)
	lb := createWhole(t, c, n).LoadBalancer
	refused("network has attached resources")
	_, _, err = c.LoadBalancer.DetachFromNetwork(t.Context(), lb,
		hcloud.LoadBalancerDetachFromNetworkOpts{Network: n})
	noError(t, err)
	noError(t, remove("10.0.0.0/16"))
}

// A network can be coupled with several vSwitches.
func TestSeveralVSwitchSubnets(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	path := fmt.Sprintf("/v1/networks/%d/actions/add_subnet", seedNetwork(t, sim).ID)
	for id := range 2 {
		send(t, sim, "POST", path, fmt.Sprintf(`{"type": "vswitch", "network_zone": "eu-central",
			"ip_range": "10.%d.0.0/24", "vswitch_id": %[1]d}`, id+5)).want(t, http.StatusCreated, "")
	}
}
