package chart

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// choices are values that the chart and the programs judge, each
// alone and in any combination; "": not given. allocateNodeCIDRs is not among them:
// without it the controller manager needs no pods' range, but the chart wants one
// all the same, for routes and agents.
func choices() map[string][]string {
	return map[string][]string{
		"clusterCIDR": {
			"", "10.244.0.0/16", "10.244.0.0/16", "10.244.0.0/16,fd00:10:244::/56", "fd00:10:244::/56", "10.244.0.0/25", "100.64.0.0/16",
			"172.16.0.0/12", "10.96.0.0/16", "10.244.0.1/16", "10.244.0.0/16,10.245.0.0/16", "10.0.0.0/7",
		},
		"serviceCIDR":                   {"10.96.0.0/12", "10.96.0.0/12", "10.96.0.0/12,fd00:10:244::/112", "10.96.0.1/12", "10.244.7.0/24"},
		"configureCloudRoutes":          {"true", "true", "false"},
		"agent.enabled":                 {"true", "true", "false"},
		"config.provider":               {"hcloud", "hcloud", "metal"},
		"config.network":                {"", "cluster", "cluster"},
		"config.families.ipv4":          {"", "", "", "node", "cloud"},
		"config.families.ipv6":          {"", "", "", "node", "native", "none"},
		"config.exclude":                {"", "", "[10.244.0.0/16]", "[172.31.1.1/32]", "[10.244.0.0/24]", "[10.244.0.1/24]"},
		"config.quarantine":             {"", "", "", "5m", "5s"},
		"config.ledgerShards":           {"", "", "", "none", "auto", "some"},
		"config.routes":                 {"", "", "", "{limit: 50, reserve: 10}", "{reserve: 100}", "{}"},
		"config.loadBalancers":          {"", "", "", "{location: fsn1}", "{usePrivateIP: true}", "{location: a, networkZone: b}", "{disablePublicNetwork: false}", "{healthCheckInterval: 1s}"},
		"config.inventory":              {"", "", "", "", "[{name: a, addresses: [192.0.2.1]}]", "[{name: a}, {name: a}]"},
		"config.pools":                  {"", "", "", "[{name: a, cidr: 10.244.0.0/16}]", "[{name: a, cidr: 10.245.0.0/16}, {name: b, source: node}]", "[{name: a, cidr: 10.244.0.0/17}, {name: b, cidr: 10.244.0.0/16}]", "[{name: a, cidr: 10.244.0.0/26, nodeMask: 28}]", "[{name: a, source: node}]", "[{name: a, cidr: 10.96.0.0/16}]", "[]"},
		"config.endpoint":               {"", "", "", "https://a/v1", "https://a"},
		"ccm.env.ROBOT_ENABLED":         {"", "", "", "false", "true"},
		"config.instancesAddressFamily": {"", "", "", "ipv4"},
	}
}

// TestChartRefusesNothingThatWorks changes each value alone, and then a few at once,
// at random but always the same: what the chart refuses wouldn't start.
func TestChartRefusesNothingThatWorks(t *testing.T) {
	chart := loaded(t)
	var asked []settings
	var refused []error
	all := changes()
	for _, changed := range all {
		values := parsed(t, onCloud)
		for _, c := range changed {
			set(t, values, c.key, c.value)
		}
		_, err := renderChart(t.Context(), chart, namespace, values)
		asked, refused = append(asked, unchecked(t, values)), append(refused, err)
	}
	fine, byChart := 0, 0
	for i, a := range ask(t, asked) {
		if !a.refused() {
			fine++
		}
		if refused[i] != nil {
			byChart++
			if !a.refused() {
				t.Errorf("with %v the chart says: %v, and the programs take it", all[i], refused[i])
			}
		}
	}
	if fine < len(all)/5 || byChart < len(all)/20 {
		t.Errorf("%d of %d are fine, and %d refused by the chart, which proves little", fine, len(all), byChart)
	}
}

type change struct{ key, value string }

func changes() [][]change {
	var all [][]change
	possible := choices()
	keys := slices.Sorted(maps.Keys(possible))
	for _, key := range keys {
		for _, value := range slices.Compact(slices.Clone(possible[key])) {
			all = append(all, []change{{key, value}})
		}
	}
	random := rand.New(rand.NewPCG(5, 6))
	for range 150 {
		var several []change
		for range 2 + random.IntN(4) {
			key := keys[random.IntN(len(keys))]
			several = append(several, change{key, possible[key][random.IntN(len(possible[key]))]})
		}
		all = append(all, several)
	}
	return all
}

// set puts a value in YAML at a path of keys, or takes away what is there.
func set(t *testing.T, values map[string]any, path, text string) {
	t.Helper()
	section, below, nested := strings.Cut(path, ".")
	if nested {
		inner, _ := values[section].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
		}
		set(t, inner, below, text)
		values[section] = inner
		return
	}
	delete(values, section)
	if text != "" {
		values[section] = parsed(t, "value: "+text)["value"]
	}
}
