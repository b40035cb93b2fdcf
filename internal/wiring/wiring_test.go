package wiring_test

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/wiring"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

// A field that is added to lb.Defaults needs a setting, and a value here.
func TestEveryDefaultComesFromTheConfiguration(t *testing.T) {
	got := reflect.ValueOf(wiring.Defaults(config.Config{
		ClusterName: "c",
		IPAM:        config.IPAM{Pools: []config.Pool{{Name: "own", Own: true, NodeMask: 80}}},
		LoadBalancers: config.LoadBalancers{Defaults: lb.Defaults{
			Location: "fsn1", NetworkZone: "eu-central", Type: "lb21", Algorithm: "least_connections", UsePrivateIP: true,
			DisablePrivateIngress: true, DisablePublicNetwork: true, UsesProxyProtocol: true,
			DisableIPv6:   true,
			PrivateSubnet: netip.MustParsePrefix("10.0.1.0/24"), Classless: true,
			CheckDefaults: lb.CheckDefaults{
				HealthCheck: "node-port", HealthCheckInterval: time.Second, HealthCheckTimeout: time.Second, HealthCheckRetries: 1,
			},
			Grants: lb.Grants{
				Adoptable: []lb.Adoptable{{Name: "web"}}, PrimaryIPs: []lb.GivenAddress{{Name: "web"}},
				Shared: []lb.SharedName{{Name: "edge"}}, Certificates: "labelled",
			},
			PodTargetSources: []netip.Prefix{netip.MustParsePrefix("2001:db8::/48")},
		}},
	}, 7, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24")}))
	for _, field := range reflect.VisibleFields(got.Type()) {
		if got.FieldByIndex(field.Index).IsZero() {
			t.Errorf("%s is not filled in", field.Name)
		}
	}
}

func TestPools(t *testing.T) {
	var c config.Config
	c.IPAM.Pools = []config.Pool{
		{Name: "a", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24},
		{Name: "b", Own: true, NodeMask: 80, Draining: true},
	}
	want := []ipam.PoolConfig{
		{Name: "a", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24, State: ipam.Active},
		{Name: "b", Own: true, NodeMask: 80, State: ipam.Draining},
	}
	if got := wiring.Pools(c); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Only IPv4 podCIDRs are in the network's route table, and not those inside the vSwitch's subnet.
func TestRanges(t *testing.T) {
	var c config.Config
	c.VSwitch.Subnet = netip.MustParsePrefix("10.1.0.0/16")
	c.IPAM.Pools = []config.Pool{
		{Name: "a", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24, Draining: true},
		{Name: "b", Prefix: netip.MustParsePrefix("fd00::/48"), NodeMask: 64},
		{Name: "c", Own: true, NodeMask: 80},
		{Name: "d", Prefix: netip.MustParsePrefix("10.1.128.0/17"), NodeMask: 25, VSwitch: true, Draining: true},
	}
	want := []routes.Range{{Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeBits: 24}}
	if got := wiring.Ranges(c); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	inside := routes.VSwitch{Subnet: c.VSwitch.Subnet, Ranges: []routes.Range{{Prefix: netip.MustParsePrefix("10.1.128.0/17"), NodeBits: 25}}}
	if got := wiring.VSwitch(c); !reflect.DeepEqual(got, inside) {
		t.Errorf("got %+v, want %+v", got, inside)
	}
}

// Each machine has the type of its provider, with all settings of the configuration.
func TestTheInventoryComesFromTheConfiguration(t *testing.T) {
	c := config.Config{Inventory: []config.Machine{{
		Name: "a", Number: 7, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}, Zone: "z", Region: "r", Type: "t",
	}}}
	if !filled(reflect.ValueOf(c.Inventory[0])) {
		t.Error("a field of the configuration is not tried")
	}
	want := cloud.Machine{
		Dedicated: true, ID: 7, Name: "a", Addresses: c.Inventory[0].Addresses,
		Zone: "z", Region: "r", Type: "t",
	}
	if got := wiring.Machines(c); !reflect.DeepEqual(got, []cloud.Machine{want}) {
		t.Errorf("%+v, want %+v", got, want)
	}
	c.Inventory[0].Number, want.Dedicated, want.ID = 0, false, 0
	if got := wiring.Machines(c); !reflect.DeepEqual(got, []cloud.Machine{want}) {
		t.Errorf("without a number %+v, want %+v", got, want)
	}
}

func filled(v reflect.Value) bool {
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			return false
		}
	}
	return true
}
