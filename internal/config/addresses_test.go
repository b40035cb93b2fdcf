package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses"
)

// pooled is a metal cluster with these items of addresses.pools, and a router.
func pooled(items ...string) setup {
	return rented("addresses:\n  pools:\n  - " + strings.Join(items, "\n  - ") + "\n" + router)
}

const router = "  bgp: {asn: 64512, peers: [{name: router, address: 192.0.2.1, asn: 64500}]}\n"

func TestAddresses(t *testing.T) {
	config, warnings, err := load(t, pooled(
		"{name: segment, ranges: [192.0.2.16-192.0.2.31, '2001:db8:1::100/124']}",
		"{name: routed, ranges: [198.51.100.0/28], mover: bgp, onRequest: true, namespaceSelector: team=web}",
	))
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %v", err, warnings)
	}
	got := config.Addresses
	if !got.Enabled() || !got.Classless || len(got.Pools) != 2 {
		t.Fatalf("got %+v", got)
	}
	segment, routed := got.Pools[0], got.Pools[1]
	if text := fmt.Sprint(segment.Ranges); text != "[192.0.2.16-192.0.2.31 2001:db8:1::100-2001:db8:1::10f]" || segment.Mover != addresses.Layer2 || segment.OnRequest || segment.Namespaces != nil {
		t.Errorf("got %+v", segment)
	}
	if routed.Mover != addresses.BGP || !routed.OnRequest || routed.Namespaces.String() != "team=web" || routed.Field != "addresses.pools[1].ranges" {
		t.Errorf("got %+v", routed)
	}
	if b := got.BGP; b.ASN != 64512 || len(b.Peers) != 1 || b.Peers[0].Port != 179 ||
		b.Peers[0].HoldTime.Seconds() != 9 || b.Peers[0].ASN != 64500 {
		t.Errorf("got %+v", b)
	}
}

func TestAddressesAreOff(t *testing.T) {
	for _, s := range []setup{rented(""), rented("addresses: {classless: false}"), inFile("addresses: {classless: false}")} {
		s.env = env(nil)
		config, _, err := load(t, s)
		if err != nil || config.Addresses.Enabled() || config.Addresses.Classless {
			t.Errorf("%+v, %v", config.Addresses, err)
		}
	}
}

// Beside a cloud whose load balancers serve Services without a class, pools serve them only if the
// file enables it.
func TestClasslessBesideACloud(t *testing.T) {
	const pools = "addresses:\n  pools: [{name: a, ranges: [203.0.113.7], mover: floating-ip}]\n"
	for text, want := range map[string]bool{
		pools:                         false,
		pools + "  classless: true\n": true,
	} {
		s := inFile(text + "loadBalancers: {classless: false}\n")
		s.env, s.flags = env(nil), ipv4Only()
		config, warnings, err := load(t, s)
		if err != nil || len(warnings) > 0 || config.Addresses.Classless != want {
			t.Errorf("%s: %+v, %v, warnings %v", text, config.Addresses, err, warnings)
		}
	}
}

// The agent reads the section, whether or not it can determine that Robot is enabled.
func TestTheAgentReadsAddresses(t *testing.T) {
	for _, file := range []string{
		"provider: metal\naddresses:\n  pools: [{name: a, ranges: [192.0.2.7], mover: bgp}]\n" + router,
		"addresses:\n  pools: [{name: a, ranges: [192.0.2.7], mover: failover}]\n" + router,
	} {
		node, err := LoadAgent("/config", "10.244.0.0/16", fakeFiles{"/config": head + file}.read)
		if err != nil || len(node.Addresses.Pools) != 1 || len(node.Addresses.BGP.Peers) != 1 {
			t.Errorf("%+v, %v", node.Addresses, err)
		}
	}
}

