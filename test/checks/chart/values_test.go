package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// three are the values without a default.
const three = `
config: {network: cluster}
clusterCIDR: 10.244.0.0/16
apiServer: https://10.0.0.2:6443
`

func TestThreeValuesAreEnough(t *testing.T) {
	files, err := render(t.Context(), source, namespace, three)
	if err != nil {
		t.Fatal(err)
	}
	notes := files["NOTES.txt"]
	if commands := regexp.MustCompile(`(?m)^     kubectl `).FindAllString(notes, -1); len(commands) != 3 {
		t.Errorf("%d commands, want the next three:\n%s", len(commands), notes)
	}
	if !strings.Contains(notes, "create secret generic hcloud --from-file=token=/dev/stdin") {
		t.Errorf("no word of the token:\n%s", notes)
	}
	// Each of them is needed, and its absence told by its name.
	for name, without := range map[string]string{
		"config.network": strings.Replace(three, "{network: cluster}", "{}", 1),
		"clusterCIDR":    strings.Replace(three, "clusterCIDR: 10.244.0.0/16", "", 1),
		"apiServer":      strings.Replace(three, "apiServer: https://10.0.0.2:6443", "", 1),
	} {
		_, err := render(t.Context(), source, namespace, without)
		if err == nil || !strings.Contains(err.Error(), "- "+name+": ") || !strings.Contains(err.Error(), "--set "+name+"=") {
			t.Errorf("without %s: %v", name, err)
		} else if strings.Count(err.Error(), "\n- ") != 1 {
			t.Errorf("without %s, more than that is missing: %v", name, err)
		}
	}
}

// TestThreeValuesMakeWhatIsTried: test/checks/deploy runs the programs with the plain
// manifests, which say more than the three values only about load balancers.
func TestThreeValuesMakeWhatIsTried(t *testing.T) {
	files, err := render(t.Context(), source, namespace, three+"restartOnConfigChange: false\n")
	if err != nil {
		t.Fatal(err)
	}
	delete(files, "NOTES.txt")
	tried := renderFile(t, "values/hcloud.yaml")
	const more = "    loadBalancers:\n      location: fsn1\n      usePrivateIP: true\n"
	const settings = "ccm/configmap.yaml"
	if !strings.Contains(tried[settings], more) {
		t.Fatalf("deploy/values/hcloud.yaml says something else of load balancers:\n%s", tried[settings])
	}
	tried[settings] = strings.Replace(tried[settings], more, "", 1)
	if !maps.Equal(files, tried) {
		t.Errorf("three values make\n%v\nand deploy/values/hcloud.yaml\n%v", files, tried)
	}
}

