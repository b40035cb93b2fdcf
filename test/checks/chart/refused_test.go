package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// refusal is a mistake in values: says is what the programs say of it, after field and value.
type refusal struct{ name, base, values, says string }

// TestWhatHelmTakesTheProgramsRefuse: every mistake is refused, by helm if the schema has it, else
// by the programs when they start, and that in words that help.
func TestWhatHelmTakesTheProgramsRefuse(t *testing.T) {
	refusals := slices.Concat(wrongRanges(), wrongPools(), wrongSettings(), wrongMachines())
	asked := make([]settings, len(refusals))
	byHelm := make([]error, len(refusals))
	for i, r := range refusals {
		values := laidOver(t, r.base, r.values)
		_, byHelm[i] = renderChart(t.Context(), loaded(t), namespace, values)
		asked[i] = unchecked(t, values)
	}
	for i, a := range ask(t, asked) {
		r, said := refusals[i], a.Manager+"\n"+a.Agent
		if !a.refused() {
			t.Errorf("%s: the programs take it; helm says %v", r.name, byHelm[i])
		} else if !strings.Contains(said, r.says) {
			t.Errorf("%s: the programs say %s\nwant %q in it", r.name, said, r.says)
		}
	}
}

func wrongRanges() []refusal {
	return []refusal{
		{"no length", onCloud, "clusterCIDR: 10.244.0.0", `is not a prefix; write address and length`},
		{"length too long", onCloud, "clusterCIDR: 10.244.0.0/33", `is not a prefix`},
		{"no address", onCloud, "clusterCIDR: 10.244.0/16", `is not a prefix`},
		{"comma at the end", onCloud, "clusterCIDR: '10.244.0.0/16,'", `is not a prefix`},
		{"host bits", onCloud, "clusterCIDR: 10.244.0.1/16", `has address bits beyond its length; write 10.244.0.0/16`},
		{"IPv6 host bits", onCloud, "clusterCIDR: '10.244.0.0/16,fd00:10:244::1/56'", `has address bits beyond its length; write fd00:10:244::/56`},
		{"IPv4 in IPv6", onCloud, "clusterCIDR: '::ffff:10.244.0.0/112'", `is an IPv4 prefix in IPv6 notation`},
		{"one family twice", onCloud, "clusterCIDR: 10.244.0.0/16,10.245.0.0/16", `is of the same address family as 10.244.0.0/16`},
		{"three", onCloud, "clusterCIDR: '10.244.0.0/16,fd00::/56,fd01::/56'", `has 3 items`},
		{"Services without length", onCloud, "serviceCIDR: 10.96.0.0", `is not a prefix`},
		{"Services with host bits", onCloud, "serviceCIDR: 10.97.0.0/12", `has address bits beyond its length; write 10.96.0.0/12`},
		{"Services of one family", onCloud, "serviceCIDR: fd00::/112,fd01::/112", `is of the same address family as fd00::/112`},
		{"Services among pods", onCloud, "serviceCIDR: 10.244.128.0/20", `overlaps the service range 10.244.128.0/20 of --service-cluster-ip-range`},
		{"pods among Services", onCloud, "clusterCIDR: 10.96.0.0/16", `overlaps the service range 10.96.0.0/12 of --service-cluster-ip-range`},
		{"Services among pods, IPv6", onMetal, "{clusterCIDR: 'fd00::/48', serviceCIDR: 'fd00::/112'}", `overlaps the service range fd00::/112 of --service-cluster-ip-range`},
		{"smaller than a podCIDR", onCloud, "clusterCIDR: 10.244.0.0/25", `a node's podCIDR would be larger than its pool 10.244.0.0/25`},
		{"smaller than a podCIDR, IPv6", onMetal, "clusterCIDR: 'fd00::/65'", `a node's podCIDR would be larger than its pool fd00::/65`},
		{"a single address", onCloud, "clusterCIDR: 10.244.0.0/32", `is too small for a node's podCIDR; give a prefix of length 30 or shorter`},
		{"too many podCIDRs", onMetal, "clusterCIDR: 12.0.0.0/7", `is more than 16 bits longer than its pool 12.0.0.0/7, which makes more podCIDRs than the allocator can manage`},
		{"nothing that networks route", onCloud, "clusterCIDR: 100.64.0.0/16", `lies outside RFC 1918`},
		{"nothing that networks route, by the agent", onCloud, "{clusterCIDR: 100.64.0.0/16, configureCloudRoutes: false}", `lies outside RFC 1918`},
		{"IPv6 alone", onCloud, "clusterCIDR: 'fd00::/56'", `has no IPv4 prefix`},
		{"the cloud's gateway", onCloud, "clusterCIDR: 172.16.0.0/12", `holds 172.31.1.1`},
		{"exclusion that is none", onCloud, "config: {exclude: [10.244.0.1]}", `is not a prefix`},
		{"exclusion with host bits", onCloud, "config: {exclude: [10.244.0.1/24]}", `has address bits beyond its length; write 10.244.0.0/24`},
		{"exclusion of everything", onCloud, "config: {exclude: [10.0.0.0/8]}", `leaves no node prefix of the pool default-ipv4 (10.244.0.0/16)`},
		{"subnet that is none", onCloud, "config: {loadBalancers: {privateSubnetIPRange: 10.0.0.1/24}}", `has address bits`},
	}
}

