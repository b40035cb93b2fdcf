package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/routes"
)

// first is a pool equal to --cluster-cidr of ipv4Only.
const first = "pools:\n- {name: default-ipv4, cidr: 10.244.0.0/16}\n"

// withPools are the pools after first.
func withPools(items ...string) setup {
	file := first
	for _, item := range items {
		file += "- {" + item + "}\n"
	}
	return setup{flags: ipv4Only(), file: file, env: env(nil)}
}

func (s setup) flagged(change func(Flags)) setup {
	s.flags = ipv4Only(change)
	return s
}

func TestMistakesInPools(t *testing.T) {
	const own = "name: own, source: node"
	checkMistakes(t, []mistake{
		{"no list", inFile("pools: {name: a}"), "pools", "", "at least one pool"},
		{"no value", inFile("pools:"), "pools", "", "at least one pool"},
		{"none", inFile("pools: []"), "pools", "", "remove the key"},
		{"item that is text", inFile(first + "- 10.245.0.0/16"), "pools[1]", "", "name, cidr, source, nodeMask, nodeSelector, state"},
		{"typo", withPools("name: a, cidr: 10.245.0.0/16, nodemask: 24"), "pools[1].nodemask", "", "did you mean pools[1].nodeMask?"},
		{"nothing like it", withPools("name: a, cidr: 10.245.0.0/16, zzzzzzzz: 24"), "pools[1].zzzzzzzz", "", "use one of name, cidr"},
		{"of another list", withPools("name: a, cidr: 10.245.0.0/16, mover: bgp"), "pools[1].mover", "", "use one of name, cidr"},
		{"almost of another list", withPools("name: a, cidr: 10.245.0.0/16, movers: bgp"), "pools[1].movers", "", "use one of name, cidr"},
		{"outside of pools", inFile("nodeSelector: a=b"), "nodeSelector", "", "did you mean pools[].nodeSelector?"},
		{"twice", withPools("name: a, name: b, cidr: 10.245.0.0/16"), "pools[1].name", "", "one of the two"},
		{"no name", withPools("cidr: 10.245.0.0/16"), "pools[1].name", "", "such as `edge`"},
		{"wrong name", withPools("name: My Pool, cidr: 10.245.0.0/16"), "pools[1].name", "My Pool", "63"},
		{"long name", withPools("name: " + strings.Repeat("a", 64) + ", cidr: 10.245.0.0/16"), "pools[1].name", strings.Repeat("a", 64), "63"},
		{"name twice", withPools("name: default-ipv4, cidr: 10.245.0.0/16"), "pools[1].name", "default-ipv4", "of its own"},
		{"neither", withPools("name: a"), "pools[1].cidr", "", "source: node"},
		{"both", withPools("name: a, cidr: fd00::/48, source: node"), "pools[1].source", "node", "one of the two"},
		{"source", withPools("name: a, source: cloud"), "pools[1].source", "cloud", "use node"},
		{"state", withPools("name: a, cidr: 10.245.0.0/16, state: closed"), "pools[1].state", "closed", "active or draining"},
		{"no prefix", withPools("name: a, cidr: 10.245.0.0"), "pools[1].cidr", "10.245.0.0", "address and length"},
		{"unmasked", withPools("name: a, cidr: 10.245.1.0/16"), "pools[1].cidr", "10.245.1.0/16", "10.245.0.0/16"},
		{"several", withPools("name: a, cidr: [10.245.0.0/16]"), "pools[1].cidr", "", "single value"},
		{"overlap", withPools("name: a, cidr: 10.244.128.0/17"), "pools[1].cidr", "10.244.128.0/17", "drain"},
		{"overlap from without", withPools("name: a, cidr: 10.244.0.0/15"), "pools[1].cidr", "10.244.0.0/15", "drain"},
		{"service range", withPools("name: a, cidr: 10.96.128.0/17"), "pools[1].cidr", "10.96.128.0/17", "apart"},
		{"gateway", withPools("name: a, cidr: 172.31.0.0/16"), "pools[1].cidr", "172.31.0.0/16", "exclude"},
		{"public, with routes", withPools("name: a, cidr: 100.64.0.0/16"), "pools[1].cidr", "100.64.0.0/16", "192.168.0.0/16"},
		{"mask, IPv4", withPools("name: a, cidr: 10.245.0.0/16, nodeMask: 31"), "pools[1].nodeMask", "31", "16 to 30"},
		{"mask shorter than the pool", withPools("name: a, cidr: 10.245.0.0/16, nodeMask: 15"), "pools[1].nodeMask", "15", "16 to 30"},
		{"mask by default", withPools("name: a, cidr: 10.245.0.0/26"), "pools[1].nodeMask", "24", "26 to 30"},
		{"mask too far below", withPools("name: a, cidr: 10.0.0.0/11, nodeMask: 28"), "pools[1].nodeMask", "28", "11 to 27"},
		{"mask, IPv6", withPools("name: a, cidr: 'fd00::/48', nodeMask: 97"), "pools[1].nodeMask", "97", "48 to 96"},
		{"mask is no number", withPools("name: a, cidr: 10.245.0.0/16, nodeMask: wide"), "pools[1].nodeMask", "wide", "1 to 126"},
		{"own mask too short", withPools(own + ", nodeMask: 64"), "pools[1].nodeMask", "64", "65 to 126"},
		{"own mask too long", withPools(own + ", nodeMask: 127"), "pools[1].nodeMask", "127", "1 to 126"},
		{"too small", withPools("name: a, cidr: 10.245.0.0/31"), "pools[1].cidr", "10.245.0.0/31", "30 or shorter"},
		{"selector", withPools("name: a, cidr: 10.245.0.0/16, nodeSelector: 'a in b'"), "pools[1].nodeSelector", "a in b", "kubectl"},
		{"selector of nothing", withPools("name: a, cidr: 10.245.0.0/16, nodeSelector: ''"), "pools[1].nodeSelector", "", "remove the key"},
		{"selector as a mapping", withPools("name: a, cidr: 10.245.0.0/16, nodeSelector: {a: b}"), "pools[1].nodeSelector", "", "label selector"},
		{"everything excluded", setup{flags: ipv4Only(), file: "exclude: [10.244.0.0/15]\n" + first + "- {name: b, cidr: 10.192.0.0/16}"}, "exclude", "10.244.0.0/15", "exclude less"},
		{"forgotten", inFile(first), clusterFlag, "fd00:10:244::/56", "draining"},
		{"no IPv4, with routes", setup{flags: Flags{"--configure-cloud-routes": "true"}, file: "pools: [{" + own + "}]"}, "pools", "", "--configure-cloud-routes=false"},
		{"no pools at all", setup{flags: Flags{"--allocate-node-cidrs": "true", "--configure-cloud-routes": "false"}, file: "ipamQPS: 7"}, clusterFlag, "", "pools"},
		{"mask flag of both families", withPools("name: six, cidr: 'fd00::/48'").flagged(func(f Flags) { f["--node-cidr-mask-size"] = "25" }), maskFlag, "25", maskFlagIPv4},
		{"mask flag that doesn't fit", withPools("name: a, cidr: 10.245.0.0/25").flagged(func(f Flags) { f["--node-cidr-mask-size-ipv4"] = "24" }), maskFlagIPv4, "24", "25 to 30"},
		{"quarantine", inFile("quarantine: 59s"), "quarantine", "59s", "longer"},
		{"quarantine without unit", inFile("quarantine: 300"), "quarantine", "300", "1m"},
		{"IPv4 natively", inFile("families: {ipv4: native}"), "families.ipv4", "native", "cloud or node"},
		{"IPv6 by the cloud", inFile("families: {ipv6: cloud}"), "families.ipv6", "cloud", "native or node or none"},
	})
}

