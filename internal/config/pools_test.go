package config

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/underlay-ccm/underlay/ipam"
)

func TestMistakesInPrefixes(t *testing.T) {
	masks := func(list string, one, four, six int) setup {
		return flagged(func(f Flags) {
			f["--cluster-cidr"] = list
			f["--node-cidr-mask-size"], f["--node-cidr-mask-size-ipv4"], f["--node-cidr-mask-size-ipv6"] = number(one), number(four), number(six)
		})
	}
	const four, both = "10.244.0.0/16", "10.244.0.0/16,fd00:10:244::/56"
	const six, sixLess = "fd00:10:244::/56", "--configure-cloud-routes"
	routeless := func(s setup) setup {
		s.flags["--configure-cloud-routes"] = "false"
		return s
	}
	checkMistakes(t, []mistake{
		{"none", clusters(""), clusterFlag, "", "10.244.0.0/16"},
		{"no prefix", clusters("10.244.0.0"), clusterFlag, "10.244.0.0", "address and length"},
		{"unmasked", clusters("10.244.0.1/16"), clusterFlag, "10.244.0.1/16", "10.244.0.0/16"},
		{"mapped", clusters("::ffff:10.244.0.0/112"), clusterFlag, "::ffff:10.244.0.0/112", "IPv4 notation"},
		{"empty item", clusters("10.244.0.0/16,"), clusterFlag, "10.244.0.0/16,", "address and length"},
		{"three", clusters("10.0.0.0/16,fd00::/56,10.1.0.0/16"), clusterFlag, "10.0.0.0/16,fd00::/56,10.1.0.0/16", "at most 2"},
		{"same family", clusters("10.1.0.0/16,10.2.0.0/16"), clusterFlag, "10.2.0.0/16", "one IPv4 and one IPv6"},
		{"public, with routes", clusters("100.64.0.0/16"), clusterFlag, "100.64.0.0/16", "192.168.0.0/16"},
		{"wider than private", clusters("192.0.0.0/8"), clusterFlag, "192.0.0.0/8", "172.16.0.0/12"},
		{"IPv6 alone, with routes", clusters(six), clusterFlag, six, sixLess},
		{"gateway", clusters("172.31.0.0/16"), clusterFlag, "172.31.0.0/16", "exclude"},
		{"too small", clusters("10.0.0.0/31"), clusterFlag, "10.0.0.0/31", "30 or shorter"},
		{"too small, IPv6", routeless(clusters("fd00::/127")), clusterFlag, "fd00::/127", "126 or shorter"},
		{"overlap", clusters("10.0.0.0/8"), clusterFlag, "10.0.0.0/8", "apart"},
		{"overlap, IPv6", clusters("fd00:10:96::/56,10.244.0.0/16"), clusterFlag, "fd00:10:96::/56", "apart"},
		{
			"service range", flagged(func(f Flags) { f["--service-cluster-ip-range"] = "10.96.0.1/12" }),
			serviceFlag, "10.96.0.1/12", "10.96.0.0/12",
		},
		{
			"service ranges of one family", flagged(func(f Flags) { f["--service-cluster-ip-range"] = "10.96.0.0/16,10.97.0.0/16" }),
			serviceFlag, "10.97.0.0/16", "one IPv4 and one IPv6",
		},
		{"mask, dual-stack", masks(both, 25, 0, 0), maskFlag, "25", maskFlagIPv4},
		{"mask and mask", masks(four, 25, 25, 0), maskFlag, "25", "only one"},
		{"shorter than the pool", masks(four, 8, 0, 0), maskFlag, "8", "16 to 30"},
		{"shorter than the pool, dual-stack", masks(both, 0, 15, 0), maskFlagIPv4, "15", "16 to 30"},
		{"shorter than the pool, by default", clusters("10.0.0.0/26"), maskFlagIPv4, "24", "26 to 30"},
		{"too long", masks(four, 31, 0, 0), maskFlag, "31", "16 to 30"},
		{"too long, dual-stack", masks(both, 0, 31, 0), maskFlagIPv4, "31", "1 to 30"},
		{"IPv6 too long", masks(both, 0, 0, 127), maskFlagIPv6, "127", "1 to 126"},
		{"IPv6 too far below", masks(both, 0, 0, 105), maskFlagIPv6, "105", "56 to 104"},
		{"IPv6 too far below, by default", routeless(clusters("2002::/15")), maskFlagIPv6, "64", "15 to 63"},
		{"IPv4 too far below", routeless(masks("12.0.0.0/8", 0, 26, 0)), maskFlagIPv4, "26", "8 to 24"},
		{"IPv4 too far below, by default", routeless(masks("12.0.0.0/6", 0, 0, 0)), maskFlagIPv4, "24", "6 to 22"},
		{"negative", masks(four, -1, 0, 0), maskFlag, "-1", "1 to 126"},
		{"everything excluded", inFile("exclude: [10.0.0.0/8]"), "exclude", "10.0.0.0/8", "exclude less"},
		{
			"everything excluded by parts", inFile("exclude: [10.244.0.0/17, 10.244.128.0/17]"),
			"exclude", "10.244.0.0/17,10.244.128.0/17", "exclude less",
		},
	})
}