func TestMistakesInAddressPools(t *testing.T) {
	one := func(rest string) setup { return pooled("{name: a, " + rest + "}") }
	const ranges = "addresses.pools[0].ranges"
	checkMistakes(t, []mistake{
		{"no pools", rented("addresses: {pools: []}"), "addresses.pools", "", "at least one pool"},
		{"classless without pools", rented("addresses: {classless: true}"), "addresses.classless", "true", "addresses.pools"},
		{"no name", pooled("{ranges: [192.0.2.7]}"), "addresses.pools[0].name", "", "segment"},
		{"no ranges", pooled("{name: a}"), ranges, "", "give it"},
		{"empty", one("ranges: []"), ranges, "", "at least one range"},
		{"one range", one("ranges: 192.0.2.7"), ranges, "", "list"},
		{"no range", one("ranges: [some]"), ranges, "some", "192.0.2.0/28"},
		{"two families", one("ranges: ['192.0.2.7-2001:db8::7']"), ranges, "192.0.2.7-2001:db8::7", "each"},
		{"backwards", one("ranges: [192.0.2.9-192.0.2.7]"), ranges, "192.0.2.9-192.0.2.7", "192.0.2.7-192.0.2.9"},
		{"bits beyond", one("ranges: [192.0.2.7/28]"), ranges, "192.0.2.7/28", "192.0.2.0/28"},
		{"IPv4 prefix in IPv6 notation", one("ranges: ['::ffff:192.0.2.16/124']"), ranges, "::ffff:192.0.2.16/124", "write 192.0.2.7, 192.0.2.0/28"},
		{"multicast", one("ranges: [223.0.0.1-224.0.0.1]"), ranges, "223.0.0.1-224.0.0.1", "unicast"},
		{"loopback", one("ranges: ['::1']"), ranges, "::1", "unicast"},
		{"link-local", one("ranges: ['fe80::7']"), ranges, "fe80::7", "unicast"},
		{"pods", one("ranges: [10.244.255.0-10.245.0.7]"), ranges, "10.244.255.0-10.245.0.7", "apart"},
		{"services", one("ranges: ['fd00:10:96::7']"), ranges, "fd00:10:96::7", "apart"},
		{"router", one("ranges: [192.0.2.0/28]"), ranges, "192.0.2.0-192.0.2.15", "leave it out"},
		{"overlap", pooled("{name: a, ranges: [192.0.2.8/29]}", "{name: b, ranges: [192.0.2.15]}"), "addresses.pools[1].ranges", "192.0.2.15", "one range"},
		{"overlap of its own", one("ranges: [192.0.2.8/29, 192.0.2.9]"), ranges, "192.0.2.9", "one range"},
		{"name twice", pooled("{name: a, ranges: [192.0.2.7]}", "{name: a, ranges: [192.0.2.8]}"), "addresses.pools[1].name", "a", "its own"},
		{"mover", one("ranges: [192.0.2.7], mover: carrier-pigeon"), "addresses.pools[0].mover", "carrier-pigeon", "layer2 or bgp or floating-ip or failover"},
		{"floating IPs without a cloud", one("ranges: [192.0.2.7], mover: floating-ip"), "addresses.pools[0].mover", "floating-ip", "provider: hcloud"},
		{"failover without a cloud", one("ranges: [192.0.2.7], mover: failover"), "addresses.pools[0].mover", "failover", "robot.userFile"},
		{"selector", one("ranges: [192.0.2.7], namespaceSelector: 'a in'"), "addresses.pools[0].namespaceSelector", "a in", "team=web"},
		{"no selector", one("ranges: [192.0.2.7], namespaceSelector: ''"), "addresses.pools[0].namespaceSelector", "", "all namespaces"},
		{"typo", one("ranges: [192.0.2.7], onRequests: true"), "addresses.pools[0].onRequests", "", "addresses.pools[0].onRequest"},
		{"no router", rented("addresses:\n  pools: [{name: a, ranges: [192.0.2.7], mover: bgp}]"), "addresses.pools[0].mover", "bgp", "addresses.bgp.peers"},
		{
			"inventory", rented("inventory: [{name: m, addresses: [192.0.2.7]}]\naddresses:\n  pools: [{name: a, ranges: [192.0.2.0-192.0.2.9]}]"),
			ranges, "192.0.2.0-192.0.2.9", "leave it out",
		},
		{
			"many of a floating net", inFile("addresses:\n  pools: [{name: a, ranges: ['2001:db8:f::/124'], mover: floating-ip}]"),
			ranges, "2001:db8:f::-2001:db8:f::f", "one address of each /64",
		},
		{
			"two of a floating net", inFile("addresses:\n  pools: [{name: a, ranges: ['2001:db8:f::1'], mover: floating-ip}, {name: b, ranges: ['2001:db8:f::2', '2001:db8:e::2'], mover: floating-ip}]"),
			"addresses.pools[1].ranges", "2001:db8:f::2", "one address of each /64",
		},
		{
			"failover without Robot", inFile("addresses:\n  pools: [{name: a, ranges: [192.0.2.7], mover: failover}]"),
			"addresses.pools[0].mover", "failover", "robot.userFile",
		},
		{
			"both without a class", inFile("addresses:\n  classless: true\n  pools: [{name: a, ranges: [192.0.2.7], mover: floating-ip}]"),
			"addresses.classless", "true", "loadBalancers.classless",
		},
	})
}