func wrongPools() []refusal {
	pools := func(list string) string { return "config: {pools: [" + list + "]}" }
	return []refusal{
		{"no pool", onCloud, pools(""), "is not a list of pools"},
		{"name", onCloud, pools("{name: Edge, cidr: 10.244.0.0/16}"), `is not a name`},
		{"name with a dot", onCloud, pools("{name: a.b, cidr: 10.244.0.0/16}"), `is not a name`},
		{"name too long", onCloud, pools("{name: " + strings.Repeat("a", 64) + ", cidr: 10.244.0.0/16}"), "is not a name"},
		{"one name twice", onCloud, pools("{name: a, cidr: 10.244.0.0/16}, {name: a, cidr: 10.245.0.0/16}"), `is also the name of pools[0]`},
		{"neither prefix nor source", onCloud, pools("{name: a}"), "is missing"},
		{"both", onCloud, pools("{name: a, cidr: 10.244.0.0/16, source: node}"), `excludes pools[0].cidr`},
		{"no prefix", onCloud, pools("{name: a, cidr: 10.244.0.0}"), `is not a prefix`},
		{"host bits", onCloud, pools("{name: a, cidr: 10.244.0.1/16}"), `has address bits beyond its length`},
		{"overlap", onCloud, pools("{name: a, cidr: 10.244.0.0/16}, {name: b, cidr: 10.244.128.0/17}"), `overlaps the pool a (10.244.0.0/16)`},
		{"Services", onCloud, pools("{name: a, cidr: 10.244.0.0/16}, {name: b, cidr: 10.100.0.0/16}"), `overlaps the service range 10.96.0.0/12 of --service-cluster-ip-range`},
		{"mask shorter than the pool's", onCloud, pools("{name: a, cidr: 10.244.0.0/16, nodeMask: 15}"), `a node's podCIDR would be larger than its pool 10.244.0.0/16`},
		{"mask of one address", onCloud, pools("{name: a, cidr: 10.244.0.0/16, nodeMask: 31}"), `leaves a node too few addresses`},
		{"mask too far", onMetal, pools("{name: a, cidr: 'fd00::/16', nodeMask: 65}, {name: b, cidr: 10.244.0.0/16}"), `is more than 48 bits longer than its pool fd00::/16, which makes more podCIDRs than the allocator can manage`},
		{"mask of a source", onCloud, pools("{name: a, cidr: 10.244.0.0/16}, {name: b, source: node, nodeMask: 64}"), `is no part of a server's own /64 that leaves out the server's address`},
		{"default mask", onCloud, pools("{name: a, cidr: 10.244.0.0/26}"), `a node's podCIDR would be larger than its pool 10.244.0.0/26`},
		{"source of metal", onMetal, pools("{name: a, cidr: 10.244.0.0/16}, {name: b, source: node}"), `takes a provider`},
		{"clusterCIDR that no pool has", onCloud, pools("{name: a, cidr: 10.245.0.0/16}"), `no pool of the file has any of it, and podCIDRs that Nodes have from it would count as foreign`},
		{"nothing that networks route", onCloud, pools("{name: a, cidr: 10.244.0.0/16}, {name: b, cidr: 100.64.0.0/16}"), `lies outside RFC 1918`},
		{"no IPv4", "config: {network: a}\napiServer: https://a", pools("{name: a, source: node}"), "no pool has an IPv4 prefix, and the cloud's networks route only IPv4"},
		{"the cloud's gateway", onCloud, pools("{name: a, cidr: 10.244.0.0/16}, {name: b, cidr: 172.31.0.0/16}"), `holds 172.31.1.1`},
		{"nothing left", onCloud, "config: {exclude: [10.245.0.0/16], pools: [{name: a, cidr: 10.244.0.0/16}, {name: b, cidr: 10.245.0.0/16}]}", `leaves no node prefix of the pool b (10.245.0.0/16)`},
		{"selector", onCloud, pools("{name: a, cidr: 10.244.0.0/16, nodeSelector: ' '}"), `is empty`},
	}
}

