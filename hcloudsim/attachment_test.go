package hcloudsim_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"github.com/underlay-ccm/underlay/hcloudsim"
)

func TestAttachRules(t *testing.T) {
	sim := newSim(hcloudsim.Options{ServerNetworkLimit: 2})
	c, n := client(sim), seedNetwork(t, sim)
	network := func(name, ipRange string, subnets ...hcloudsim.SubnetSeed) *hcloud.Network {
		made, err := sim.CreateNetwork(hcloudsim.NetworkSeed{
			Name: name, IPRange: prefix(ipRange), Subnets: subnets,
		})
		noError(t, err)
		return &hcloud.Network{ID: made.ID}
	}
	american := network("american", "192.168.0.0/16", hcloudsim.SubnetSeed{IPRange: prefix("192.168.0.0/24"), Zone: "us-east"})
	overlapping := network("overlapping", "10.0.0.0/16")
	tiny := network("tiny", "172.16.0.0/24", hcloudsim.SubnetSeed{IPRange: prefix("172.16.0.0/30")})
	second := network("second", "192.168.0.0/24")
	third := network("third", "192.168.7.0/24")
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "first", Network: n.ID, PrivateIP: netip.MustParseAddr("10.0.0.9")})
	seedServer(t, sim, hcloudsim.ServerSeed{Name: "tenant", Network: tiny.ID})

	attach := func(s *hcloud.Server, n *hcloud.Network, ip string, aliases ...string) error {
		opts := hcloud.ServerAttachToNetworkOpts{Network: n, IP: net.ParseIP(ip)}
		for _, alias := range aliases {
			opts.AliasIPs = append(opts.AliasIPs, net.ParseIP(alias))
		}
		_, _, err := c.Server.AttachToNetwork(t.Context(), s, opts)
		return err
	}
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a"})
	for _, refused := range []struct {
		network *hcloud.Network
		ip      string
		aliases []string
		code    string
	}{
		{n, "10.0.0.9", nil, "ip_not_available"},                            // taken
		{n, "10.0.0.1", nil, "ip_not_available"},                            // the gateway
		{n, "10.0.0.0", nil, "ip_not_available"},                            // the subnet's first
		{n, "10.0.255.255", nil, "ip_not_available"},                        // and last
		{n, "10.7.0.5", nil, "ip_not_available"},                            // in no subnet
		{n, "10.0.0.5", []string{"10.0.0.5"}, "ip_not_available"},           // twice
		{n, "10.0.0.5", []string{"10.0.0.9"}, "ip_not_available"},           // taken
		{american, "", nil, "no_subnet_available"},                          // in another zone
		{tiny, "", nil, "no_subnet_available"},                              // full
		{&hcloud.Network{ID: 7}, "", nil, "not_found"},                      //
		{n, "", []string{"10.0.0.2", "10.0.0.3"}, "ip_not_available"},       // the alias is the chosen address
		{&hcloud.Network{ID: s.ID}, "", nil, "not_found"},                   // a server's ID
		{tiny, "172.16.0.3", nil, "ip_not_available"},                       // the last of the subnet
		{tiny, "172.16.0.1", nil, "ip_not_available"},                       // the gateway
		{n, "172.31.1.1", []string{"172.31.1.1"}, "ip_not_available"},       // the public gateway
		{overlapping, "10.0.0.1", []string{"10.0.0.7"}, "ip_not_available"}, // the gateway
	} {
		wantCode(t, attach(s, refused.network, refused.ip, refused.aliases...), refused.code)
	}

	noError(t, attach(s, n, "10.0.0.5", "10.0.0.6"))
	wantCode(t, attach(s, n, ""), "server_already_attached")
	wantCode(t, attach(s, overlapping, ""), "networks_overlap")
	noError(t, attach(s, second, ""))
	wantCode(t, attach(s, third, ""), "resource_limit_exceeded")

	now, _ := sim.Server(s.ID)
	if p := now.PrivateNet[0]; p.IP != "10.0.0.5" || len(p.AliasIPs) != 1 || p.AliasIPs[0] != "10.0.0.6" || p.MACAddress == "" {
		t.Errorf("attachment is %+v", p)
	}
	_, _, err := c.Server.DetachFromNetwork(t.Context(), s, hcloud.ServerDetachFromNetworkOpts{
		Network: third,
	})
	wantCode(t, err, "invalid_input")
}

func TestAliasIPs(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	c, n := client(sim), seedNetwork(t, sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{Name: "a", Network: n.ID})
	other := seedServer(t, sim, hcloudsim.ServerSeed{Name: "b", Network: n.ID})
	change := func(s *hcloud.Server, aliases ...string) error {
		opts := hcloud.ServerChangeAliasIPsOpts{Network: n}
		for _, alias := range aliases {
			opts.AliasIPs = append(opts.AliasIPs, net.ParseIP(alias))
		}
		_, _, err := c.Server.ChangeAliasIPs(t.Context(), s, opts)
		return err
	}
	noError(t, change(s, "10.0.1.1", "10.0.1.2"))
	noError(t, change(s, "10.0.1.2", "10.0.1.3")) // replaces, may keep
	wantCode(t, change(s, "10.0.0.2"), "ip_not_available")
	wantCode(t, change(other, "10.0.1.2"), "ip_not_available")
	noError(t, change(other, "10.0.1.1")) // free again
	if now, _ := sim.Server(s.ID); fmt.Sprint(now.PrivateNet[0].AliasIPs) != "[10.0.1.2 10.0.1.3]" {
		t.Errorf("aliases are %v", now.PrivateNet[0].AliasIPs)
	}
}
