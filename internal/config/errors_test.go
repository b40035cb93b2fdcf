package config

import (
	"errors"
	"strings"
	"testing"
)

// mistake is one invalid setup with its single error. The remedy is compared by a part of it.
type mistake struct {
	name                 string
	setup                setup
	field, value, remedy string
}

func checkMistakes(t *testing.T, mistakes []mistake) {
	t.Helper()
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			if m.setup.env == nil {
				m.setup.env = env(nil)
			}
			_, _, err := load(t, m.setup)
			var all Errors
			if !errors.As(err, &all) || len(all) != 1 {
				t.Fatalf("want exactly one error, got %d:\n%v", len(all), err)
			}
			got := all[0]
			if got.Field != m.field || got.Value != m.value || !strings.Contains(got.Remedy, m.remedy) || m.remedy == "" {
				t.Errorf("got field %q, value %q, remedy %q\nwant      %q,       %q,        %q",
					got.Field, got.Value, got.Remedy, m.field, m.value, m.remedy)
			}
			if got.Problem == "" || strings.ContainsAny(got.Error(), "\n\r") {
				t.Errorf("not one clear line: %q", got.Error())
			}
		})
	}
}

func flagged(change func(Flags)) setup { return setup{flags: dualStack(change)} }

func clusters(list string) setup {
	return flagged(func(f Flags) { f["--cluster-cidr"] = list })
}

func inFile(text string) setup { return setup{flags: dualStack(), file: text} }

func inEnv(name, value string) setup {
	return setup{flags: ipv4Only(), env: env(vars{name: value})}
}