func TestGatewayMayBeExcluded(t *testing.T) {
	s := clusters("172.16.0.0/12")
	s.file, s.env = "exclude: [172.31.1.0/24]", env(nil)
	if _, warnings, err := load(t, s); err != nil || len(warnings) > 0 {
		t.Errorf("Load: %v, warnings %v", err, warnings)
	}
}

// makesLedger passes the configuration to the allocator, as the controller manager does after its
// election: an error would be too late then.
func makesLedger(c Config) error {
	if !c.IPAM.Enabled {
		return nil
	}
	var pools []ipam.PoolConfig
	for _, p := range c.IPAM.Pools {
		config := ipam.PoolConfig{Name: p.Name, Prefix: p.Prefix, NodeMask: p.NodeMask, Own: p.Own}
		if p.Draining {
			config.State = ipam.Draining
		}
		pools = append(pools, config)
	}
	if _, err := ipam.NewLedger(pools, slices.Concat(c.IPAM.ServiceRanges,
		c.IPAM.Exclude)); err != nil {
		return fmt.Errorf("Load accepts what the allocator refuses: %w", err)
	}
	return nil
}

func TestAcceptedPoolsMakeALedger(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	prefix := func(ipv4 bool) string {
		address, bits := make([]byte, 16), 128
		if ipv4 {
			address, bits = make([]byte, 4), 32
		}
		for i := range address {
			address[i] = byte(random.UintN(256))
		}
		a, _ := netip.AddrFromSlice(address)
		return netip.PrefixFrom(a, random.IntN(bits+1)).Masked().String()
	}
	list := func(most int) string {
		var items []string
		for range random.IntN(most + 1) {
			items = append(items, prefix(random.IntN(2) == 0))
		}
		return strings.Join(items, ",")
	}
	mask := func(of string, bits int) int {
		p, err := netip.ParsePrefix(of)
		if err != nil || random.IntN(3) == 0 {
			return 0
		}
		return min(bits, max(0, p.Bits()+random.IntN(56)-2))
	}
	outcomes := map[bool]int{}
	for range 4000 {
		four, six := prefix(true), prefix(false)
		flags := Flags{"--allocate-node-cidrs": "true", "--service-cluster-ip-range": list(1), "--configure-cloud-routes": "false"}
		pools := ""
		switch random.IntN(4) {
		case 0:
			flags["--cluster-cidr"], flags["--node-cidr-mask-size"] = four, number(mask(four, 32))
		case 1:
			flags["--cluster-cidr"], flags["--node-cidr-mask-size"] = six, number(mask(six, 128))
		case 2:
			pools = fmt.Sprintf(`
pools:
- {name: four, cidr: %q, nodeMask: %d}
- {name: own, source: node, nodeMask: %d, state: %s}
- {name: six, cidr: %q, nodeMask: %d}
`, four, max(1, mask(four, 32)), 60+random.IntN(70), []string{"active", "draining"}[random.IntN(2)], six, max(1, mask(six, 128)))
		default:
			flags["--cluster-cidr"] = six + "," + four
			flags["--node-cidr-mask-size-ipv4"], flags["--node-cidr-mask-size-ipv6"] = number(mask(four, 32)), number(mask(six, 128))
		}
		s := setup{flags: flags, file: "exclude: [" + quoted(list(2)) + "]" + pools, env: env(nil)}
		config, _, err := load(t, s)
		outcomes[err == nil]++
		if err != nil {
			continue
		}
		if err := makesLedger(config); err != nil {
			t.Fatalf("flags %+v, %s: %v", flags, s.file, err)
		}
	}
	if outcomes[true] < 500 || outcomes[false] < 500 {
		t.Errorf("the cases are lopsided: %v", outcomes)
	}
}

// quoted puts every item of a list into quotes: IPv6 addresses would be read as mappings.
func quoted(list string) string {
	if list == "" {
		return ""
	}
	return `"` + strings.ReplaceAll(list, ",", `", "`) + `"`
}