func TestPoolsOfTheFile(t *testing.T) {
	s := withPools(
		"name: own, source: node",
		"name: big, cidr: 'fd00::/32', nodeMask: 80, state: draining",
		"name: small, cidr: 10.245.0.0/16, nodeMask: 26, nodeSelector: 'size in (tiny,small),!gpu', state: active",
		"name: own-wide, source: node, nodeMask: 72, nodeSelector: edge",
	).flagged(func(f Flags) { f["--cluster-cidr"] = "" })
	config, warnings, err := load(t, s)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range config.IPAM.Pools {
		got = append(got, fmt.Sprintf("%s: %s %v/%d own=%t draining=%t %v", p.Field, p.Name, p.Prefix, p.NodeMask, p.Own, p.Draining, p.Selector))
	}
	want := []string{
		"pools[0].cidr: default-ipv4 10.244.0.0/16/24 own=false draining=false <nil>",
		"pools[1].source: own invalid Prefix/80 own=true draining=false <nil>",
		"pools[2].cidr: big fd00::/32/80 own=false draining=true <nil>",
		"pools[3].cidr: small 10.245.0.0/16/26 own=false draining=false !gpu,size in (small,tiny)",
		"pools[4].source: own-wide invalid Prefix/72 own=true draining=false edge",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if got := fields(warnings); got != "pools[2].cidr" {
		t.Errorf("warnings %v, want one: nothing routes pool big", warnings)
	}
	routing := routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Unrouted}
	if !config.Routes.Enabled || config.Families != routing {
		t.Errorf("routes %t, families %v", config.Routes.Enabled, config.Families)
	}
}

