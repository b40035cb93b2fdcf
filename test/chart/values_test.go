package chart

import (
	"encoding/json"
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

// TestThreeValuesMakeWhatIsTried: test/deploy runs the programs with the plain
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

func TestMistakesAreTold(t *testing.T) {
	for name, test := range map[string]struct {
		namespace, values string
		says              []string
	}{
		"all missing at once":     {namespace, "{}", []string{"- config.network: ", "- clusterCIDR: ", "- apiServer: "}},
		"another namespace":       {"default", three, []string{"namespace default", "add --namespace kube-system"}},
		"misspelled":              {namespace, three + "clusterCidr: 10.0.0.0/8", []string{"clusterCidr", "not allowed"}},
		"misspelled in config":    {namespace, "config: {netwrok: cluster}", []string{"/config", "netwrok"}},
		"too many replicas":       {namespace, three + "ccm: {replicas: 4}", []string{"/ccm/replicas"}},
		"no prefix":               {namespace, "clusterCIDR: 10.244.0.0", []string{"/clusterCIDR"}},
		"a token in values":       {namespace, three + "token: {token: abc}", []string{"/token", "not allowed"}},
		"a token in a variable":   {namespace, three + "ccm: {env: {HCLOUD_TOKEN: abc}}", []string{"HCLOUD_TOKEN"}},
		"a token file":            {namespace, "config: {network: a, tokenFile: /t}", []string{"- config.tokenFile: ", "token.secretName"}},
		"no Secret":               {namespace, three + "token: {secretName: ''}", []string{"- token.secretName: "}},
		"metrics nobody reaches":  {namespace, three + "podMonitor: {enabled: true, tokenSecret: {name: a}}", []string{"- ccm.bindAddress: ", "- agent.bindAddress: "}},
		"metrics without a token": {namespace, three + "podMonitor: {enabled: true}", []string{"- podMonitor.tokenSecret.name: "}},
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

// schema is as much of a schema as is looked at here.
type schema struct {
	Description          string
	Type                 any
	Properties           map[string]schema
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
	for name, value := range values {
		if below, ok := value.(map[string]any); ok && s.Properties[name].Properties != nil {
			s.Properties[name].sameKeys(t, path+"."+name, below)
		}
	}
}
