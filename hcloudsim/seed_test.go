package hcloudsim_test

import (
	"net/netip"
	"testing"

	"github.com/underlay-ccm/underlay/hcloudsim"
)

// Seeds follow the rules, and leave no entry in the log.
func TestSeeding(t *testing.T) {
	sim := newSim(hcloudsim.Options{})
	n := seedNetwork(t, sim)
	s := seedServer(t, sim, hcloudsim.ServerSeed{
		Name: "a", Network: n.ID, AliasIPs: []netip.Addr{netip.MustParseAddr("10.0.0.8")},
		PublicIPv4: netip.MustParseAddr("203.0.113.5"), PublicIPv6: prefix("2001:db8:5::/64"),
	})
	now, _ := sim.Server(s.ID)
	if now.PublicNet.IPv4.IP != "203.0.113.5" || now.PublicNet.IPv6.IP != "2001:db8:5::/64" || now.PrivateNet[0].AliasIPs[0] != "10.0.0.8" {
		t.Errorf("server is %+v", now)
	}
	for name, err := range map[string]error{
		"same name":       ignore(sim.CreateServer(hcloudsim.ServerSeed{Name: "a"})),
		"unknown network": ignore(sim.CreateServer(hcloudsim.ServerSeed{Name: "b", Network: 7})),
		"taken address":   ignore(sim.CreateServer(hcloudsim.ServerSeed{Name: "b", Network: n.ID, PrivateIP: netip.MustParseAddr("10.0.0.8")})),
		"bad network":     ignore(sim.CreateNetwork(hcloudsim.NetworkSeed{Name: "x"})),
		"route overlap":   sim.AddRoute(n.ID, hcloudsim.RouteSeed{Destination: prefix("10.0.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.2")}),
		"no such route":   sim.DeleteRoute(n.ID, prefix("10.9.0.0/24")),
		"no such server":  sim.DeleteServer(7),
	} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	noError(t, sim.AddRoute(n.ID, hcloudsim.RouteSeed{Destination: prefix("10.9.0.0/24"), Gateway: netip.MustParseAddr("10.0.0.2")}))
	noError(t, sim.DeleteRoute(n.ID, prefix("10.9.0.0/24")))
	noError(t, sim.DeleteServer(s.ID))
	noError(t, sim.DeleteNetwork(n.ID))
	if len(sim.Servers())+len(sim.Networks())+len(sim.Requests())+len(sim.Actions()) != 0 {
		t.Error("something is left over")
	}
}

func ignore[T any](_ T, err error) error { return err }
