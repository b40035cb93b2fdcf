package config

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// rented is a metal cluster: no token, no network, no variables.
func rented(file string) setup {
	return setup{flags: dualStack(), file: "provider: metal\n" + file, env: vars{"NONE": ""}}
}

func TestMetalNeedsNothing(t *testing.T) {
	config, warnings, err := load(t, rented(""))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("Load: %v, warnings %v", err, warnings)
	}
	if config.Provider != Metal || config.Routes.Enabled || config.LoadBalancers.Enabled ||
		len(config.Inventory) > 0 {
		t.Errorf("provider %s, routes %t, load balancers %t, inventory %v", config.Provider, config.Routes.Enabled, config.LoadBalancers.Enabled, config.Inventory)
	}
	if want := (routes.Modes{IPv4: routes.ByNodes, IPv6: routes.ByNodes}); config.Families != want {
		t.Errorf("families %+v, want %+v", config.Families, want)
	}
	if !config.IPAM.Enabled || len(config.IPAM.Pools) != 2 {
		t.Errorf("pools %v, want those of --cluster-cidr", config.IPAM.Pools)
	}
	// Ranges that only a certain cloud excludes.
	for _, prefix := range []string{"172.31.0.0/16", "100.64.0.0/16"} {
		s := rented("")
		s.flags = ipv4Only(func(f Flags) { f["--cluster-cidr"] = prefix })
		config, warnings, err := load(t, s)
		if err != nil || len(warnings) > 0 || config.Families.IPv6 != routes.Unrouted {
			t.Errorf("pods in %s: %v, warnings %v, families %v", prefix, err, warnings, config.Families)
		}
	}
	if config, _, err := load(t, rented("families: {ipv4: node, ipv6: none}\n")); err != nil || config.Families.IPv6 != routes.Unrouted {
		t.Errorf("IPv6 that somebody else routes: %v, %v", config.Families, err)
	}
}

func TestTheAgentReadsMetalToo(t *testing.T) {
	files := fakeFiles{"/config": head + "provider: metal\ninventory: [{name: a}]\n"}
	node, err := LoadAgent("/config", "10.244.0.0/16,fd00:10:244::/56", files.read)
	if want := (routes.Modes{IPv4: routes.ByNodes, IPv6: routes.ByNodes}); err != nil ||
		node.Families != want {
		t.Errorf("families %v, %v, want %v", node.Families, err, want)
	}
}