func TestMistakesInValues(t *testing.T) {
	checkMistakes(t, []mistake{
		{"provider flag", flagged(func(f Flags) { f["--cloud-provider"] = "aws" }), "--cloud-provider", "aws", "hcloud"},
		{"allocator", flagged(func(f Flags) { f["--cidr-allocator-type"] = "CloudAllocator" }), "--cidr-allocator-type", "CloudAllocator", "use RangeAllocator"},
		{"provider", inFile("provider: aws"), "provider", "aws", "use hcloud"},
		{"cluster name", flagged(func(f Flags) { f["--cluster-name"] = "my cluster" }), "--cluster-name", "my cluster", "63 letters"},
		{"period", flagged(func(f Flags) { f["--route-reconciliation-period"] = "1ms" }), "--route-reconciliation-period", "1ms", "longer"},
		{"no period", flagged(func(f Flags) { f["--route-reconciliation-period"] = "0s" }), "--route-reconciliation-period", "0s", "longer"},
		{"negative period", flagged(func(f Flags) { f["--route-reconciliation-period"] = "-1s" }), "--route-reconciliation-period", "-1s", "longer"},
		{"endpoint", inFile("endpoint: api.hetzner.cloud"), "endpoint", "api.hetzner.cloud", defaultEndpoint},
		{"endpoint without version", inFile("endpoint: https://api.hetzner.cloud/"), "endpoint", "https://api.hetzner.cloud/", "https://api.hetzner.cloud/v1"},
		{"endpoint, scheme", inEnv("HCLOUD_ENDPOINT", "ftp://a/v1"), "HCLOUD_ENDPOINT", "ftp://a/v1", "https"},
		{"endpoint with credentials", inEnv("HCLOUD_ENDPOINT", "https://u:p@a/v1"), "HCLOUD_ENDPOINT", redacted, "https"},
		{"endpoint, no URL", inEnv("HCLOUD_ENDPOINT", "https://[::1/v1"), "HCLOUD_ENDPOINT", "https://[::1/v1", "https"},
		{"network", inEnv("HCLOUD_NETWORK", "net\n"), "HCLOUD_NETWORK", "net\n", "alone"},
		{"address family", inEnv("HCLOUD_INSTANCES_ADDRESS_FAMILY", "both"), "HCLOUD_INSTANCES_ADDRESS_FAMILY", "both", "ipv4 or ipv6 or dualstack"},
		{"exclude", inFile("exclude: [10.0.0.1]"), "exclude", "10.0.0.1", "address and length"},
		{"exclude unmasked", inFile("exclude: [10.244.9.9/24]"), "exclude", "10.244.9.9/24", "10.244.9.0/24"},
		{"number", inFile("ipamQPS: fast"), "ipamQPS", "fast", "1 to 10000"},
		{"number too small", inFile("ipamQPS: 0"), "ipamQPS", "0", "1 to 10000"},
		{"number out of range", inFile("ipamQPS: 99999999999999999999"), "ipamQPS", "99999999999999999999", "1 to 10000"},
		{"network policies", inFile("networkPolicy: on"), "networkPolicy", "on", "auto or off"},
		{"limit", inFile("routes: {limit: 1001}"), "routes.limit", "1001", "1 to 1000"},
		{"reserve", inFile("routes: {reserve: -1}"), "routes.reserve", "-1", "0 to 999"},
		{"reserve of everything", inFile("routes: {limit: 10, reserve: 10}"), "routes.reserve", "10", "below the limit"},
		{"deletions without sign", inFile("routes: {maxDeletions: 25}"), "routes.maxDeletions", "25", "25%"},
		{"deletions above all", inFile("routes: {maxDeletions: 101%}"), "routes.maxDeletions", "101%", "25%"},
		{"deletions of none", inFile("routes: {maxDeletions: 0%}"), "routes.maxDeletions", "0%", "25%"},
		{"boolean", inEnv("HCLOUD_LOAD_BALANCERS_ENABLED", "yes"), "HCLOUD_LOAD_BALANCERS_ENABLED", "yes", "true or false"},
		{"boolean in the file", inFile("loadBalancers: {enabled: yes}"), "loadBalancers.enabled", "yes", "true or false"},
		{"routes variable", inEnv("HCLOUD_NETWORK_ROUTES_ENABLED", "no"), "HCLOUD_NETWORK_ROUTES_ENABLED", "no", "true or false"},
		{"type", inFile("loadBalancers: {type: LB 11}"), "loadBalancers.type", "LB 11", "lb11"},
		{"location", inFile("loadBalancers: {location: Falkenstein}"), "loadBalancers.location", "Falkenstein", "fsn1"},
		{"algorithm", inFile("loadBalancers: {algorithm: random}"), "loadBalancers.algorithm", "random", "round_robin or least_connections"},
		{"health check", inFile("loadBalancers: {healthCheck: ping}"), "loadBalancers.healthCheck", "ping", "kube-proxy or node-port"},
		{"interval", inFile("loadBalancers: {healthCheckInterval: 2s}"), "loadBalancers.healthCheckInterval", "2s", "3s to 1m0s"},
		{"interval too long", inFile("loadBalancers: {healthCheckInterval: 61}"), "loadBalancers.healthCheckInterval", "61", "3s to 1m0s"},
		{"interval in parts", inEnv("HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "3500ms"), "HCLOUD_LOAD_BALANCERS_HEALTH_CHECK_INTERVAL", "3500ms", "round"},
		{"timeout", inFile("loadBalancers: {healthCheckTimeout: long}"), "loadBalancers.healthCheckTimeout", "long", "15s"},
		{"retries", inFile("loadBalancers: {healthCheckRetries: 6}"), "loadBalancers.healthCheckRetries", "6", "1 to 5"},
	})
}

func TestMistakesBetweenValues(t *testing.T) {
	noNetwork := vars{"HCLOUD_TOKEN": tokenText}
	checkMistakes(t, []mistake{
		{"location and zone", inFile("loadBalancers: {location: fsn1, networkZone: eu-central}"), "loadBalancers.location", "fsn1", "one of the two"},
		{
			"location and zone in the environment",
			setup{env: vars{"HCLOUD_TOKEN": tokenText, "HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1", "HCLOUD_LOAD_BALANCERS_NETWORK_ZONE": "eu-central"}},
			"HCLOUD_LOAD_BALANCERS_LOCATION", "fsn1", "one of the two",
		},
		{"routes without network", setup{flags: dualStack(), env: noNetwork}, "network", "", "--configure-cloud-routes=false"},
		{"private without network", setup{file: "loadBalancers: {usePrivateIP: true}", env: noNetwork}, "loadBalancers.usePrivateIP", "true", "network"},
		{"only private without network", setup{file: "loadBalancers: {disablePublicNetwork: true}", env: noNetwork}, "loadBalancers.disablePublicNetwork", "true", "network"},
		{"dedicated servers, unreadable", inEnv("ROBOT_ENABLED", "maybe"), "ROBOT_ENABLED", redacted, "false"},
	})
}

func TestMistakesWithTheToken(t *testing.T) {
	checkMistakes(t, []mistake{
		{"none", setup{env: vars{"A": ""}}, "HCLOUD_TOKEN", "", "tokenFile"},
		{"empty", setup{env: vars{"HCLOUD_TOKEN": "\n"}}, "HCLOUD_TOKEN", redacted, "API token"},
		{"two lines", inEnv("HCLOUD_TOKEN", tokenText+"\n"+tokenText), "HCLOUD_TOKEN", redacted, "one line"},
		{"missing file", inFile("tokenFile: /none"), "tokenFile", "/none", "exists"},
		{
			"empty file",
			setup{env: vars{"HCLOUD_TOKEN_FILE": "/t"}, files: fakeFiles{"/t": ""}},
			"HCLOUD_TOKEN_FILE", "/t", "API token",
		},
		{
			"file with more",
			setup{file: "tokenFile: /t", env: vars{"A": ""}, files: fakeFiles{"/t": "token: " + tokenText}},
			"tokenFile", "/t", "one line",
		},
		{"token for a file name", setup{file: "tokenFile: " + tokenText, env: vars{"A": ""}}, "tokenFile", redacted, "path"},
		{"token for a file name, variable", setup{env: vars{"HCLOUD_TOKEN_FILE": tokenText}}, "HCLOUD_TOKEN_FILE", redacted, "path"},
	})
}

func TestMistakesInTheFile(t *testing.T) {
	checkMistakes(t, []mistake{
		{"typo", inFile("ipamQps: 1"), "ipamQps", "", "did you mean ipamQPS?"},
		{"typo in a section", inFile("routes: {limits: 1}"), "routes.limits", "", "did you mean routes.limit?"},
		{"typo in a section's name", inFile("loadbalancer: {type: lb11}"), "loadbalancer", "", "did you mean loadBalancers?"},
		{"wrong section", inFile("location: fsn1"), "location", "", "did you mean loadBalancers.location?"},
		{"nothing like it", inFile("zzzzzzzz: 1"), "zzzzzzzz", "", "use one of apiVersion, kind"},
		{"nothing like it in a section", inFile("routes: {zzzzzzzz: 1}"), "routes.zzzzzzzz", "", "use one of limit, reserve, maxDeletions"},
		{"odd key", inFile("\"a\\nb\": 1"), `"a\nb"`, "", "use one of"},
		{"token in the file", inFile("token: " + tokenText), "token", "", "tokenFile"},
		{"twice", inFile("ipamQPS: 1\nipamQPS: 2"), "ipamQPS", "", "one of the two"},
		{"section twice", inFile("routes: {limit: 1}\nroutes: {limit: 2}"), "routes", "", "one of the two"},
		{"scalar for a list", inFile("exclude: 10.0.0.0/8"), "exclude", "", "a list"},
		{"list for a scalar", inFile("ipamQPS: [1]"), "ipamQPS", "", "a single value"},
		{"mapping for a scalar", inFile("ipamQPS: {a: 1}"), "ipamQPS", "", "whole number"},
		{"scalar for a section", inFile("routes: 7"), "routes", "", "limit"},
		{"no value", inFile("ipamQPS:"), "ipamQPS", "", "remove the key"},
		{"alias", inFile("routes: {limit: &n 50, reserve: *n}"), "routes.reserve", "", "remove the key"},
		{"aliased section", inFile("loadBalancers: &f {}\nroutes: *f"), "routes", "", "limit"},
		{"merge", inFile("loadBalancers: &f {}\n<<: *f"), `"<<"`, "", "use one of"},
		{"own tag", inFile("ipamQPS: !secret 7"), "ipamQPS", "", "remove the key"},
		{"key that is a list", inFile("[a]: 1"), "--cloud-config", "", "documented key"},
		{"second document", inFile("ipamQPS: 1\n---\nipamQPS: 2"), "--cloud-config", "", "---"},
		{"syntax", inFile("routes: {"), "--cloud-config", "", "syntax"},
		{"key in a section that is a list", inFile("routes: {[a]: 1}"), "routes", "", "documented key"},
	})
}

func TestMistakesInTheHeadOfTheFile(t *testing.T) {
	for name, c := range map[string]struct{ file, field, remedy string }{
		"empty":         {"", "--cloud-config", apiVersion},
		"only comments": {"# nothing\n", "--cloud-config", apiVersion},
		"a token":       {tokenText, "--cloud-config", apiVersion},
		"a list":        {"- a", "--cloud-config", apiVersion},
		"no version":    {"kind: CloudConfig", "apiVersion", "apiVersion: underlay.dev/v1alpha1"},
		"other version": {"apiVersion: v1\nkind: CloudConfig", "apiVersion", apiVersion},
		"no kind":       {"apiVersion: underlay.dev/v1alpha1", "kind", "kind: CloudConfig"},
		"other kind":    {"apiVersion: underlay.dev/v1alpha1\nkind: Secret", "kind", "CloudConfig"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Load(Flags{"--configure-cloud-routes": "false"}, []byte(c.file), func(n string) string { return env(nil)[n] }, fakeFiles{}.read)
			var all Errors
			if !errors.As(err, &all) || len(all) != 1 || all[0].Field != c.field ||
				!strings.Contains(all[0].Remedy, c.remedy) {
				t.Errorf("got %v\nwant one error about %s that says %q", err, c.field, c.remedy)
			}
			if err != nil && strings.Contains(err.Error(), tokenText) {
				t.Errorf("the file's content shows: %v", err)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		setup setup
		want  string
	}{
		"unencrypted":           {inEnv("HCLOUD_ENDPOINT", "http://10.0.0.1:8470/v1"), "HCLOUD_ENDPOINT"},
		"unencrypted, loopback": {inEnv("HCLOUD_ENDPOINT", "http://127.0.0.1:8470/v1"), ""},
		"unencrypted, local":    {inEnv("HCLOUD_ENDPOINT", "http://localhost:8470/v1"), ""},
		"zone of the file over location of the environment": {
			setup{flags: ipv4Only(), file: "loadBalancers: {networkZone: eu-central}", env: env(vars{"HCLOUD_LOAD_BALANCERS_LOCATION": "fsn1"})},
			"HCLOUD_LOAD_BALANCERS_LOCATION",
		},
		"location of the file over zone of the environment": {
			setup{flags: ipv4Only(), file: "loadBalancers: {location: fsn1}", env: env(vars{"HCLOUD_LOAD_BALANCERS_NETWORK_ZONE": "eu-central"})},
			"HCLOUD_LOAD_BALANCERS_NETWORK_ZONE",
		},
		"nothing to reach": {
			setup{flags: ipv4Only(), file: "loadBalancers: {disablePublicNetwork: true}", env: env(nil)},
			"loadBalancers.disablePublicNetwork",
		},
		"exclude elsewhere":   {setup{flags: ipv4Only(), file: "exclude: [10.0.0.0/24]", env: env(nil)}, "exclude"},
		"masks without pools": {setup{flags: Flags{"--node-cidr-mask-size": "24", "--configure-cloud-routes": "false"}, env: env(nil)}, "--node-cidr-mask-size"},
		"pool of one node":    {setup{flags: Flags{"--cluster-cidr": "10.0.0.0/24", "--configure-cloud-routes": "false"}, env: env(nil)}, "--cluster-cidr"},
		"IPv6 pool":           {setup{flags: dualStack(), env: env(nil)}, "--cluster-cidr"},
		"unknown Service ranges": {
			setup{flags: ipv4Only(func(f Flags) { f["--service-cluster-ip-range"] = "" }), env: env(nil)},
			"--service-cluster-ip-range",
		},
		"unknown Service ranges, no podCIDRs": {
			setup{flags: ipv4Only(func(f Flags) { f["--service-cluster-ip-range"], f["--allocate-node-cidrs"] = "", "false" }), env: env(nil)}, "",
		},
		"gateway in service range": {setup{flags: Flags{"--service-cluster-ip-range": "172.31.0.0/16", "--configure-cloud-routes": "false"}, env: env(nil)}, "--service-cluster-ip-range"},
		"robot off":                {inEnv("ROBOT_ENABLED", "false"), ""},
		"robot off, password":      {inEnv("ROBOT_PASSWORD", tokenText), "ROBOT_PASSWORD"},
		"robot unencrypted":        {setup{flags: ipv4Only(), file: "robot: {endpoint: 'http://robot.example.com'}", env: env(nil)}, "robot.endpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := load(t, c.setup)
			if err != nil {
				t.Fatal(err)
			}
			if got := fields(warnings); got != c.want {
				t.Errorf("warnings about %q, want %q", got, c.want)
			}
			for _, w := range warnings {
				if strings.Contains(w.String(), tokenText) || strings.Contains(w.String(), "\n") {
					t.Errorf("a secret or more than a line: %q", w)
				}
			}
		})
	}
}

func TestErrorsPrintOneLineEach(t *testing.T) {
	all := Errors{
		{Field: "routes.limit", Value: "2000", Problem: "is out of bounds", Remedy: "give less"},
		{Field: "HCLOUD_TOKEN", Value: redacted, Problem: "has\nlines", Remedy: "use one"},
		{Field: "network", Problem: "is missing", Remedy: "give one"},
		{Field: "endpoint", Value: strings.Repeat("ü", 100), Problem: "is long", Remedy: "shorten it"},
	}
	want := `routes.limit "2000": is out of bounds; give less
HCLOUD_TOKEN [redacted]: has lines; use one
network: is missing; give one
endpoint "` + strings.Repeat("ü", 80) + `…": is long; shorten it`
	if got := all.Error(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A file that can't be parsed may contain anything: only that is reported, not missing keys.
func TestAnUnreadableFileIsTheOnlyMistake(t *testing.T) {
	flags := Flags{"--cluster-cidr": "10.244.0.0/16", "--allocate-node-cidrs": "true", "--configure-cloud-routes": "true", "--cloud-config": "/etc/underlay/config.yaml"}
	for name, content := range map[string]string{
		"syntax":        "apiVersion: underlay.dev/v1alpha1\n\tkind: CloudConfig\n",
		"two documents": "apiVersion: underlay.dev/v1alpha1\n---\nkind: CloudConfig\n",
		"empty":         "",
	} {
		_, _, err := Load(flags, []byte(content), func(string) string { return "" }, nil)
		var all Errors
		if !errors.As(err, &all) || len(all) != 1 || all[0].Field != "--cloud-config" || all[0].Value != flags[FileFlag] {
			t.Errorf("%s: %v, want one mistake that names the file", name, err)
		}
	}
}
