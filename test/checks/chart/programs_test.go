package chart

import (
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common/util"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/underlay-ccm/underlay/internal/config"
)

// decode decodes a template's result strictly, one object.
func decode[T any](t *testing.T, content string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(content), &object); err != nil {
		t.Fatalf("%v in\n%s", err, content)
	}
	return object
}

// refused returns a program's error about the settings of the chart, the controller manager's
// first; nil: both would start.
func refused(t *testing.T, files map[string]string) error {
	t.Helper()
	manager := decode[appsv1.Deployment](t, files["ccm/deployment.yaml"]).Spec.Template.Spec.Containers[0]
	file := []byte(decode[corev1.ConfigMap](t, files["ccm/configmap.yaml"]).Data["config.yaml"])
	env := map[string]string{}
	for _, v := range manager.Env {
		env[v.Name] = v.Value
	}
	flags := config.Flags{}
	for _, flag := range config.FlagNames() {
		flags[flag] = value(manager.Args, flag)
	}
	token := func(string) ([]byte, error) { return []byte("token"), nil }
	_, _, err := config.Load(flags, file, func(name string) string { return env[name] }, token)
	if daemonset := files["agent/daemonset.yaml"]; err == nil && daemonset != "" {
		args := decode[appsv1.DaemonSet](t, daemonset).Spec.Template.Spec.Containers[0].Args
		read := func(string) ([]byte, error) { return file, nil }
		_, err = config.LoadAgent(value(args, "--config"), value(args, "--cluster-cidr"), read)
	}
	return err
}

// value returns the flag's last occurrence, as the programs do.
func value(arguments []string, flag string) (last string) {
	for _, argument := range arguments {
		if given, ok := strings.CutPrefix(argument, flag+"="); ok {
			last = given
		}
	}
	return last
}

