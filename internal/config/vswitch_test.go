package config

import (
	"net/netip"
	"strings"
	"testing"
)

const (
	coupled   = "network: net\nvswitch: {subnet: 10.0.64.0/18}\n"
	dedicated = "name: dedicated, source: vswitch, nodeSelector: dedicated=true, cidr: "
)

// withVSwitch is a file with a coupled subnet and a pool after first.
func withVSwitch(pool string) setup {
	return setup{flags: ipv4Only(), file: coupled + first + "- {" + pool + "}\n", env: env(nil)}
}

func TestMistakesInVSwitch(t *testing.T) {
	const cidr, source = "pools[1].cidr", "pools[1].source"
	checkMistakes(t, []mistake{
		{"no cidr", withVSwitch("name: a, source: vswitch, nodeSelector: a=b"), cidr, "", "10.245.0.0/16"},
		{"outside", withVSwitch(dedicated + "10.1.0.0/18"), cidr, "10.1.0.0/18", "part of the subnet"},
		{"wider", withVSwitch(dedicated + "10.0.0.0/16"), cidr, "10.0.0.0/16", "part of the subnet"},
		{"all of it", withVSwitch(dedicated + "10.0.64.0/18"), cidr, "10.0.64.0/18", "leaves out its beginning"},
		{"the gateway", withVSwitch(dedicated + "10.0.64.0/24, nodeMask: 25"), cidr, "10.0.64.0/24", "leaves out its beginning"},
		{"for all Nodes", withVSwitch("name: a, source: vswitch, cidr: 10.0.96.0/19"), "pools[1].nodeSelector", "", "--node-labels"},
		{"IPv6", withVSwitch(dedicated + "'fd00::/56'"), cidr, "fd00::/56", "part of the subnet"},
		{"routed by nodes", setup{flags: ipv4Only(), env: env(nil), file: "families: {ipv4: node}\n" + coupled + first + "- {" + dedicated + "10.0.96.0/19}\n"}, source, "vswitch", "families.ipv4: cloud"},
		{"another pool", withVSwitch("name: a, cidr: 10.0.96.0/19"), cidr, "10.0.96.0/19", "source: vswitch"},
		{"no subnet", withPools(dedicated + "10.0.96.0/19"), source, "vswitch", "vswitch.subnet"},
		{"public subnet", inFile("vswitch: {subnet: 192.0.2.0/24}"), vSwitchSubnet, "192.0.2.0/24", "type vswitch"},
		{"subnet without hosts", inFile("vswitch: {subnet: 10.0.64.0/31}"), vSwitchSubnet, "10.0.64.0/31", "type vswitch"},
		{"subnet without its length", inFile("vswitch: {subnet: 10.0.64.0}"), vSwitchSubnet, "10.0.64.0", "address and length"},
		{"exposed without a subnet", inFile("vswitch: {exposeRoutes: true}"), vSwitchExpose, "true", vSwitchSubnet},
		{"without a cloud", inFile("provider: metal\nvswitch: {subnet: 10.0.64.0/18}"), vSwitchSubnet, "", "remove it"},
	})
}

func TestVSwitch(t *testing.T) {
	s := withVSwitch(dedicated + "10.0.96.0/19")
	loaded, warnings, err := load(t, s)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range warnings {
		if strings.Contains(w.Field, "pools") {
			t.Errorf("warned of %s: %s", w.Field, w.Problem)
		}
	}
	if got, want := loaded.VSwitch.Gateway(), netip.MustParseAddr("10.0.64.1"); got != want {
		t.Errorf("the gateway is %v, want %v", got, want)
	}
	if p := loaded.IPAM.Pools[1]; !p.VSwitch || p.Own || p.Selector == nil || p.Prefix != netip.MustParsePrefix("10.0.96.0/19") || p.NodeMask != 24 {
		t.Errorf("got %+v, want 10.0.96.0/19 in the vSwitch for dedicated=true, /24 each", p)
	}
	if loaded.IPAM.Pools[0].VSwitch {
		t.Error("the other pool is in the vSwitch")
	}
}
