package config

import (
	"errors"
	"io/fs"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
)

type (
	vars      map[string]string
	fakeFiles map[string]string
)

func (f fakeFiles) read(path string) ([]byte, error) {
	content, has := f[path]
	if !has {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return []byte(content), nil
}

// setup is one way to start the program. Its file gets the two lines that
// every file begins with; flags are upstream's defaults when nil.
type setup struct {
	flags Flags
	file  string
	env   vars
	files fakeFiles
}

const head = "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\n"

func load(t *testing.T, s setup) (Config, []Warning, error) {
	t.Helper()
	var content []byte
	if s.file != "" {
		content = []byte(head + s.file)
	}
	return Load(s.flags, content, func(name string) string { return s.env[name] }, s.files.read)
}

// number is a flag's text; empty if not given.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// dualStack are the flags of a cluster with everything on.
func dualStack(change ...func(Flags)) Flags {
	flags := Flags{
		"--cloud-provider":           "underlay",
		"--allocate-node-cidrs":      "true",
		"--configure-cloud-routes":   "true",
		"--cluster-cidr":             "10.244.0.0/16,fd00:10:244::/56",
		"--service-cluster-ip-range": "10.96.0.0/16,fd00:10:96::/112",
	}
	for _, f := range change {
		f(flags)
	}
	return flags
}

// ipv4Only are the flags of a cluster with everything on, for which there are no warnings.
func ipv4Only(change ...func(Flags)) Flags {
	flags := dualStack(func(f Flags) { f["--cluster-cidr"], f["--service-cluster-ip-range"] = "10.244.0.0/16", "10.96.0.0/16" })
	for _, f := range change {
		f(flags)
	}
	return flags
}

func env(change vars) vars {
	all := vars{"HCLOUD_TOKEN": tokenText, "HCLOUD_NETWORK": "net"}
	for name, value := range change {
		all[name] = value
	}
	return all
}

func fields(warnings []Warning) string {
	names := make([]string, len(warnings))
	for i, w := range warnings {
		names[i] = w.Field
	}
	return strings.Join(names, " ")
}

func TestDefaults(t *testing.T) {
	config, warnings, err := load(t, setup{flags: dualStack(), env: env(nil)})
	if err != nil || fields(warnings) != "--cluster-cidr" {
		t.Fatalf("Load: %v, warnings %v, want one about the IPv6 pool", err, warnings)
	}
	want := Config{
		Provider: Hcloud, ClusterName: "kubernetes", Endpoint: "https://api.hetzner.cloud/v1", Network: "net",
		InstancesAddressFamily: IPv4,
		IPAM: IPAM{
			Enabled: true,
			Pools: []Pool{
				{Name: "default-ipv4", Prefix: netip.MustParsePrefix("10.244.0.0/16"), NodeMask: 24, Field: "--cluster-cidr"},
				{Name: "default-ipv6", Prefix: netip.MustParsePrefix("fd00:10:244::/56"), NodeMask: 64, Field: "--cluster-cidr"},
			},
			ServiceRanges: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")},
			Quarantine:    5 * time.Minute,
			QPS:           100,
		},
		NetworkPolicy: true,
		Families:      routes.Modes{IPv4: routes.ByCloud, IPv6: routes.Unrouted},
		Routes: Routes{
			Enabled: true, Limit: 100, MaxDeletionsPercent: 25, ReconciliationPeriod: time.Minute,
		},
		WireGuard: WireGuard{Mode: NoWireGuard, Phase: routes.RequireTunnels, Port: 51820},
		LoadBalancers: LoadBalancers{
			Enabled: true,
			Defaults: lb.Defaults{
				Type: "lb11", CheckDefaults: lb.CheckDefaults{HealthCheck: lb.CheckKubeProxy, HealthCheckInterval: 10 * time.Second, HealthCheckTimeout: 15 * time.Second, HealthCheckRetries: 3}, Classless: true, Algorithm: lb.RoundRobin,
				Grants: lb.Grants{Certificates: lb.CertificatesAny},
			},
		},
	}
	if token, err := config.Token.Read(); err != nil || token.Reveal() != tokenText {
		t.Errorf("token: %v", err)
	}
	config.Token, config.origins = Secret{}, nil
	if !reflect.DeepEqual(config, want) {
		t.Errorf("got  %+v\nwant %+v", config, want)
	}
}

// TestEverySettingTakesEffect sets each key and each variable to a value other than the default and
// expects it in the Config; then sets the variable beside the key, which must take precedence.
func TestEverySettingTakesEffect(t *testing.T) {
	balancers := func(get func(LoadBalancers) any) func(Config) any {
		return func(c Config) any { return get(c.LoadBalancers) }
	}
	for _, c := range []struct {
		key, env, value, other string
		want                   any
		get                    func(Config) any
	}{
		{"endpoint", "HCLOUD_ENDPOINT", "https://a.example/v1/", "https://b.example/v1", "https://a.example/v1", func(c Config) any { return c.Endpoint }},
		{"network", "HCLOUD_NETWORK", "4711", "other", "4711", func(c Config) any { return c.Network }},
		{"instancesAddressFamily", "HCLOUD_INSTANCES_ADDRESS_FAMILY", "dualstack", "ipv6", DualStack, func(c Config) any { return c.InstancesAddressFamily }},
		{"exclude", "", "[10.244.9.0/24]", "", []netip.Prefix{netip.MustParsePrefix("10.244.9.0/24")}, func(c Config) any { return c.IPAM.Exclude }},
		{"quarantine", "", "90s", "", 90 * time.Second, func(c Config) any { return c.IPAM.Quarantine }},
		{"loadBalancers.podTargetSources", "", "[2001:db8::/48]", "", []netip.Prefix{netip.MustParsePrefix("2001:db8::/48")}, balancers(func(b LoadBalancers) any { return b.PodTargetSources })},
		{"families.ipv4", "", "node", "", routes.ByNodes, func(c Config) any { return c.Families.IPv4 }},
		{"families.ipv6", "", "node", "", routes.ByNodes, func(c Config) any { return c.Families.IPv6 }},
		{"ipamQPS", "", "7", "", 7, func(c Config) any { return c.IPAM.QPS }},
		{"networkPolicy", "", "off", "", false, func(c Config) any { return c.NetworkPolicy }},
		{"wireguardPresharedKeyFile", "", "/wg/key", "", "/wg/key", func(c Config) any { return c.WireGuard.PresharedKeyFile }},
		{"networkPolicyLog", "", "100", "", uint16(100), func(c Config) any { return c.NetworkPolicyLog }},
		{"routes.limit", "", "250", "", 250, func(c Config) any { return c.Routes.Limit }},
		{"routes.reserve", "", "5", "", 5, func(c Config) any { return c.Routes.Reserve }},
		{"routes.maxDeletions", "", "100%", "", 100, func(c Config) any { return c.Routes.MaxDeletionsPercent }},
		{"loadBalancers.enabled", "HCLOUD_LOAD_BALANCERS_ENABLED", "false", "true", false, balancers(func(l LoadBalancers) any { return l.Enabled })},
		{"loadBalancers.classless", "", "false", "", false, balancers(func(l LoadBalancers) any { return l.Classless })},
		{"loadBalancers.location", "HCLOUD_LOAD_BALANCERS_LOCATION", "hel1", "fsn1", "hel1", balancers(func(l LoadBalancers) any { return l.Location })},
		{"loadBalancers.networkZone", "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE", "us-east", "us-west", "us-east", balancers(func(l LoadBalancers) any { return l.NetworkZone })},
		{"loadBalancers.type", "HCLOUD_LOAD_BALANCERS_TYPE", "lb21", "lb31", "lb21", balancers(func(l LoadBalancers) any { return l.Type })},
		{"loadBalancers.algorithm", "HCLOUD_LOAD_BALANCERS_ALGORITHM_TYPE", "least_connections", "round_robin", lb.LeastConnections, balancers(func(l LoadBalancers) any { return l.Algorithm })},
		{"loadBalancers.usePrivateIP", "HCLOUD_LOAD_BALANCERS_USE_PRIVATE_IP", "true", "false", true, balancers(func(l LoadBalancers) any { return l.UsePrivateIP })},
		{"loadBalancers.disablePublicNetwork", "HCLOUD_LOAD_BALANCERS_DISABLE_PUBLIC_NETWORK", "true", "false", true, balancers(func(l LoadBalancers) any { return l.DisablePublicNetwork })},
		{"loadBalancers.privateSubnetIPRange", "HCLOUD_LOAD_BALANCERS_PRIVATE_SUBNET_IP_RANGE", "10.0.1.0/24", "10.0.2.0/24", netip.MustParsePrefix("10.0.1.0/24"), balancers(func(l LoadBalancers) any { return l.PrivateSubnet })},
		{"loadBalancers.disableIPv6", "HCLOUD_LOAD_BALANCERS_DISABLE_IPV6", "true", "false", true, balancers(func(l LoadBalancers) any { return l.DisableIPv6 })},
		{"loadBalancers.disablePrivateIngress", "HCLOUD_LOAD_BALANCERS_DISABLE_PRIVATE_INGRESS", "true", "false", true, balancers(func(l LoadBalancers) any { return l.DisablePrivateIngress })},
		{"loadBalancers.usesProxyProtocol", "HCLOUD_LOAD_BALANCERS_USES_PROXYPROTOCOL", "true", "false", true, balancers(func(l LoadBalancers) any { return l.UsesProxyProtocol })},
		{"loadBalancers.healthCheck", "", "node-port", "", lb.CheckNodePort, balancers(func(l LoadBalancers) any { return l.HealthCheck })},
		{"loadBalancers.healthCheckInterval", "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "1m", "4s", time.Minute, balancers(func(l LoadBalancers) any { return l.HealthCheckInterval })},
		{"loadBalancers.healthCheckTimeout", "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_TIMEOUT", "7", "8", 7 * time.Second, balancers(func(l LoadBalancers) any { return l.HealthCheckTimeout })},
		{"loadBalancers.healthCheckRetries", "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_RETRIES", "5", "1", 5, balancers(func(l LoadBalancers) any { return l.HealthCheckRetries })},
	} {
		t.Run(c.key, func(t *testing.T) {
			file := strings.ReplaceAll(c.key, ".", ":\n  ") + ": " + c.value
			ways := []setup{{file: file, env: env(nil)}}
			if c.env != "" {
				ways = append(ways, setup{env: env(vars{c.env: c.value})}, setup{
					file: file, env: env(vars{c.env: c.other}),
				})
			}
			for _, way := range ways {
				way.flags = dualStack()
				config, _, err := load(t, way)
				if err != nil {
					t.Fatal(err)
				}
				if got := c.get(config); !reflect.DeepEqual(got, c.want) {
					t.Errorf("file %q, variable %q: got %v, want %v", way.file, way.env[c.env], got, c.want)
				}
			}
		})
	}
}

func TestFlagsTakeEffect(t *testing.T) {
	config, _, err := load(t, setup{env: env(nil), flags: dualStack(func(f Flags) {
		f["--cloud-provider"] = "hcloud"
		f["--node-cidr-mask-size-ipv4"], f["--node-cidr-mask-size-ipv6"] = "26", "72"
		f["--cluster-name"], f["--route-reconciliation-period"] = "blue", "5s"
	})})
	if err != nil {
		t.Fatal(err)
	}
	if config.IPAM.Pools[0].NodeMask != 26 || config.IPAM.Pools[1].NodeMask != 72 {
		t.Errorf("pools %v, want masks 26 and 72", config.IPAM.Pools)
	}
	if config.ClusterName != "blue" || config.Routes.ReconciliationPeriod != 5*time.Second {
		t.Errorf("name %q, period %v", config.ClusterName, config.Routes.ReconciliationPeriod)
	}
}

func TestWhenRoutesAreConfigured(t *testing.T) {
	off := func(f Flags) { f["--configure-cloud-routes"] = "false" }
	routesOff := env(vars{"HCLOUD_NETWORK_ROUTES_ENABLED": "false"})
	const clusters = "--cluster-cidr"
	for name, c := range map[string]struct {
		setup   setup
		want    bool
		warning string
	}{
		"pools and network":        {setup{flags: dualStack(), env: env(nil)}, true, clusters},
		"switched off by flag":     {setup{flags: dualStack(off), env: env(nil)}, false, clusters},
		"switched off by variable": {setup{flags: ipv4Only(), env: routesOff}, false, ""},
		"nothing to route":         {setup{env: vars{"HCLOUD_TOKEN": tokenText}}, false, ""},
		"network, nothing to route": {
			setup{env: env(nil)}, false, "--configure-cloud-routes",
		},
		"others' podCIDRs":   {setup{flags: Flags{"--configure-cloud-routes": "true", "--cluster-cidr": "10.0.0.0/16"}, env: env(nil)}, true, ""},
		"IPv6 only, without": {setup{flags: Flags{"--cluster-cidr": "fd00::/56", "--configure-cloud-routes": "false"}, env: env(nil)}, false, clusters},
	} {
		t.Run(name, func(t *testing.T) {
			config, warnings, err := load(t, c.setup)
			if err != nil {
				t.Fatal(err)
			}
			if config.Routes.Enabled != c.want {
				t.Errorf("routes %t, want %t", config.Routes.Enabled, c.want)
			}
			if got := fields(warnings); got != c.warning {
				t.Errorf("warnings about %q, want %q", got, c.warning)
			}
		})
	}
}

func TestFileIsReadByName(t *testing.T) {
	named := Flags{FileFlag: "/etc/u.yaml", "--configure-cloud-routes": "false"}
	config, _, err := load(t, setup{flags: named, env: env(nil), files: fakeFiles{"/etc/u.yaml": head + "ipamQPS: 7"}})
	if err != nil || config.IPAM.QPS != 7 {
		t.Errorf("QPS %d, %v; want 7", config.IPAM.QPS, err)
	}
	_, _, err = load(t, setup{flags: named, env: env(nil)})
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v, want ErrNotExist", err)
	}
}

func TestAllErrorsAtOnceInOneOrder(t *testing.T) {
	broken := setup{
		flags: dualStack(func(f Flags) { f["--cloud-provider"], f["--cluster-cidr"] = "aws", "10.244.0.1/16" }),
		file:  "routes: {limit: 0}\nipamQPS: many\nbogus: 1",
		env:   vars{"HCLOUD_ENDPOINT": "nowhere", "ROBOT_ENABLED": "perhaps"},
	}
	_, _, first := load(t, broken)
	var all Errors
	if !errors.As(first, &all) || len(all) != 9 {
		t.Fatalf("got %d errors, want 9:\n%v", len(all), first)
	}
	if lines := strings.Count(first.Error(), "\n") + 1; lines != len(all) {
		t.Errorf("%d lines for %d errors", lines, len(all))
	}
	for range 20 {
		if _, _, again := load(t, broken); again.Error() != first.Error() {
			t.Fatalf("another order:\n%v\nthan\n%v", again, first)
		}
	}
}