func wrongSettings() []refusal {
	config := func(keys string) string { return "config: {" + keys + "}" }
	balancers := func(keys string) string { return "config: {loadBalancers: {" + keys + "}}" }
	refusals := []refusal{
		{"no network", "clusterCIDR: 10.244.0.0/16\napiServer: https://a", "{}", "no network is given"},
		{"no pods' range", "config: {network: a}\napiServer: https://a", "{}", "no prefix is given to take podCIDRs from"},
		{"cluster's name", onCloud, "clusterName: my cluster", `can't be the value of a label`},
		{"network", onCloud, config("network: ' a'"), `has spaces around it`},
		{"network of two lines", onCloud, config(`network: "a\nb"`), `has spaces around it or control characters in it`},
		{"endpoint without version", onCloud, config("endpoint: https://api.hetzner.cloud/"), "lacks the version path"},
		{"endpoint without scheme", onCloud, config("endpoint: api.hetzner.cloud/v1"), "is not an absolute http or https URL"},
		{"endpoint with credentials", onCloud, config("endpoint: 'https://u:p@a/v1'"), "holds credentials, a query or a fragment (not shown, it might be a secret)"},
		{"short quarantine", onCloud, config("quarantine: 59s"), `is not a duration of at least 1m`},
		{"quarantine without unit", onCloud, config("quarantine: '300'"), `is not a duration`},
		{"reserve of everything", onCloud, config("routes: {reserve: 100}"), `leaves no route of routes.limit 100`},
		{"deletions of none", onCloud, config("routes: {maxDeletions: 0%}"), `is not a percentage`},
		{"deletions above all", onCloud, config("routes: {maxDeletions: 101%}"), `is not a percentage`},
		{"location and zone", onCloud, balancers("location: fsn1, networkZone: eu-central"), `excludes loadBalancers.networkZone`},
		{"location", onCloud, balancers("location: Falkenstein"), `is not a name`},
		{"empty location", onCloud, balancers("location: ''"), `is not a name`},
		{"zone", onCloud, balancers("networkZone: eu_central"), `is not a name`},
		{"type", onCloud, balancers("type: LB11"), `is not a name`},
		{"short interval", onCloud, balancers("healthCheckInterval: 2s"), `is out of bounds`},
		{"long interval", onCloud, balancers("healthCheckInterval: 61"), `is out of bounds`},
		{"interval in parts", onCloud, balancers("healthCheckInterval: 3500ms"), `is not`},
		{"timeout", onCloud, balancers("healthCheckTimeout: long"), `is not`},
		{"private without network", netless, balancers("usePrivateIP: true"), `needs a network`},
		{"only private without network", netless, balancers("disablePublicNetwork: true"), `needs a network`},
		{"dedicated servers", onCloud, "ccm: {env: {ROBOT_ENABLED: true}}", "the user is missing, and neither goes without the other"},
	}
	for _, key := range []string{
		"endpoint: https://a/v1", "network: a", "instancesAddressFamily: ipv4", "routes: {limit: 5}", "loadBalancers: {location: fsn1}", "loadBalancers: {usePrivateIP: false}",
	} {
		refusals = append(refusals, refusal{"metal with " + key, onMetal, config(key), "is about a cloud"})
	}
	return append(refusals,
		refusal{"metal with the cloud's routes", onMetal, config("families: {ipv4: cloud}"), `takes a cloud`},
		refusal{"metal with the provider's routes", onMetal, config("families: {ipv6: native}"), `takes a cloud`},
	)
}

