package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common/util"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// Values that the next ones are laid over.
const (
	onCloud = three
	netless = "config: {families: {ipv4: node}}\nclusterCIDR: 10.244.0.0/16\napiServer: https://10.0.0.2:6443"
	onMetal = "config: {provider: metal}\nclusterCIDR: 10.244.0.0/16\napiServer: https://192.0.2.1:6443"
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

func laidOver(t *testing.T, base, values string) map[string]any {
	t.Helper()
	return util.CoalesceTables(parsed(t, values), parsed(t, base))
}

func parsed(t *testing.T, values string) map[string]any {
	t.Helper()
	var into map[string]any
	if err := yaml.UnmarshalStrict([]byte(values), &into); err != nil {
		t.Fatalf("%v in\n%s", err, values)
	}
	return into
}

// settings are what a rendered chart gives to both programs, and answer is what
// they say; testdata/refused has them as well.
type settings struct {
	File           string
	Manager, Agent []string
	Env            map[string]string
}

type answer struct{ Manager, Agent string }

func (a answer) refused() bool { return a.Manager != "" || a.Agent != "" }

// ask has the programs' own code read the settings.
func ask(t *testing.T, asked []settings) []answer {
	t.Helper()
	input, err := json.Marshal(asked)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "run", "./test/checks/chart/testdata/refused/main.go")
	cmd.Dir, cmd.Env, cmd.Stdin = "../../..", append(os.Environ(), "PWD="), bytes.NewReader(input)
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("go run: %v", err)
	}
	var answers []answer
	if err := json.Unmarshal(output, &answers); err != nil || len(answers) != len(asked) {
		t.Fatalf("%d answers to %d settings: %v", len(answers), len(asked), err)
	}
	return answers
}

// unchecked renders without any of the chart's own checks.
func unchecked(t *testing.T, values map[string]any) settings {
	t.Helper()
	chart := loaded(t)
	chart.Schema = nil
	for _, file := range chart.Templates {
		if file.Name == "templates/_validate.tpl" {
			file.Data = []byte(`{{ define "underlay.mistakes" }}{{ end }}`)
		}
	}
	files, err := renderChart(t.Context(), chart, namespace, values)
	if err != nil {
		t.Fatal(err)
	}
	return given(t, files)
}

// given reads the settings out of what the chart has made.
func given(t *testing.T, files map[string]string) settings {
	t.Helper()
	manager := documents(t, files["ccm/deployment.yaml"])["Deployment"].(*appsv1.Deployment).Spec.Template.Spec.Containers[0]
	s := settings{
		File:    documents(t, files["ccm/configmap.yaml"])["ConfigMap"].(*corev1.ConfigMap).Data["config.yaml"],
		Manager: manager.Args,
		Env:     map[string]string{},
	}
	for _, v := range manager.Env {
		s.Env[v.Name] = v.Value
	}
	if daemonset := files["agent/daemonset.yaml"]; daemonset != "" {
		s.Agent = documents(t, daemonset)["DaemonSet"].(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Args
	}
	return s
}