// TestEveryFileOfValues: all files of values in deploy, such as beside kubeadm's configurations,
// result in settings that the programs accept. values-….yaml is passed to Helm after the
// values.yaml of its folder.
func TestEveryFileOfValues(t *testing.T) {
	found := 0
	err := filepath.WalkDir(deploy, func(path string, entry fs.DirEntry, err error) error {
		named, _ := filepath.Match("values*.yaml", entry.Name())
		ofValues := named || filepath.Dir(path) == filepath.Join(deploy, "values")
		if err != nil || entry.IsDir() || !ofValues || filepath.Dir(path) == filepath.Clean(source) {
			return err
		}
		found++
		values := parsed(t, content(t, path))
		if strings.HasPrefix(filepath.Base(path), "values-") {
			values = util.CoalesceTables(values, parsed(t, content(t, filepath.Join(filepath.Dir(path), "values.yaml"))))
		}
		files, err := renderChart(t, loaded(t), namespace, values)
		if err == nil {
			err = refused(t, files)
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil || found < 7 {
		t.Errorf("only %d files found: %v", found, err)
	}
}

// choices are values that the chart and the programs validate, each alone and in any combination;
// "": not set. allocateNodeCIDRs is not among them: without it the controller manager needs no
// range of pods, but the chart requires one for routes and agents.
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
		"config.routes":                 {"", "", "", "{limit: 50, reserve: 10}", "{reserve: 100}", "{}"},
		"config.loadBalancers":          {"", "", "", "{location: fsn1}", "{usePrivateIP: true}", "{location: a, networkZone: b}", "{disablePublicNetwork: false}", "{healthCheckInterval: 1s}"},
		"config.inventory":              {"", "", "", "", "[{name: a, addresses: [192.0.2.1]}]", "[{name: a}, {name: a}]"},
		"config.pools":                  {"", "", "", "[{name: a, cidr: 10.244.0.0/16}]", "[{name: a, cidr: 10.245.0.0/16}, {name: b, source: node}]", "[{name: a, cidr: 10.244.0.0/17}, {name: b, cidr: 10.244.0.0/16}]", "[{name: a, cidr: 10.244.0.0/26, nodeMask: 28}]", "[{name: a, source: node}]", "[{name: a, cidr: 10.96.0.0/16}]", "[]"},
		"config.endpoint":               {"", "", "", "https://a/v1", "https://a"},
		"ccm.env.ROBOT_ENABLED":         {"", "", "", "false", "true"},
		"config.instancesAddressFamily": {"", "", "", "ipv4"},
	}
}

// TestChartRefusesNothingThatWorks changes each value alone, and then a few at once, at random with
// a fixed seed: settings that the chart rejects must not start.
func TestChartRefusesNothingThatWorks(t *testing.T) {
	chart, unchecked := loaded(t), loaded(t)
	unchecked.Schema = nil
	for _, file := range unchecked.Templates {
		if file.Name == "templates/_validate.tpl" {
			file.Data = []byte(`{{ define "underlay.mistakes" }}{{ end }}`)
		}
	}
	fine, byChart, all := 0, 0, changes()
	for _, changed := range all {
		values := parsed(t, onCloud)
		for _, c := range changed {
			set(t, values, c.key, c.value)
		}
		_, byHelm := renderChart(t, chart, namespace, values)
		files, err := renderChart(t, unchecked, namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		works := refused(t, files) == nil
		if works {
			fine++
		}
		if byHelm != nil {
			byChart++
			if works {
				t.Errorf("with %v the chart says: %v, and the programs take it", changed, byHelm)
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

// set sets a value in YAML at a path of keys, or removes it.
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

// TestValidValuesAreAccepted: the chart and the programs accept valid values; and values that are
// not needed in one place aren't required.
func TestValidValuesAreAccepted(t *testing.T) {
	for _, r := range []struct{ name, base, values string }{
		{"the three values", onCloud, "{}"},
		{"metal", onMetal, "{}"},
		{"no network", netless, "{}"},
		{"blanks between ranges", onCloud, "{clusterCIDR: '10.244.0.0/16, fd00:10:244::/56', serviceCIDR: '10.96.0.0/12, fd00::/112'}"},
		{"IPv6 alone", onMetal, "{clusterCIDR: 'fd00:10:244::/56', serviceCIDR: 'fd00::/112'}"},
		{"IPv6 first", onMetal, "clusterCIDR: 'fd00:10:244::/56,10.244.0.0/16'"},
		{"the smallest", onCloud, "clusterCIDR: 10.244.0.0/24"},
		{"the largest", onCloud, "{clusterCIDR: 10.0.0.0/8, serviceCIDR: 172.20.0.0/16}"},
		{"anything by the nodes", netless, "clusterCIDR: 100.64.0.0/16"},
		{"no routes", onCloud, "{clusterCIDR: 100.64.0.0/16, configureCloudRoutes: false}"},
		{"IPv6 of servers alone", "config: {network: a}\napiServer: https://a", "{config: {pools: [{name: a, source: node}]}, configureCloudRoutes: false}"},
		{"masks by flags", onCloud, "{clusterCIDR: 10.244.0.0/26, ccm: {extraArgs: [--node-cidr-mask-size=28]}}"},
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
		{"no cloud, no token", onMetal, "token: {secretName: ''}"},
		{"no routes in the cloud", "clusterCIDR: 10.244.0.0/16\napiServer: https://10.0.0.2:6443", "configureCloudRoutes: false"},
		{"no agent", "clusterCIDR: 10.244.0.0/16\nconfig: {network: 4711}", "agent: {enabled: false}"},
		{"metrics of a manager alone", onCloud, "{agent: {enabled: false}, ccm: {bindAddress: 0.0.0.0}, podMonitor: {enabled: true, tokenSecret: {name: a}}}"},
		{"within another chart", onCloud, "global: {anything: {at: all}}"},
		{"no tag", onCloud, "images: {tag: ''}"},
	} {
		files, err := renderChart(t, loaded(t), namespace, laidOver(t, r.base, r.values))
		if err == nil {
			err = refused(t, files)
		}
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}
