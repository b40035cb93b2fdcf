package config

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/routes"
)

// FuzzLoad: nothing panics, nothing prints the token, an error is always Errors with a line for
// each, and an accepted Config has the properties that its type promises.
func FuzzLoad(f *testing.F) {
	example, err := os.ReadFile(referencePath)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(example, "10.244.0.0/16,fd00:10:244::/56", "10.96.0.0/16", 0, 24, 64, "", false)
	f.Add([]byte(head+"exclude: [10.0.0.0/9, ::/1]\n"), "10.0.0.0/8", "fd00::/112", 30, 0, 0, "https://a/v1", true)
	f.Add([]byte(head), "10.0.0.0/8", "", 0, 26, 0, "https://a/v1", false)
	f.Add([]byte(head+"a: &a [*a, *a]\n<<: *a\n? [x]\n: y\n"), "::/0", "0.0.0.0/0", -1, 0, 0, "http://%zz/v1", true)
	f.Add([]byte(head+"tokenFile: /t\nroutes: !!map {limit: !!int 7}\n--- x\n"), ",", " ", 0, 0, 1<<40, "https://u:p@h", false)
	f.Add([]byte(head+"pools: [{name: a, cidr: 10.0.0.0/9}, {name: b, source: node}, {name: c, cidr: 'fd00::/16'}]\n"), "", "", 1, 0, 0, "https://a/v1", false)
	f.Add([]byte(head+"pools:\n- name: a\n  cidr: 10.0.0.0/9\n  nodeSelector: a in (b,c)\n  state: draining\n- {}\n- 7\nfamilies: {ipv6: native}\nquarantine: 1h\n"), "10.0.0.0/8", "", 1, 25, 0, "https://a/v1", false)
	f.Add([]byte(head+"provider: metal\ninventory: [{name: a.b, addresses: [192.0.2.7], zone: z}, {name: c, type: t}]\nfamilies: {ipv6: none}\n"), "10.0.0.0/16,fd00::/48", "", 0, 0, 0, "c", false)
	f.Add([]byte(head+"provider: metal\naddresses:\n  pools: [{name: a, ranges: [192.0.2.0/30, '2001:db8::1-2001:db8::9'], mover: bgp}, {name: b, ranges: [192.0.2.9]}]\n  bgp: {asn: 64512, peers: [{name: r, address: 192.0.2.8, asn: 1, communities: [1:2], nodeSelector: a}]}\n"), "10.0.0.0/16", "", 0, 0, 0, "c", false)
	f.Fuzz(func(
		t *testing.T, file []byte, clusters, services string, mask, mask4, mask6 int, text string,
		badToken bool,
	) {
		token := tokenText
		if badToken {
			token += " " + tokenText
		}
		flags := Flags{
			"--allocate-node-cidrs": "true", "--configure-cloud-routes": strconv.FormatBool(mask%2 == 0), "--cluster-cidr": clusters, "--service-cluster-ip-range": services,
			"--node-cidr-mask-size": number(mask), "--node-cidr-mask-size-ipv4": number(mask4), "--node-cidr-mask-size-ipv6": number(mask6), "--cluster-name": text,
		}
		variables := vars{
			"HCLOUD_TOKEN": token, "HCLOUD_TOKEN_FILE": token, "HCLOUD_ENDPOINT": text, "HCLOUD_NETWORK": text,
			"HCLOUD_LOAD_BALANCERS_TYPE": text, "ROBOT_PASSWORD": token, "ROBOT_ENABLED": token,
		}
		if mask4%2 == 0 {
			for _, name := range []string{"HCLOUD_TOKEN_FILE", "ROBOT_ENABLED"} {
				delete(variables, name)
			}
		}
		files := fakeFiles{"/t": token, "/etc/underlay/token": token}
		config, warnings, err := Load(flags, file, func(name string) string { return variables[name] },
			files.read)
		printed := fmt.Sprintf("%v %+v %#v %v %v", config, config, config, warnings, err)
		given := string(file) + clusters + services + text
		if strings.Contains(printed, tokenText) && !strings.Contains(given, tokenText) {
			t.Errorf("the token shows in %s", printed)
		}
		if err == nil {
			checkPromises(t, config)
			return
		}
		var all Errors
		if !errors.As(err, &all) || strings.Count(err.Error(), "\n") != len(all)-1 {
			t.Errorf("not one line for each error: %q", err)
		}
		for _, one := range all {
			if one.Field == "" || one.Problem == "" || one.Remedy == "" {
				t.Errorf("incomplete: %#v", one)
			}
		}
	})
}

