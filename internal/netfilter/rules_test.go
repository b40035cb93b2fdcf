package netfilter

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/knftables"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// openings allows each source to reach each endpoint.
func openings(sources string, endpoints ...string) []Opening {
	var all []Opening
	for _, from := range prefixes(strings.Fields(sources)...) {
		for _, to := range endpoints {
			all = append(all, Opening{from, netip.MustParseAddrPort(to)})
		}
	}
	return all
}

// dualStack is a node with private IPv4 and public IPv6.
func dualStack() Desired {
	return Desired{
		PodCIDRs:      prefixes("10.244.1.0/24", "2001:db8:1:0:1::/80"),
		ClusterPods:   prefixes("10.244.0.0/24", "10.244.1.0/24", "2001:db8:1:0:1::/80", "2001:db8:2:0:1::/80"),
		InternalIPs:   addrs("10.0.0.2", "10.0.0.3"),
		ExternalIPs:   addrs("198.51.100.7", "2001:db8:1::1", "2001:db8:2::1"),
		FilterInbound: true,
	}
}

// text is a ruleset in the form in which it is loaded.
func text(t *testing.T, rules ruleset) string {
	t.Helper()
	tx := knftables.NewFake(knftables.InetFamily, tableName).NewTransaction()
	plan{rebuild: "it was missing"}.fill(tx, rules)
	var lines []string
	for line := range strings.Lines(tx.String()) {
		line, _, _ = strings.Cut(line, " { comment ")
		if strings.HasPrefix(line, "flush chain ") {
			continue
		}
		line = strings.TrimSpace(line)
		lines = append(lines, strings.ReplaceAll(line, " inet underlay", ""))
	}
	return strings.Join(lines, "\n")
}