func TestWhereANodeMaskComesFrom(t *testing.T) {
	type masks struct{ one, four, six int }
	for name, c := range map[string]struct {
		flags masks
		pool  string
		want  int
	}{
		"default":             {masks{}, "cidr: 10.245.0.0/16", 24},
		"default, IPv6":       {masks{}, "cidr: 'fd00::/48'", 64},
		"default, own":        {masks{}, "source: node", 80},
		"flag":                {masks{four: 26}, "cidr: 10.245.0.0/16", 26},
		"flag of one family":  {masks{one: 26}, "cidr: 10.245.0.0/16", 26},
		"flag, IPv6":          {masks{six: 72}, "cidr: 'fd00::/48'", 72},
		"flag, not for own":   {masks{one: 26}, "source: node", 80},
		"key over flag":       {masks{four: 26}, "cidr: 10.245.0.0/16, nodeMask: 25", 25},
		"key over flag, IPv6": {masks{six: 72}, "cidr: 'fd00::/48', nodeMask: 96", 96},
	} {
		t.Run(name, func(t *testing.T) {
			config, _, err := load(t, withPools("name: a, "+c.pool).flagged(func(f Flags) {
				f["--node-cidr-mask-size"], f["--node-cidr-mask-size-ipv4"], f["--node-cidr-mask-size-ipv6"] = number(c.flags.one), number(c.flags.four), number(c.flags.six)
			}))
			if err != nil {
				t.Fatal(err)
			}
			if got := config.IPAM.Pools[1].NodeMask; got != c.want {
				t.Errorf("node mask %d, want %d", got, c.want)
			}
		})
	}
}

func TestPoolWarnings(t *testing.T) {
	families := func(text string, items ...string) setup {
		s := withPools(items...)
		s.file += "families: " + text
		return s
	}
	off := func(f Flags) { f["--configure-cloud-routes"] = "false" }
	const own, six = "name: own, source: node", "name: six, cidr: 'fd00::/48'"
	for name, c := range map[string]struct {
		setup setup
		want  string
	}{
		"as the flag":              {withPools(), ""},
		"outside the flag":         {withPools("name: a, cidr: 10.245.0.0/16"), "pools[1].cidr"},
		"without the flag":         {withPools("name: a, cidr: 10.245.0.0/16").flagged(func(f Flags) { f["--cluster-cidr"] = "" }), ""},
		"one draining":             {withPools("name: a, cidr: 10.245.0.0/16, state: draining").flagged(func(f Flags) { f["--cluster-cidr"] = "10.244.0.0/15" }), ""},
		"IPv6 that nobody routes":  {withPools(six).flagged(func(f Flags) { f["--cluster-cidr"] = "" }), "pools[1].cidr"},
		"own":                      {withPools(own), ""},
		"exclusion in own":         {func() setup { s := withPools(own); s.file += "exclude: ['2001:db8::/32']"; return s }(), ""},
		"native":                   {families("{ipv6: native}", own), ""},
		"native, nothing own":      {families("{ipv6: native}"), "families.ipv6"},
		"native, not all own":      {families("{ipv6: native}", own, six).flagged(func(f Flags) { f["--cluster-cidr"] = "" }), "pools[2].cidr"},
		"known to be unrouted":     {families("{ipv6: none}", six).flagged(func(f Flags) { f["--cluster-cidr"] = "" }), ""},
		"mask of no pool's family": {withPools(own).flagged(func(f Flags) { f["--node-cidr-mask-size-ipv6"] = "72" }), "--node-cidr-mask-size-ipv6"},
		"cloud":                    {families("{ipv4: cloud}"), ""},
		"cloud, switched off":      {families("{ipv4: cloud}").flagged(off), "families.ipv4"},
	} {
		t.Run(name, func(t *testing.T) {
			config, warnings, err := load(t, c.setup)
			if err != nil {
				t.Fatal(err)
			}
			if got := fields(warnings); got != c.want {
				t.Errorf("warnings %v\nare about %q, want %q", warnings, got, c.want)
			}
			if config.Families.IPv4 == routes.ByNodes && config.Routes.Enabled {
				t.Error("routes in the cloud, though the nodes were to have them")
			}
		})
	}
}