// TestMistakesAreTold is about what the programs don't see, or see too late.
func TestMistakesAreTold(t *testing.T) {
	for name, test := range map[string]struct {
		namespace, values string
		says              []string
	}{
		"all missing at once":        {namespace, "{}", []string{"- config.network: ", "- clusterCIDR: ", "- apiServer: "}},
		"another namespace":          {"default", three, []string{`- namespace "default": `, "add --namespace kube-system"}},
		"too many replicas":          {namespace, three + "ccm: {replicas: 4}", []string{"/ccm/replicas"}},
		"no Services":                {namespace, three + "serviceCIDR: ''", []string{"- serviceCIDR: the Services' range is missing", "kubeadm's serviceSubnet"}},
		"no section":                 {namespace, three + "agent: null", []string{"missing property 'agent'"}},
		"API server without TLS":     {namespace, strings.Replace(three, "https://10.0.0.2", "http://10.0.0.2", 1), []string{"/apiServer", "https://"}},
		"API server with a path":     {namespace, strings.Replace(three, ":6443", ":6443/", 1), []string{"/apiServer", "https://"}},
		"a token in values":          {namespace, three + "token: {token: abc}", []string{"/token", "'secretName', 'secretKey'"}},
		"a token file":               {namespace, "config: {network: a, tokenFile: /t}", []string{"- config.tokenFile: ", "token.secretName"}},
		"no Secret":                  {namespace, three + "token: {secretName: ''}", []string{"- token.secretName: "}},
		"registry with a slash":      {namespace, three + "images: {registry: a/}", []string{"/images/registry"}},
		"tag with the name":          {namespace, three + "images: {tag: 'a:v1'}", []string{"/images/tag"}},
		"digest without its kind":    {namespace, three + "images: {agentDigest: abc}", []string{"/images/agentDigest", "sha256:"}},
		"pull Secret":                {namespace, three + "images: {pullSecrets: [a, B_]}", []string{"/images/pullSecrets/1"}},
		"a name to listen on":        {namespace, three + "ccm: {bindAddress: localhost}", []string{"/ccm/bindAddress", "localhost"}},
		"gateway with a length":      {namespace, three + "agent: {networkGateway: 10.0.0.1/16}", []string{"/agent/networkGateway"}},
		"flag in two words":          {namespace, three + "ccm: {extraArgs: [--v=4, --v 4]}", []string{"- ccm.extraArgs[1]: ", "--flag=value"}},
		"flag with one dash":         {namespace, three + "agent: {extraArgs: [-v=4]}", []string{"- agent.extraArgs[0]: "}},
		"interface":                  {namespace, three + "agent: {uplinks: [eth1, 'eth 2']}", []string{"/agent/uplinks/1"}},
		"relative folder":            {namespace, three + "agent: {cniBinDir: opt/cni}", []string{"/agent/cniBinDir"}},
		"API server's variable":      {namespace, three + "ccm: {env: {KUBERNETES_SERVICE_PORT: 443}}", []string{"- ccm.env.KUBERNETES_SERVICE_PORT: ", "ccm.apiServerPort"}},
		"no name of a variable":      {namespace, three + "ccm: {env: {A B: 1}}", []string{"'A B'"}},
		"metrics nobody reaches":     {namespace, three + "podMonitor: {enabled: true, tokenSecret: {name: a}}", []string{`- ccm.bindAddress "127.0.0.1": `, `- agent.bindAddress "127.0.0.1": `}},
		"metrics without a token":    {namespace, three + "podMonitor: {enabled: true}", []string{"- podMonitor.tokenSecret.name: "}},
		"metrics read twice":         {namespace, three + "podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}", []string{"- serviceMonitor.enabled: ", "set one of them to false"}},
		"metrics of services":        {namespace, three + "serviceMonitor: {enabled: true}", []string{`- ccm.bindAddress "127.0.0.1": `, "or serviceMonitor.enabled to false", "- serviceMonitor.tokenSecret.name: "}},
		"a label of the chart's own": {namespace, three + "dashboards: {enabled: true, label: app.kubernetes.io/name}", []string{`- dashboards.label "app.kubernetes.io/name": `}},
		"no label":                   {namespace, three + "dashboards: {label: 'a b'}", []string{"/dashboards/label"}},
		"a label without quotes":     {namespace, three + "dashboards: {labelValue: 1}", []string{"/dashboards/labelValue"}},
		"no namespace of Grafana":    {namespace, three + "dashboards: {namespace: A_b}", []string{"/dashboards/namespace"}},
		"metrics every now and then": {namespace, three + "podMonitor: {interval: often}", []string{"/podMonitor/interval"}},
	} {
		_, err := render(t.Context(), source, test.namespace, test.values)
		if err == nil {
			t.Errorf("%s: nothing is said", name)
			continue
		}
		for _, says := range test.says {
			if !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v\ndoesn't say %q", name, err, says)
			}
		}
	}
}

// A key that nobody knows is refused, and those that are known in its place told.
func TestMisspelledKeysAreTold(t *testing.T) {
	for values, known := range map[string]string{
		"clusterCidr: 10.0.0.0/8":                 "'clusterCIDR'",
		"config: {netwrok: cluster}":              "'network'",
		"config: {routes: {limits: 4}}":           "'limit', 'reserve', 'maxDeletions'",
		"config: {loadBalancers: {zone: a}}":      "'networkZone'",
		"config: {pools: [{name: a, mask: 24}]}":  "'nodeMask'",
		"config: {inventory: [{name: a, ip: b}]}": "'addresses'",
		"token: {secret: a}":                      "'secretName', 'secretKey'",
		"images: {repository: a}":                 "'registry'",
		"ccm: {replica: 1}":                       "'replicas'",
		"agent: {uplink: eth0}":                   "'uplinks'",
		"podMonitor: {tokenSecret: {secret: a}}":  "'name', 'key'",
		"serviceMonitor: {enable: true}":          "'enabled'",
		"dashboards: {labels: {a: b}}":            "'label', 'labelValue', 'namespace', 'annotations'",
	} {
		_, err := render(t.Context(), source, namespace, values)
		if err == nil || !strings.Contains(err.Error(), "not allowed") || !strings.Contains(err.Error(), known) {
			t.Errorf("%s: %v\ndoesn't name %s", values, err, known)
		}
	}
}