func TestRules(t *testing.T) {
	const (
		table  = "add table\ndelete table\nadd table\n"
		inside = "add set inside-4 { type ipv4_addr ; flags interval ; }\nadd element inside-4 { 10.0.0.2/31 }\nadd element inside-4 { 10.244.0.0/23 }\n"
		leave  = "add chain leaving { type nat hook postrouting priority 100 ; policy accept ; }\nadd rule leaving "
		none   = "add set targets-6 { type ipv6_addr . ipv6_addr . inet_service ; flags interval ; }\n"
		open   = "add rule inbound ip6 saddr . ip6 daddr . tcp dport @targets-6 accept\n"
		four   = `ip saddr 10.244.1.0/24 ip daddr != @inside-4 oifname != "veth*" masquerade fully-random`
	)
	for name, test := range map[string]struct {
		change func(*Desired)
		want   string
	}{
		"private IPv4, public IPv6": {func(*Desired) {}, table + inside +
			"add set inside-6 { type ipv6_addr ; flags interval ; }\nadd element inside-6 { 2001:db8:1:0:1::/80 }\nadd element inside-6 { 2001:db8:2:0:1::/80 }\n" +
			"add set outer-4 { type ipv4_addr ; flags interval ; }\nadd element outer-4 { 198.51.100.7 }\n" +
			"add set outer-6 { type ipv6_addr ; flags interval ; }\nadd element outer-6 { 2001:db8:1::1 }\nadd element outer-6 { 2001:db8:2::1 }\n" +
			none + leave + four + "\nadd chain inbound\n" +
			"add rule inbound ct state established,related accept\nadd rule inbound ct status dnat accept\n" +
			"add rule inbound ip saddr @inside-4 accept\nadd rule inbound ip saddr @outer-4 accept\n" +
			"add rule inbound ip6 saddr @inside-6 accept\nadd rule inbound ip6 saddr @outer-6 accept\n" + open + "add rule inbound drop\n" +
			"add chain forwarded { type filter hook forward priority 0 ; policy accept ; }\nadd rule forwarded ip daddr 10.244.1.0/24 goto inbound\nadd rule forwarded ip6 daddr 2001:db8:1:0:1::/80 goto inbound"},
		"a pod is open to a load balancer": {func(d *Desired) {
			d.PodCIDRs = d.PodCIDRs[1:]
			d.Openings = openings("2001:db8:f::2/128 2001:db8:f::/64", "[2001:db8:1:0:1::7]:8080", "[2001:db8:1:0:1::7]:81")
		}, table +
			"add set inside-6 { type ipv6_addr ; flags interval ; }\nadd element inside-6 { 2001:db8:1:0:1::/80 }\nadd element inside-6 { 2001:db8:2:0:1::/80 }\n" +
			"add set outer-6 { type ipv6_addr ; flags interval ; }\nadd element outer-6 { 2001:db8:1::1 }\nadd element outer-6 { 2001:db8:2::1 }\n" +
			none + "add element targets-6 { 2001:db8:f::/64 . 2001:db8:1:0:1::7 . 8080 }\nadd element targets-6 { 2001:db8:f::/64 . 2001:db8:1:0:1::7 . 81 }\n" +
			"add chain inbound\nadd rule inbound ct state established,related accept\nadd rule inbound ct status dnat accept\n" +
			"add rule inbound ip6 saddr @inside-6 accept\nadd rule inbound ip6 saddr @outer-6 accept\n" + open + "add rule inbound drop\n" +
			"add chain forwarded { type filter hook forward priority 0 ; policy accept ; }\nadd rule forwarded ip6 daddr 2001:db8:1:0:1::/80 goto inbound"},
		"a machine that reports no IPv6 address": {func(d *Desired) {
			d.PodCIDRs, d.ExternalIPs = d.PodCIDRs[1:], nil
			d.ServerPrefixes = prefixes("2001:db8:1::/64", "2001:db8:2::/64")
		}, table + "add set inside-6 { type ipv6_addr ; flags interval ; }\nadd element inside-6 { 2001:db8:1:0:1::/80 }\nadd element inside-6 { 2001:db8:2:0:1::/80 }\n" +
			"add set outer-6 { type ipv6_addr ; flags interval ; }\nadd element outer-6 { 2001:db8:1::/64 }\nadd element outer-6 { 2001:db8:2::/64 }\n" +
			none + "add chain inbound\nadd rule inbound ct state established,related accept\nadd rule inbound ct status dnat accept\n" +
			"add rule inbound ip6 saddr @inside-6 accept\nadd rule inbound ip6 saddr @outer-6 accept\n" + open + "add rule inbound drop\n" +
			"add chain forwarded { type filter hook forward priority 0 ; policy accept ; }\nadd rule forwarded ip6 daddr 2001:db8:1:0:1::/80 goto inbound"},
		"a tunnel": {func(d *Desired) {
			d.PodCIDRs, d.FilterInbound, d.Clamped, d.ClampedMTU = d.PodCIDRs[1:], false, "underlay-wg", 1370
		}, table + `add chain clamped { type filter hook forward priority -150 ; policy accept ; }
add rule clamped meta nfproto ipv4 iifname "underlay-wg" tcp flags syn / syn,rst tcp option maxseg size set 1330
add rule clamped meta nfproto ipv4 oifname "underlay-wg" tcp flags syn / syn,rst tcp option maxseg size set 1330
add rule clamped meta nfproto ipv6 iifname "underlay-wg" tcp flags syn / syn,rst tcp option maxseg size set 1310
add rule clamped meta nfproto ipv6 oifname "underlay-wg" tcp flags syn / syn,rst tcp option maxseg size set 1310`},
		"the filter switched off":      {func(d *Desired) { d.FilterInbound = false }, table + inside + leave + four},
		"public IPv6 alone, no filter": {func(d *Desired) { d.PodCIDRs, d.FilterInbound = d.PodCIDRs[1:], false }, table[:len(table)-1]},
		"unique local IPv6": {func(d *Desired) {
			d.PodCIDRs = prefixes("fd00:1::/64")
			d.ClusterPods = d.PodCIDRs
			d.InternalIPs = addrs("fd01::1")
			d.ExternalIPs, d.AllowedInbound = nil, prefixes("fd02::/48", "198.51.100.0/24")
		}, table +
			"add set inside-6 { type ipv6_addr ; flags interval ; }\nadd element inside-6 { fd00:1::/64 }\nadd element inside-6 { fd01::1 }\n" +
			"add set outer-6 { type ipv6_addr ; flags interval ; }\nadd element outer-6 { fd02::/48 }\n" + none +
			leave + `ip6 saddr fd00:1::/64 ip6 daddr != @inside-6 oifname != "veth*" masquerade fully-random` + "\nadd chain inbound\n" +
			"add rule inbound ct state established,related accept\nadd rule inbound ct status dnat accept\n" +
			"add rule inbound ip6 saddr @inside-6 accept\nadd rule inbound ip6 saddr @outer-6 accept\n" + open + "add rule inbound drop\n" +
			"add chain forwarded { type filter hook forward priority 0 ; policy accept ; }\nadd rule forwarded ip6 daddr fd00:1::/64 goto inbound"},
	} {
		t.Run(name, func(t *testing.T) {
			want := dualStack()
			test.change(&want)
			if diff := cmp.Diff(test.want, text(t, rulesFor(want))); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMasqueraded(t *testing.T) {
	for text, want := range map[string]bool{
		"10.244.0.0/16":  true,
		"100.64.0.0/16":  true,
		"203.0.113.0/24": true,
		"fd00::/64":      true,
		"fc00::/64":      true,
		"2a01:4f8::/80":  false,
	} {
		if got := masqueraded(netip.MustParsePrefix(text).Addr()); got != want {
			t.Errorf("%s: masqueraded %t, want %t", text, got, want)
		}
	}
}

// A minimal set contains the same addresses, has no overlaps, and doesn't depend on the order.
func TestMinimal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var all []netip.Prefix
		for range random.IntN(12) {
			bits := 24 + random.IntN(9)
			all = append(all,
				netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))}), bits).Masked())
		}
		got := minimal(all)
		for i := range 256 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			holds := func(p netip.Prefix) bool { return p.Contains(a) }
			if slices.ContainsFunc(all, holds) != slices.ContainsFunc(got, holds) {
				t.Fatalf("%v became %v, which differ in %s", all, got, a)
			}
		}
		for i, p := range got {
			for _, q := range got[:i] {
				if _, siblings := joined(q, p); siblings || p.Overlaps(q) {
					t.Fatalf("%v became %v: %s and %s could be one", all, got, q, p)
				}
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if again := minimal(all); !slices.Equal(got, again) {
			t.Fatalf("%v became %v in one order and %v in another", all, got, again)
		}
	}
}