func wrongMachines() []refusal {
	machines := func(list string) string { return "config: {inventory: [" + list + "]}" }
	return []refusal{
		{"inventory of a cloud", onCloud, machines("{name: a}"), "is missing: beside the cloud's own servers"},
		{"dedicated servers without a cloud", onMetal, machines("{name: a, number: 7}"), "is a dedicated server's beside a cloud"},
		{"one number twice", onCloud, machines("{name: a, number: 7}, {name: b, number: 7}"), "is also the number of inventory[0]"},
		{"no machine", onMetal, machines(""), "is not a list of machines"},
		{"name", onMetal, machines("{name: Node_1}"), `can't be the name of a Node`},
		{"one name twice", onMetal, machines("{name: a}, {name: a}"), `is also the name of inventory[0]`},
		{"address with length", onMetal, machines("{name: a, addresses: [192.0.2.1/24]}"), `is not an address`},
		{"loopback", onMetal, machines("{name: a, addresses: ['::1']}"), `is no address that other machines could reach one machine by`},
		{"link-local", onMetal, machines("{name: a, addresses: ['fe80::1']}"), `is no address that other machines could reach one machine by`},
		{"multicast", onMetal, machines("{name: a, addresses: [224.0.0.1]}"), `is no address that other machines could reach one machine by`},
		{"one address twice", onMetal, machines("{name: a, addresses: ['2001:db8::1']}, {name: b, addresses: ['2001:DB8:0::1']}"), `is already an address of inventory[0]`},
		{"zone", onMetal, machines("{name: a, zone: 'a b'}"), `can't be the value of a label`},
		{"empty region", onMetal, machines("{name: a, region: ''}"), `can't be the value of a label`},
	}
}

// TestOnlyTheProgramsRefuse is about what nobody could see in the values alone.
func TestOnlyTheProgramsRefuse(t *testing.T) {
	left := map[string]string{
		"a selector that is none":              "config: {pools: [{name: a, cidr: 10.244.0.0/16, nodeSelector: 'a in'}]}",
		"exclusions that together leave none":  "config: {exclude: [10.244.0.0/17, 10.244.128.0/17]}",
		"an odd endpoint":                      "config: {endpoint: 'https://[::1/v1'}",
		"a variable with a value that is none": "ccm: {env: {HCLOUD_LOAD_BALANCERS_ENABLED: 'yes'}}",
		"a flag that outranks the chart's":     "ccm: {extraArgs: [--cluster-cidr=10.96.0.0/16]}",
	}
	names := slices.Sorted(maps.Keys(left))
	var asked []settings
	for _, name := range names {
		files, err := renderChart(t.Context(), loaded(t), namespace, laidOver(t, onCloud, left[name]))
		if err != nil {
			t.Fatalf("%s: the chart refuses it by now: %v", name, err)
		}
		asked = append(asked, given(t, files))
	}
	for i, a := range ask(t, asked) {
		if !a.refused() {
			t.Errorf("%s: nobody refuses it", names[i])
		}
	}
}