func TestMistakesWithRouters(t *testing.T) {
	routers := func(bgp string) setup {
		return rented("addresses:\n  pools: [{name: a, ranges: [203.0.113.7]}]\n  bgp: {" + bgp + "}")
	}
	peer := func(keys string) setup {
		return routers("asn: 64512, podCIDRs: true, peers: [{name: r, address: 192.0.2.1, asn: 64500}, {" + keys + "}]")
	}
	const second = "addresses.bgp.peers[1]"
	checkMistakes(t, []mistake{
		{"no routers", routers("asn: 64512, peers: []"), "addresses.bgp.peers", "", "at least one router"},
		{"podCIDRs for nobody", routers("asn: 64512, podCIDRs: true"), "addresses.bgp.podCIDRs", "true", "addresses.bgp.peers"},
		{"no system", routers("podCIDRs: true, peers: [{name: r, address: 192.0.2.1, asn: 64500}]"), "addresses.bgp.asn", "", "64512"},
		{"system 0", routers("asn: 0"), "addresses.bgp.asn", "0", "64512"},
		{"system of transition", peer("name: s, address: 192.0.2.2, asn: 23456"), second + ".asn", "23456", "64512"},
		{"no name", peer("address: 192.0.2.2, asn: 64500"), second + ".name", "", "router"},
		{"no address", peer("name: s, asn: 64500"), second + ".address", "", "address"},
		{"no neighbor system", peer("name: s, address: 192.0.2.2"), second + ".asn", "", "number"},
		{"address", peer("name: s, address: router-2, asn: 64500"), second + ".address", "router-2", "192.0.2.1"},
		{"name twice", peer("name: r, address: 192.0.2.2, asn: 64500"), second + ".name", "r", "its own"},
		{"router twice", peer("name: s, address: 192.0.2.1, asn: 64500"), second + ".address", "192.0.2.1", "nodeSelector"},
		{"router twice, at another port", peer("name: s, address: 192.0.2.1, asn: 64500, port: 1179"), second + ".address", "192.0.2.1", "nodeSelector"},
		{"port", peer("name: s, address: 192.0.2.2, asn: 64500, port: 0"), second + ".port", "0", "65535"},
		{"hold time", peer("name: s, address: 192.0.2.2, asn: 64500, holdTime: 1s"), second + ".holdTime", "1s", "3s"},
		{"community", peer("name: s, address: 192.0.2.2, asn: 64500, communities: [64512:100, 65536:1]"), second + ".communities", "65536:1", "65535"},
		{"communities beyond measure", peer("name: s, address: 192.0.2.2, asn: 64500, communities: [" + strings.Repeat("'64512:1',", 101) + "]"), second + ".communities", strings.TrimSuffix(strings.Repeat("64512:1,", 101), ","), "100"},
		{"selector", peer("name: s, address: 192.0.2.2, asn: 64500, nodeSelector: 'a in'"), second + ".nodeSelector", "a in", "rack=1"},
		{"password", peer("name: s, address: 192.0.2.2, asn: 64500, passwordFile: " + tokenText), second + ".passwordFile", redacted, "/etc/underlay-bgp/router"},
		{"bfd over hops", peer("name: s, address: 192.0.2.2, asn: 64500, bfd: true, multihop: true"), second + ".bfd", "true", "multihop"},
		{"bfd", peer("name: s, address: 192.0.2.2, asn: 64500, bfd: some"), second + ".bfd", "some", "true"},
	})
}

func TestCommunities(t *testing.T) {
	var got []uint32
	if problems := communities(&got).read([]string{"64512:100", "no-export", " 1:2 "}); len(problems) > 0 || fmt.Sprintf("%x", got) != "[fc000064 ffffff01 10002]" {
		t.Errorf("%x, %v", got, problems)
	}
}

func TestWarningsAboutAddresses(t *testing.T) {
	unused := rented("addresses:\n  pools: [{name: a, ranges: [203.0.113.7]}]\n" + router)
	alone := rented("addresses: {bgp: {asn: 64512}}")
	onCloud := inFile("addresses:\n  pools: [{name: a, ranges: [203.0.113.7]}]")
	onCloud.env, onCloud.flags = env(nil), ipv4Only()
	for want, s := range map[string]setup{"addresses.bgp.peers": unused, "addresses.bgp.asn": alone, "addresses.pools[0].mover": onCloud} {
		_, warnings, err := load(t, s)
		if err != nil || fields(warnings) != want {
			t.Errorf("%v, warnings %v, want %s", err, warnings, want)
		}
	}
}

// checkAddressPromises checks a Config's addresses against the comments of their types.
func checkAddressPromises(t *testing.T, c Config) {
	t.Helper()
	a := c.Addresses
	if a.Classless && (!a.Enabled() || c.LoadBalancers.Enabled && c.LoadBalancers.Classless) {
		t.Errorf("addresses %+v beside load balancers %+v", a, c.LoadBalancers)
	}
	var plain []addresses.Pool
	for _, p := range a.Pools {
		plain = append(plain, p.Pool)
		switch {
		case p.Mover == addresses.BGP && (a.BGP.ASN == 0 || len(a.BGP.Peers) == 0),
			p.Mover == addresses.FloatingIP && c.Provider != Hcloud,
			p.Mover == addresses.Failover && !c.Robot.Enabled,
			p.Mover == "", p.Name == "", len(p.Ranges) == 0:
			t.Errorf("pool %+v", p)
		}
		for _, peer := range a.BGP.Peers {
			if p.Contains(peer.Address) {
				t.Errorf("pool %+v holds the router %s", p, peer.Address)
			}
		}
	}
	if wrong := addresses.Validate(plain); len(wrong) > 0 {
		t.Error(wrong)
	}
	for _, peer := range a.BGP.Peers {
		if peer.Name == "" || !peer.Address.IsValid() || peer.Port == 0 || peer.ASN == 0 || peer.HoldTime < 3*time.Second {
			t.Errorf("router %+v", peer)
		}
	}
}