func TestDiff(t *testing.T) {
	desired := dualStack()
	desired.Openings = openings("2001:db8:f::2/128", "[2001:db8:1:0:1::7]:80", "[2001:db8:1:0:1::8]:80")
	rules := rulesFor(desired)
	for name, test := range map[string]struct {
		want   ruleset
		change func(*found)
		says   string // part of the only line; empty: no change
	}{
		"as it should be":  {rules, func(*found) {}, ""},
		"not there":        {rules, func(f *found) { *f = found{} }, "it was missing"},
		"not to be there":  {ruleset{}, func(*found) {}, "is removed"},
		"neither":          {ruleset{}, func(f *found) { *f = found{} }, ""},
		"flushed":          {rules, func(f *found) { f.parts = map[string][]string{} }, "chain leaving was missing"},
		"a chain is empty": {rules, func(f *found) { f.parts["chain inbound"] = nil }, `chain inbound was another: "ct state established,related accept" was missing`},
		"in another order": {rules, func(f *found) { is := f.parts["chain inbound"]; is[0], is[1] = is[1], is[0] }, "chain inbound was another"},
		"a rule too many":  {rules, func(f *found) { f.parts["chain inbound"] = append(f.parts["chain inbound"], "accept") }, `it had "accept" too`},
		"another rule":     {rules, func(f *found) { is := f.parts["chain inbound"]; is[len(is)-1] = "accept" }, `it had "accept", not "drop"`},
		"another policy": {rules, func(f *found) {
			f.parts["chain forwarded"][0] = "type filter hook forward priority filter; policy drop;"
		}, "policy drop"},
		"a chain too many":        {rules, func(f *found) { f.parts["chain other"] = []string{"drop"} }, "chain other should not"},
		"an empty chain too many": {rules, func(f *found) { f.parts["chain other"] = nil }, "chain other should not"},
		"a set more":              {rules, func(f *found) { f.parts["set other"], f.sets["other"] = nil, nil }, ""},
		"dormant":                 {rules, func(f *found) { f.parts[""] = []string{"flags dormant"} }, "made anew: it had flags dormant"},
		"a set of another kind":   {rules, func(f *found) { f.parts["set inside-4"][1] = "flags interval,timeout" }, "made anew: its set inside-4 was another"},
		"no set":                  {rules, func(f *found) { delete(f.sets, "inside-4"); delete(f.parts, "set inside-4") }, "inside-4 of table underlay: 2 prefixes added, 0 removed"},
		"a range in a set":        {rules, func(f *found) { f.sets["inside-4"] = []string{""} }, "inside-4 of table underlay: 2 prefixes added, 1 removed"},
		"an empty set":            {rules, func(f *found) { f.sets["inside-4"] = nil }, "inside-4 of table underlay: 2 prefixes added, 0 removed"},
		"elements":                {rules, func(f *found) { f.sets["outer-6"] = []string{"2001:db8:2::1", "2001:db8::/32"} }, "outer-6 of table underlay: 1 prefixes added, 1 removed"},
		"openings":                {rules, func(f *found) { f.sets["targets-6"] = f.sets["targets-6"][1:] }, "targets-6 of table underlay: 1 openings added, 0 removed"},
		"openings of a range":     {rules, func(f *found) { f.sets["targets-6"] = []string{""} }, "targets-6 of table underlay: 2 openings added, 1 removed"},
	} {
		t.Run(name, func(t *testing.T) {
			have := rules.found()
			test.change(&have)
			lines := diff(test.want, have).lines()
			if test.says == "" && len(lines) > 0 || test.says != "" && (len(lines) != 1 || !strings.Contains(lines[0], test.says)) {
				t.Errorf("got %q, want %q", lines, test.says)
			}
		})
	}
}