// TestWhatIsRightIsTaken: a chart that refuses too much is no better.
func TestWhatIsRightIsTaken(t *testing.T) {
	right := []struct{ name, base, values string }{
		{"the three values", onCloud, "{}"},
		{"metal", onMetal, "{}"},
		{"no network", netless, "{}"},
		{"blanks between ranges", onCloud, "{clusterCIDR: '10.244.0.0/16, fd00:10:244::/56', serviceCIDR: '10.96.0.0/12, fd00::/112'}"},
		{"IPv6 alone", onMetal, "{clusterCIDR: 'fd00:10:244::/56', serviceCIDR: 'fd00::/112'}"},
		{"IPv6 first", onMetal, "clusterCIDR: 'fd00:10:244::/56,10.244.0.0/16'"},
		{"the smallest", onCloud, "clusterCIDR: 10.244.0.0/24"},
		{"the largest", onCloud, "{clusterCIDR: 10.0.0.0/8, serviceCIDR: 172.20.0.0/16}"},
		{"anything by the nodes", netless, "clusterCIDR: 100.64.0.0/16"},
		{"no routes, no agent", onCloud, "{clusterCIDR: 100.64.0.0/16, configureCloudRoutes: false, agent: {enabled: false}}"},
		{"masks by flags, no agent", onCloud, "{clusterCIDR: 10.244.0.0/26, agent: {enabled: false}, ccm: {extraArgs: [--node-cidr-mask-size=28]}}"},
		{"the gateway, left out", onCloud, "{clusterCIDR: 172.16.0.0/12, config: {exclude: [172.31.1.1/32]}}"},
		{"the gateway, on metal", onMetal, "clusterCIDR: 172.16.0.0/12"},
		{"exclusions", onCloud, "config: {exclude: []}"},
		{"half excluded", onCloud, "config: {exclude: [10.244.0.0/17, ' fd00::/8 ']}"},
		{"pools", onCloud, "config: {pools: [{name: a, cidr: 10.244.0.0/17, nodeMask: 26}, {name: b, cidr: 10.245.0.0/16, state: draining, nodeSelector: 'a in (b, c)'}, {name: c, source: node}, {name: d, cidr: 'fd00::/32', nodeMask: 80}]}"},
		{"pools without clusterCIDR", "config: {network: a}\napiServer: https://a", "config: {pools: [{name: a, cidr: 10.244.0.0/16}]}"},
		{"a network by number", onCloud, "config: {network: 12345678}"},
		{"a network with blanks", onCloud, "config: {network: my network}"},
		{"endpoint", onCloud, "config: {endpoint: 'http://127.0.0.1:8470/v1/'}"},
		{"long quarantine", onCloud, "config: {quarantine: 1h2m3.5s}"},
		{"short quarantine", onCloud, "config: {quarantine: 60s}"},
		{"deletions", onCloud, "config: {routes: {maxDeletions: 100%, limit: 1000, reserve: 999}}"},
		{"health checks", onCloud, "config: {loadBalancers: {healthCheckInterval: 3, healthCheckTimeout: 1m, location: nbg1-dc3}}"},
		{"health checks as text", onCloud, "config: {loadBalancers: {healthCheckInterval: '60', healthCheckTimeout: 1000ms}}"},
		{"empty sections", onMetal, "config: {loadBalancers: {}, routes: {}, families: {}, network: '', endpoint: ''}"},
		{"machines", onMetal, "config: {inventory: [{name: a.b, addresses: [192.0.2.1, '2001:db8::1'], zone: eu_1}, {name: b}]}"},
		{"dedicated servers of the inventory", onCloud, "config: {inventory: [{name: a, number: 2345678, addresses: [192.0.2.1, 10.0.1.7]}], robot: {forwardInternalIPs: false}}"},
		{"a vSwitch", onCloud, "config: {vswitch: {subnet: 10.1.0.0/16, exposeRoutes: true}, pools: [{name: a, cidr: 10.244.0.0/16}, {name: b, source: vswitch, cidr: 10.1.128.0/17, nodeSelector: 'd=true'}]}"},
		{"variables", onCloud, "ccm: {env: {HTTPS_PROXY: 'http://a', ROBOT_ENABLED: false, no.proxy-1: 5}}"},
		{"metal with families", onMetal, "config: {families: {ipv4: node, ipv6: none}}"},
	}
	var asked []settings
	for _, r := range right {
		files, err := renderChart(t.Context(), loaded(t), namespace, laidOver(t, r.base, r.values))
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			asked = append(asked, settings{})
			continue
		}
		asked = append(asked, given(t, files))
	}
	for i, a := range ask(t, asked) {
		if asked[i].File != "" && a.refused() {
			t.Errorf("%s: the programs say\n%s\n%s", right[i].name, a.Manager, a.Agent)
		}
	}
}