// Wherever somebody has put the token, it isn't repeated.
func TestSecretsAreNotRepeated(t *testing.T) {
	const secret = "Tok3nTok3nTok3nTok3nTok3nTok3nTok3nTok3n"
	for values, says := range map[string]string{
		"ccm: {env: {HCLOUD_TOKEN: %s}}":               "- ccm.env.HCLOUD_TOKEN: the token does not belong into values, which end up in files, histories and Helm's own Secrets; remove it, put the token into a Secret, and name that by token.secretName",
		"ccm: {env: {HCLOUD_TOKEN_FILE: %s}}":          "- ccm.env.HCLOUD_TOKEN_FILE: ",
		"ccm: {env: {ROBOT_PASSWORD: %s}}":             "- ccm.env.ROBOT_PASSWORD: ",
		"ccm: {env: {ROBOT_USER: %s}}":                 "- ccm.env.ROBOT_USER: ",
		"robot: {password: %s}":                        "/robot",
		"robot: {secretName: %s}":                      "- robot.secretName: ",
		"robot: {passwordKey: %s/}":                    "- robot.passwordKey: ",
		"config: {robot: {passwordFile: %s}}":          "- config.robot.passwordFile: ",
		"config: {robot: {endpoint: 'https://%s@a'}}":  "- config.robot.endpoint: ",
		"ccm: {extraArgs: [HCLOUD_TOKEN=%s]}":          "- ccm.extraArgs[0]: ",
		"ccm: {extraArgs: [%s]}":                       "- ccm.extraArgs[0]: ",
		"token: %s":                                    "/token",
		"token: {token: %s}":                           "/token",
		"token: {secretName: %s}":                      "- token.secretName: ",
		"token: {secretKey: %s/}":                      "- token.secretKey: ",
		"podMonitor: {tokenSecret: {name: %s}}":        "- podMonitor.tokenSecret.name: ",
		"serviceMonitor: {tokenSecret: {name: %s}}":    "- serviceMonitor.tokenSecret.name: ",
		"podMonitor: {tokenSecret: {key: '%s %[1]s'}}": "- podMonitor.tokenSecret.key: ",
		"config: {tokenFile: %s}":                      "- config.tokenFile: ",
		"config: {token: %s}":                          "'token' not allowed",
		"config: {endpoint: 'https://%s@a/v1'}":        "- config.endpoint: ",
	} {
		values := fmt.Sprintf(values, secret)
		_, err := render(t.Context(), source, namespace, values)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v\nwant %q, and not the secret", values, err, says)
		}
	}
}