// checkPromises checks a Config against the comments of its type.
func checkPromises(t *testing.T, c Config) {
	t.Helper()
	if c.Routes.Reserve >= c.Routes.Limit || c.Routes.Enabled && c.Network == "" {
		t.Errorf("routes %+v, network %q", c.Routes, c.Network)
	}
	if c.LoadBalancers.Location != "" && c.LoadBalancers.NetworkZone != "" {
		t.Errorf("both location and zone: %+v", c.LoadBalancers)
	}
	hasIPv4 := false
	for i, pool := range c.IPAM.Pools {
		for _, other := range c.IPAM.Pools[:i] {
			if other.Name == pool.Name || !other.Own && other.Prefix.Overlaps(pool.Prefix) {
				t.Errorf("pool %v beside %v", pool, other)
			}
		}
		if pool.Own != !pool.Prefix.IsValid() || pool.Name == "" {
			t.Errorf("pool %v", pool)
		}
		if pool.Own {
			if pool.NodeMask < 65 || pool.NodeMask > 126 {
				t.Errorf("pool %v", pool)
			}
			continue
		}
		hasIPv4 = hasIPv4 || pool.Prefix.Addr().Is4()
		if pool.NodeMask < pool.Prefix.Bits() || pool.NodeMask > pool.Prefix.Addr().BitLen()-2 {
			t.Errorf("pool %v", pool)
		}
		for _, service := range c.IPAM.ServiceRanges {
			if service.Overlaps(pool.Prefix) {
				t.Errorf("pool %v overlaps %v", pool, service)
			}
		}
	}
	if len(c.IPAM.Pools) == 0 && c.IPAM.Enabled || c.Routes.Enabled && !hasIPv4 {
		t.Errorf("pools %v, IPAM %t, routes %t", c.IPAM.Pools, c.IPAM.Enabled, c.Routes.Enabled)
	}
	if c.Routes.Enabled && c.Families.IPv4 != routes.ByCloud || c.IPAM.Quarantine < time.Minute {
		t.Errorf("families %v, routes %t, quarantine %v", c.Families, c.Routes.Enabled, c.IPAM.Quarantine)
	}
	if err := makesLedger(c); err != nil {
		t.Error(err)
	}
	checkAddressPromises(t, c)
	if c.Provider == Metal {
		checkMetalPromises(t, c)
		return
	}
	if token, err := c.Token.Read(); err != nil || token.Reveal() != tokenText {
		t.Errorf("token: %v", err)
	}
	if c.Provider != Hcloud || len(c.Inventory) > 0 {
		t.Errorf("provider %q with inventory %v", c.Provider, c.Inventory)
	}
}

// FuzzPools: pools of every shape are rejected with a mistake that names one of their keys, or they
// have the properties that Config promises.
func FuzzPools(f *testing.F) {
	f.Add("a", "10.0.0.0/9", 24, "", "", "b", "fd00::/16", 64, "", "draining", "10.0.0.0/8")
	f.Add("a", "", 80, "node", "", "a", "", 65, "node", "active", "")
	f.Add("a", "10.0.0.0/8", 0, "", "a=b", "b", "10.128.0.0/9", 126, "", "", "fd00::/16")
	f.Fuzz(func(
		t *testing.T, name, cidr string, mask int, source, selector, name2, cidr2 string, mask2 int,
		source2, state, clusters string,
	) {
		pool := func(values ...any) string {
			var keys []string
			for i, key := range []string{"name", "cidr", "nodeMask", "source", "nodeSelector", "state"} {
				if text := fmt.Sprint(values[i]); text != "" && text != "0" {
					keys = append(keys, fmt.Sprintf("%q: %q", key, text))
				}
			}
			return "- {" + strings.Join(keys, ", ") + "}\n"
		}
		file := head + "pools:\n" + pool(name, cidr, mask, source, selector, "") + pool(name2, cidr2, mask2, source2, "", state)
		variables := vars{"HCLOUD_TOKEN": tokenText}
		config, _, err := Load(Flags{"--allocate-node-cidrs": "true", "--cluster-cidr": clusters, "--configure-cloud-routes": "false"}, []byte(file),
			func(name string) string { return variables[name] }, fakeFiles{}.read)
		if err == nil {
			checkPromises(t, config)
			return
		}
		var all Errors
		if !errors.As(err, &all) {
			t.Fatalf("%T: %v", err, err)
		}
		for _, e := range all {
			known := e.Field == "--cloud-config" || e.Field == clusterFlag || strings.HasPrefix(e.Field, "pools[")
			if !known || e.Problem == "" || e.Remedy == "" {
				t.Errorf("%#v", e)
			}
		}
	})
}
