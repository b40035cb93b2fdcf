package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each of the three values without a default is required, and the error names a missing one.
func TestThreeValuesAreNeeded(t *testing.T) {
	for name, without := range map[string]string{
		"config.network": strings.Replace(onCloud, "{network: cluster}", "{}", 1),
		"clusterCIDR":    strings.Replace(onCloud, "clusterCIDR: 10.244.0.0/16", "", 1),
		"apiServer":      strings.Replace(onCloud, "apiServer: https://10.0.0.2:6443", "", 1),
	} {
		_, err := render(t, without)
		if err == nil || !strings.Contains(err.Error(), "- "+name+": ") || !strings.Contains(err.Error(), "--set "+name+"=") {
			t.Errorf("without %s: %v", name, err)
		} else if strings.Count(err.Error(), "\n- ") != 1 {
			t.Errorf("without %s, more than that is missing: %v", name, err)
		}
	}
}

// TestMistakesAreReported tests mistakes that the programs don't detect, or detect too late.
func TestMistakesAreReported(t *testing.T) {
	for name, test := range map[string]struct {
		namespace, values string
		says              []string
	}{
		"all missing at once":        {namespace, "{}", []string{"- config.network: ", "- clusterCIDR: ", "- apiServer: "}},
		"another namespace":          {"default", onCloud, []string{`- namespace "default": `, "add --namespace kube-system"}},
		"too many replicas":          {namespace, onCloud + "ccm: {replicas: 4}", []string{"/ccm/replicas"}},
		"Robot without a cloud":      {namespace, onMetal + "robot: {secretName: hcloud}", []string{"- robot.secretName: "}},
		"no Services":                {namespace, onCloud + "serviceCIDR: ''", []string{"- serviceCIDR: the Services' range is missing", "kubeadm's serviceSubnet"}},
		"no section":                 {namespace, onCloud + "agent: null", []string{"missing property 'agent'"}},
		"API server without TLS":     {namespace, strings.Replace(onCloud, "https://10.0.0.2", "http://10.0.0.2", 1), []string{"/apiServer", "https://"}},
		"API server with a path":     {namespace, strings.Replace(onCloud, ":6443", ":6443/", 1), []string{"/apiServer", "https://"}},
		"a token in values":          {namespace, onCloud + "token: {token: abc}", []string{"/token", "'secretName', 'secretKey'"}},
		"a token file":               {namespace, "config: {network: a, tokenFile: /t}", []string{"- config.tokenFile: ", "token.secretName"}},
		"no Secret":                  {namespace, onCloud + "token: {secretName: ''}", []string{"- token.secretName: "}},
		"registry with a slash":      {namespace, onCloud + "images: {registry: a/}", []string{"/images/registry"}},
		"tag with the name":          {namespace, onCloud + "images: {tag: 'a:v1'}", []string{"/images/tag"}},
		"digest without its kind":    {namespace, onCloud + "images: {agentDigest: abc}", []string{"/images/agentDigest", "sha256:"}},
		"pull Secret":                {namespace, onCloud + "images: {pullSecrets: [a, B_]}", []string{"/images/pullSecrets/1"}},
		"a name to listen on":        {namespace, onCloud + "ccm: {bindAddress: localhost}", []string{"/ccm/bindAddress", "localhost"}},
		"gateway with a length":      {namespace, onCloud + "agent: {networkGateway: 10.0.0.1/16}", []string{"/agent/networkGateway"}},
		"flag in two words":          {namespace, onCloud + "ccm: {extraArgs: [--v=4, --v 4]}", []string{"- ccm.extraArgs[1]: ", "--flag=value"}},
		"flag with one dash":         {namespace, onCloud + "agent: {extraArgs: [-v=4]}", []string{"- agent.extraArgs[0]: "}},
		"interface":                  {namespace, onCloud + "agent: {uplinks: [eth1, 'eth 2']}", []string{"/agent/uplinks/1"}},
		"relative folder":            {namespace, onCloud + "agent: {cniBinDir: opt/cni}", []string{"/agent/cniBinDir"}},
		"API server's variable":      {namespace, onCloud + "ccm: {env: {KUBERNETES_SERVICE_PORT: 443}}", []string{"- ccm.env.KUBERNETES_SERVICE_PORT: ", "ccm.apiServerPort"}},
		"no name of a variable":      {namespace, onCloud + "ccm: {env: {A B: 1}}", []string{"'A B'"}},
		"metrics nobody reaches":     {namespace, onCloud + "podMonitor: {enabled: true, tokenSecret: {name: a}}", []string{`- ccm.bindAddress "127.0.0.1": `, `- agent.bindAddress "127.0.0.1": `}},
		"metrics without a token":    {namespace, onCloud + "podMonitor: {enabled: true}", []string{"- podMonitor.tokenSecret.name: "}},
		"metrics read twice":         {namespace, onCloud + "podMonitor: {enabled: true}\nserviceMonitor: {enabled: true}", []string{"- serviceMonitor.enabled: ", "set one of them to false"}},
		"metrics of services":        {namespace, onCloud + "serviceMonitor: {enabled: true}", []string{`- ccm.bindAddress "127.0.0.1": `, "or serviceMonitor.enabled to false", "- serviceMonitor.tokenSecret.name: "}},
		"a label of the chart's own": {namespace, onCloud + "dashboards: {enabled: true, label: app.kubernetes.io/name}", []string{`- dashboards.label "app.kubernetes.io/name": `}},
		"no label":                   {namespace, onCloud + "dashboards: {label: 'a b'}", []string{"/dashboards/label"}},
		"a label without quotes":     {namespace, onCloud + "dashboards: {labelValue: 1}", []string{"/dashboards/labelValue"}},
		"no namespace of Grafana":    {namespace, onCloud + "dashboards: {namespace: A_b}", []string{"/dashboards/namespace"}},
		"metrics every now and then": {namespace, onCloud + "podMonitor: {interval: often}", []string{"/podMonitor/interval"}},
	} {
		_, err := renderChart(t, loaded(t), test.namespace, parsed(t, test.values))
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

// An unknown key is rejected with a list of the known ones; TestSchemaKnowsEveryValue checks that
// each place has such a list.
func TestMisspelledKeysAreReported(t *testing.T) {
	for values, known := range map[string]string{
		"clusterCidr: 10.0.0.0/8":                "'clusterCIDR'",
		"config: {routes: {limits: 4}}":          "'limit', 'reserve', 'maxDeletions'",
		"config: {pools: [{name: a, mask: 24}]}": "'nodeMask'",
	} {
		_, err := render(t, values)
		if err == nil || !strings.Contains(err.Error(), "not allowed") || !strings.Contains(err.Error(), known) {
			t.Errorf("%s: %v\ndoesn't name %s", values, err, known)
		}
	}
}

// A token is never repeated, in whatever value it was put.
func TestSecretsAreNotRepeated(t *testing.T) {
	const secret = "Tok3nTok3nTok3nTok3nTok3nTok3nTok3nTok3n"
	for values, says := range map[string]string{
		"ccm: {env: {HCLOUD_TOKEN: %s}}":               "- ccm.env.HCLOUD_TOKEN: values must not contain the token, because they are stored in files, histories and Helm's own Secrets; remove it, put the token into a Secret, and set token.secretName",
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
		_, err := render(t, values)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v\nwant %q, and not the secret", values, err, says)
		}
	}
}

// schema is the checked part of a schema.
type schema struct {
	Description          string
	Type                 any
	Properties           map[string]schema
	PropertyNames        struct{ Enum []string }
	Required             []string
	AdditionalProperties any
	Items                *schema
}

// TestSchemaKnowsEveryValue compares values.yaml with its schema.
func TestSchemaKnowsEveryValue(t *testing.T) {
	values := parsed(t, content(t, filepath.Join(source, "values.yaml")))
	var root schema
	if err := json.Unmarshal([]byte(content(t, filepath.Join(source, "values.schema.json"))), &root); err != nil {
		t.Fatal(err)
	}
	root.described(t, "values")
	// The reference of the configuration, which is generated, has a row for each key.
	var documented []string
	rows := regexp.MustCompile("(?m)^\\| `([a-z][A-Za-z0-9.\\[\\]]+)` \\|")
	for _, row := range rows.FindAllStringSubmatch(content(t, "../../../docs/reference/configuration.md"), -1) {
		if row[1] != "apiVersion" && row[1] != "kind" { // the chart adds these
			documented = append(documented, row[1])
		}
	}
	slices.Sort(documented)
	if keys := slices.Sorted(slices.Values(root.Properties["config"].keys(""))); !slices.Equal(keys, documented) {
		t.Errorf("of the configuration the schema has\n%v\nthe reference\n%v", keys, documented)
	}
	// That, and the keys that Helm adds.
	for _, elsewhere := range []string{"global", "config"} {
		delete(root.Properties, elsewhere)
		delete(values, elsewhere)
	}
	root.sameKeys(t, "values", values)
}

// keys returns those below a path, in the reference's notation.
func (s schema) keys(path string) (all []string) {
	if s.Items != nil && s.Items.Properties != nil {
		all = s.Items.keys(path + "[]")
	}
	if s.Properties == nil {
		all = append(all, path)
	}
	for name, property := range s.Properties {
		all = append(all, property.keys(strings.TrimPrefix(path+"."+name, "."))...)
	}
	return all
}

// described requires a description of every value, and no others.
func (s schema) described(t *testing.T, path string) {
	t.Helper()
	if s.Description == "" {
		t.Errorf("%s has no description", path)
	}
	if s.Properties != nil && s.AdditionalProperties != false {
		t.Errorf("%s: a misspelled key would be taken", path)
	}
	names := slices.Sorted(maps.Keys(s.Properties))
	told := slices.Sorted(slices.Values(s.PropertyNames.Enum))
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
	inSchema, inFile := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(values))
	if !slices.Equal(inSchema, inFile) {
		t.Errorf("%s: the schema has %v, values.yaml %v", path, inSchema, inFile)
	}
	// null would remove a default, without which the templates don't work.
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