func TestInventory(t *testing.T) {
	config, _, err := load(t, rented("inventory:\n- {name: rack-7.example.com, addresses: [192.0.2.7, '2001:db8::7'], zone: hall-1, region: berlin, type: ex44}\n- {name: rack-8}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []Machine{
		{Name: "rack-7.example.com", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, Zone: "hall-1", Region: "berlin", Type: "ex44"},
		{Name: "rack-8"},
	}
	if !reflect.DeepEqual(config.Inventory, want) {
		t.Errorf("got  %+v\nwant %+v", config.Inventory, want)
	}
}

func TestMistakesWithMetal(t *testing.T) {
	items := func(all ...string) setup { return rented("inventory:\n- " + strings.Join(all, "\n- ") + "\n") }
	checkMistakes(t, []mistake{
		{"token file", rented("tokenFile: /token"), "tokenFile", "", "remove it"},
		{"network", rented("network: net"), "network", "", "remove it"},
		{"endpoint", rented("endpoint: https://a/v1"), "endpoint", "", "remove it"},
		{"external addresses", rented("instancesAddressFamily: ipv6"), "instancesAddressFamily", "", "remove it"},
		{"routes", rented("routes: {limit: 50}"), "routes.limit", "", "remove it"},
		{"load balancers", rented("loadBalancers: {enabled: false}"), "loadBalancers.enabled", "", "remove it"},
		{"cloud routes", rented("families: {ipv4: cloud}"), "families.ipv4", "cloud", "write node"},
		{"native routes", rented("families: {ipv6: native}"), "families.ipv6", "native", "write node"},
		{"own prefixes", rented("pools: [{name: a, cidr: 10.244.0.0/16}, {name: b, source: node}, {name: c, cidr: 'fd00:10:244::/56'}]"), "pools[1].source", "node", "give a cidr"},
		{"inventory of a cloud", setup{flags: ipv4Only(), file: "inventory: [{name: a}]"}, "inventory[0].number", "", "provider: metal"},
		{"dedicated", items("{name: a, number: 7}"), "inventory[0].number", "7", "provider: hcloud"},
		{"number", setup{flags: ipv4Only(), file: "inventory: [{name: a, number: 0}]"}, "inventory[0].number", "0", "999999999"},
		{"number twice", setup{flags: ipv4Only(), file: "inventory: [{name: a, number: 7}, {name: b, number: 7}]"}, "inventory[1].number", "7", "its own"},
		{"robot", rented("robot: {userFile: /u}"), "robot.userFile", "", "remove it"},
		{"no name", items("{zone: a}"), "inventory[0].name", "", "name of a Node"},
		{"wrong name", items("{name: Rack_7}"), "inventory[0].name", "Rack_7", "253"},
		{"name twice", items("{name: a}", "{name: b}", "{name: a}"), "inventory[2].name", "a", "of its Node"},
		{"prefix", items("{name: a, addresses: [192.0.2.7/24]}"), "inventory[0].addresses", "192.0.2.7/24", "without a length"},
		{"loopback", items("{name: a, addresses: [127.0.0.1]}"), "inventory[0].addresses", "127.0.0.1", "uplink"},
		{"link-local", items("{name: a, addresses: ['fe80::1']}"), "inventory[0].addresses", "fe80::1", "uplink"},
		{"zone of an address", items("{name: a, addresses: ['2001:db8::1%eth0']}"), "inventory[0].addresses", "2001:db8::1%eth0", "uplink"},
		{"one address", items("{name: a, addresses: 192.0.2.7}"), "inventory[0].addresses", "", "list of addresses"},
		{"address twice", items("{name: a, addresses: [192.0.2.7]}", "{name: b, addresses: [192.0.2.7]}"), "inventory[1].addresses", "192.0.2.7", "of its own"},
		{"zone", items("{name: a, zone: hall 1}"), "inventory[0].zone", "hall 1", "63 letters"},
		{"region", items("{name: a, region: -}"), "inventory[0].region", "-", "63 letters"},
		{"type", items("{name: a, type: ü}"), "inventory[0].type", "ü", "63 letters"},
		{"typo", items("{name: a, zones: b}"), "inventory[0].zones", "", "inventory[0].zone"},
	})
}

// Variables of a cloud may be set for other purposes; they change nothing.
func TestMetalIgnoresTheCloudsVariables(t *testing.T) {
	s := rented("")
	s.env = vars{"HCLOUD_TOKEN": tokenText, "HCLOUD_NETWORK": "net", "HCLOUD_LOAD_BALANCERS_ENABLED": "true"}
	config, warnings, err := load(t, s)
	if err != nil || fields(warnings) != "HCLOUD_TOKEN HCLOUD_NETWORK HCLOUD_LOAD_BALANCERS_ENABLED" {
		t.Errorf("Load: %v, warnings %v", err, warnings)
	}
	if config.LoadBalancers.Enabled || config.Routes.Enabled {
		t.Errorf("load balancers %t, routes %t", config.LoadBalancers.Enabled, config.Routes.Enabled)
	}
	if token, err := config.Token.Read(); err == nil && token.Reveal() != "" {
		t.Error("the token is kept")
	}
}

// checkMetalPromises checks a Config without a cloud against the comments of its type.
func checkMetalPromises(t *testing.T, c Config) {
	t.Helper()
	if c.Routes.Enabled || c.LoadBalancers.Enabled || c.Families.IPv4 != routes.ByNodes ||
		c.Families.IPv6 == routes.Natively {
		t.Errorf("routes %t, load balancers %t, families %v without a cloud", c.Routes.Enabled, c.LoadBalancers.Enabled, c.Families)
	}
	if slices.ContainsFunc(c.IPAM.Pools, func(p Pool) bool { return p.Own }) {
		t.Errorf("pools %v without a cloud", c.IPAM.Pools)
	}
	names, addrs := map[string]bool{}, map[netip.Addr]bool{}
	for _, m := range c.Inventory {
		if m.Name == "" || names[m.Name] {
			t.Errorf("inventory %v: a name twice or none", c.Inventory)
		}
		names[m.Name] = true
		for _, a := range m.Addresses {
			if addrs[a] || !a.IsGlobalUnicast() {
				t.Errorf("inventory %v: address %s", c.Inventory, a)
			}
			addrs[a] = true
		}
	}
}
