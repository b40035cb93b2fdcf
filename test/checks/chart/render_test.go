package chart

import (
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	// namespace is the only one that the chart accepts.
	namespace = "kube-system"
	// notes is Helm's message to users.
	notes = "NOTES.txt"
)

// Values on which the tests' values are layered.
const (
	onCloud = "config: {network: cluster}\nclusterCIDR: 10.244.0.0/16\napiServer: https://10.0.0.2:6443\n"
	netless = "config: {families: {ipv4: node}}\nclusterCIDR: 10.244.0.0/16\napiServer: https://10.0.0.2:6443\n"
	onMetal = "config: {provider: metal}\nclusterCIDR: 10.244.0.0/16\napiServer: https://192.0.2.1:6443\n"
)

// loaded is a chart of the test's own.
func loaded(t *testing.T) *helmchart.Chart {
	t.Helper()
	chart, err := loader.Load(source)
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

func parsed(t *testing.T, values string) map[string]any {
	t.Helper()
	var into map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &into); err != nil {
		t.Fatalf("%v in\n%s", err, values)
	}
	return into
}

func laidOver(t *testing.T, base, values string) map[string]any {
	t.Helper()
	return util.CoalesceTables(parsed(t, values), parsed(t, base))
}

// render returns the result of each template of the chart for values in YAML, by its path below
// templates/, without empty results. Helm validates the values by the schema first.
func render(t *testing.T, values string) (map[string]string, error) {
	t.Helper()
	return renderChart(t, loaded(t), namespace, parsed(t, values))
}

func renderChart(
	t *testing.T, chart *helmchart.Chart, namespace string, values map[string]any,
) (map[string]string, error) {
	t.Helper()
	release := common.ReleaseOptions{Name: "underlay", Namespace: namespace, IsInstall: true}
	complete, err := util.ToRenderValues(chart, values, release, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), chart, complete)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for path, content := range rendered {
		_, name, _ := strings.Cut(path, "/templates/")
		if content = strings.TrimSpace(content); content != "" && !strings.HasPrefix(name, "_") {
			files[name] = content + "\n"
		}
	}
	return files, nil
}