// A minimal set allows the same connections, has no overlaps, and doesn't depend on the order.
func TestMinimalOpenings(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		var all []Opening
		for range random.IntN(12) {
			from := netip.PrefixFrom(netip.AddrFrom16([16]byte{15: byte(random.IntN(16))}), 124+
				random.IntN(5)).Masked()
			to := netip.AddrPortFrom(netip.AddrFrom16([16]byte{0x20, 15: byte(random.IntN(2))}), uint16(80+
				random.IntN(2)))
			all = append(all, Opening{from, to})
		}
		elements := openingElements(all)
		var got []Opening
		for _, e := range elements {
			fields := strings.Split(e, " . ")
			from, err := netip.ParsePrefix(fields[0])
			if err != nil { // a single address
				from = hosts(addrs(fields[0]))[0]
			}
			got = append(got, Opening{from, netip.MustParseAddrPort("[" + fields[1] + "]:" + fields[2])})
		}
		for _, to := range got {
			for i := range 16 {
				from := netip.AddrFrom16([16]byte{15: byte(i)})
				holds := 0
				for _, e := range got {
					if e.To == to.To && e.From.Contains(from) {
						holds++
					}
				}
				wanted := slices.ContainsFunc(all, func(o Opening) bool {
					return o.To == to.To && o.From.Contains(from)
				})
				if holds > 1 || wanted != (holds == 1) {
					t.Fatalf("%v became %v: %s to %s is in %d", all, got, from, to.To, holds)
				}
			}
		}
		for _, o := range all {
			if !slices.ContainsFunc(got, func(e Opening) bool { return e.To == o.To }) {
				t.Fatalf("%v became %v, without %s", all, got, o.To)
			}
		}
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if again := openingElements(all); !slices.Equal(elements, again) {
			t.Fatalf("%v became %v in one order and %v in another", all, elements, again)
		}
	}
}

func TestElementsAreReadAsTheyAreWritten(t *testing.T) {
	written := slices.Concat(prefixElements(prefixes("10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32")), servedElements(endpoints("192.0.2.1", "2001:db8::7", 80), 0))
	for _, o := range openings("::/0 2001:db8::/32 2001:db8::1/128", "[2001:db8::7]:80", "[2001:db8::7]:65535") {
		written = append(written, openingElements([]Opening{o})...)
	}
	for _, e := range written {
		if got := elementOf(strings.Split(e, " . ")); got != e {
			t.Errorf("%q is read as %q", e, got)
		}
	}
	for want, key := range map[string][]string{
		"192.0.2.1":                      {"192.0.2.1/32"},
		"2001:db8::1 . 2001:db8::7 . 80": {"2001:db8::1/128", "2001:db8::7/128", "80"},
	} {
		if got := elementOf(key); got != want {
			t.Errorf("%q is read as %q, want %q", key, got, want)
		}
	}
	for _, key := range [][]string{nil, {""}, {"2001:db8::1", "", "80"}, {"2001:db8::1", "2001:db8::7", ""}, {"", "2001:db8::7", "80"}} {
		if got := elementOf(key); got != "" {
			t.Errorf("%q is read as %q", key, got)
		}
	}
}

func TestPartsOf(t *testing.T) {
	const shown = `table inet underlay { # progname somebody
	comment "pod network"
	flags dormant

	set inside-4 {
		type ipv4_addr
		size 65536	# count 2
		flags interval
		# count 2
	}

	chain inbound {
		ct state established,related accept
		ip saddr { 10.0.0.1, 10.0.0.2 } drop
	}

	chain empty {
	}
}
`
	want := map[string][]string{
		"":              {"flags dormant"},
		"set inside-4":  {"type ipv4_addr", "size 65536", "flags interval"},
		"chain inbound": {"ct state established,related accept", "ip saddr { 10.0.0.1, 10.0.0.2 } drop"},
		"chain empty":   nil,
	}
	if diff := cmp.Diff(want, partsOf(shown)); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}