// What isn't needed in one place isn't asked for.
func TestNothingElseIsNeeded(t *testing.T) {
	for name, values := range map[string]string{
		"metal":                       "config: {provider: metal}\nclusterCIDR: 10.244.0.0/16\napiServer: https://192.0.2.1:6443\ntoken: {secretName: ''}",
		"IPv4 by the nodes":           "config: {families: {ipv4: node}}\nclusterCIDR: 10.244.0.0/16\napiServer: https://10.0.0.2:6443",
		"no routes in the cloud":      "configureCloudRoutes: false\nclusterCIDR: 10.244.0.0/16\napiServer: https://10.0.0.2:6443",
		"no agent":                    "config: {network: 4711}\nclusterCIDR: 10.244.0.0/16\nagent: {enabled: false}",
		"pools":                       "config: {network: cluster, pools: [{name: a, cidr: 10.244.0.0/16}]}\napiServer: https://10.0.0.2:6443",
		"metrics of a manager alone":  "config: {network: cluster}\nclusterCIDR: 10.244.0.0/16\nagent: {enabled: false}\nccm: {bindAddress: 0.0.0.0}\npodMonitor: {enabled: true, tokenSecret: {name: a}}",
		"within another chart":        three + "global: {anything: {at: all}}",
		"families, and nothing of v4": three + "images: {tag: ''}",
	} {
		if _, err := render(t.Context(), source, namespace, values); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The Secret of the Robot web service is mounted where the file says, beside what
// the values say of Robot otherwise.
func TestRobotsSecret(t *testing.T) {
	const values = three + "robot: {secretName: hcloud}\n"
	files, err := render(t.Context(), source, namespace, strings.Replace(values, "{network: cluster}", "{network: cluster, robot: {forwardInternalIPs: false}}", 1))
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(slices.Collect(maps.Values(files)), "\n---\n")
	for _, part := range []string{
		"    robot:\n      forwardInternalIPs: false\n      passwordFile: /run/secrets/robot/password\n      userFile: /run/secrets/robot/user\n",
		"            - name: robot\n              mountPath: /run/secrets/robot\n              readOnly: true\n",
		"            secretName: hcloud\n            defaultMode: 0440\n            items:\n              - key: robot-user\n                path: user\n              - key: robot-password\n                path: password\n",
	} {
		if strings.Count(all, part) != 1 {
			t.Errorf("not once:\n%s\nin\n%s", part, all)
		}
	}
	_, err = render(t.Context(), source, namespace, "config: {provider: metal}\nclusterCIDR: 10.244.0.0/16\napiServer: https://192.0.2.1:6443\nrobot: {secretName: hcloud}")
	if err == nil || !strings.Contains(err.Error(), "- robot.secretName: ") {
		t.Errorf("Robot without a cloud: %v", err)
	}
}

// schema is as much of a schema as is looked at here.
type schema struct {
	Description          string
	Type                 any
	Properties           map[string]schema
	PropertyNames        struct{ Enum []string }
	Required             []string
	AdditionalProperties any
	Items                *schema
}

// TestSchemaKnowsEveryValue holds values.yaml and its schema to each other.
func TestSchemaKnowsEveryValue(t *testing.T) {
	var values map[string]any
	content, err := os.ReadFile(filepath.Join(source, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(content, &values); err != nil {
		t.Fatal(err)
	}
	var root schema
	if content, err = os.ReadFile(filepath.Join(source, "values.schema.json")); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &root); err != nil {
		t.Fatal(err)
	}
	root.described(t, "values")
	// What Helm adds, and where the reference of the configuration is the list.
	for _, elsewhere := range []string{"global", "config"} {
		delete(root.Properties, elsewhere)
		delete(values, elsewhere)
	}
	root.sameKeys(t, "values", values)
}

// described wants a description of every value, and no others beside them.
func (s schema) described(t *testing.T, path string) {
	t.Helper()
	if s.Description == "" {
		t.Errorf("%s has no description", path)
	}
	if s.Properties != nil && s.AdditionalProperties != false {
		t.Errorf("%s: a misspelled key would be taken", path)
	}
	names, told := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(slices.Values(s.PropertyNames.Enum))
	if !slices.Equal(names, told) {
		t.Errorf("%s: who misspells a key is told of %v, and there are %v", path, told, names)
	}
	for name, property := range s.Properties {
		property.described(t, path+"."+name)
	}
	if s.Items != nil && s.Items.Properties != nil {
		s.Items.described(t, path+"[]")
	}
}

func (s schema) sameKeys(t *testing.T, path string, values map[string]any) {
	t.Helper()
	if inSchema, inFile := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(values)); !slices.Equal(inSchema, inFile) {
		t.Errorf("%s: the schema has %v, values.yaml %v", path, inSchema, inFile)
	}
	// By null a default can be taken away, and the templates wouldn't work without.
	for name := range values {
		if name != "resources" && !slices.Contains(s.Required, name) {
			t.Errorf("%s: %s isn't required", path, name)
		}
	}
	for name, value := range values {
		if below, ok := value.(map[string]any); ok && s.Properties[name].Properties != nil {
			s.Properties[name].sameKeys(t, path+"."+name, below)
		}
	}
}
