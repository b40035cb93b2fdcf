package chart

import (
	"context"
	"fmt"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

// namespace is the only one that the chart takes.
const namespace = "kube-system"

// render returns what each template of the chart in a folder makes of values in
// YAML, by its path below templates/; templates that make nothing are left out.
// Helm checks the values against the schema first.
func render(ctx context.Context, folder, namespace, values string) (map[string]string, error) {
	loaded, err := loader.Load(folder)
	if err != nil {
		return nil, fmt.Errorf("loading the chart: %w", err)
	}
	var given map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &given); err != nil {
		return nil, fmt.Errorf("reading the values: %w", err)
	}
	return renderChart(ctx, loaded, namespace, given)
}

func renderChart(ctx context.Context, chart *helmchart.Chart, namespace string, values map[string]any) (map[string]string, error) {
	release := common.ReleaseOptions{Name: "underlay", Namespace: namespace, IsInstall: true}
	complete, err := util.ToRenderValues(chart, values, release, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, fmt.Errorf("checking the values: %w", err)
	}
	rendered, err := engine.Engine{Strict: true}.RenderWithContext(ctx, chart, complete)
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
