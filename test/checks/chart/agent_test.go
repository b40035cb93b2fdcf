package chart

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestAgentsAnswerOnlyWhereTheyHaveTo: packet sockets are for pools whose addresses are resolved by
// ARP or neighbor discovery at a node.
func TestAgentsAnswerOnlyWhereTheyHaveTo(t *testing.T) {
	for pools, raw := range map[string]bool{
		"{name: a, ranges: [192.0.2.1]}":                                            true,
		"{name: a, ranges: [a], mover: bgp}":                                        false,
		"{name: a, ranges: [a], mover: failover}":                                   false,
		"{name: a, ranges: [a], mover: floating-ip}":                                true,
		"{name: a, ranges: [a], mover: bgp}, {name: b, ranges: [b], mover: layer2}": true,
	} {
		addresses := "config: {provider: metal, addresses: {bgp: {asn: 64512}, pools: [" + pools + "]}}"
		files, err := renderChart(t, loaded(t), namespace, laidOver(t, onMetal, addresses))
		if err != nil {
			t.Fatalf("%s: %v", pools, err)
		}
		if got := strings.Contains(files["agent/daemonset.yaml"], ", NET_RAW]"); got != raw {
			t.Errorf("%s: NET_RAW %t", pools, got)
		}
	}
}

// TestPluginsAreInstalled runs the init container's script with folders of the test.
func TestPluginsAreInstalled(t *testing.T) {
	files, err := render(t, onCloud+"agent: {installPlugins: true}")
	if err != nil {
		t.Fatal(err)
	}
	container := decode[appsv1.DaemonSet](t, files["agent/daemonset.yaml"]).Spec.Template.Spec.InitContainers[0]
	root := t.TempDir()
	image, host := filepath.Join(root, "image"), filepath.Join(root, "host")
	for path, content := range map[string]string{
		filepath.Join(image, "ptp"): "ours", filepath.Join(image, "portmap"): "ours", filepath.Join(host, "ptp"): "theirs",
	} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script := strings.NewReplacer("/host/opt/cni/bin", host, "/opt/cni/bin", image).Replace(container.Args[0])
	command := append(slices.Clone(container.Command), script)
	for range 2 { // again, as after a restart
		if out, err := exec.CommandContext(t.Context(), command[0],
			command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	entries, err := os.ReadDir(host)
	if err != nil || len(entries) != 2 {
		t.Errorf("the host has %v, %v", entries, err)
	}
	for name, want := range map[string]string{"ptp": "theirs", "portmap": "ours"} {
		content, err := os.ReadFile(filepath.Join(host, name))
		info, statErr := os.Stat(filepath.Join(host, name))
		if err != nil || statErr != nil || string(content) != want || info.Mode().Perm() != 0o755 {
			t.Errorf("%s is %q, mode %v: %v", name, content, info.Mode(), err)
		}
	}
}

// A change of the configuration replaces pods, and no other change does.
func TestPodsFollowTheConfiguration(t *testing.T) {
	annotation := func(values string) string {
		files, err := renderChart(t, loaded(t), namespace, laidOver(t, onCloud, values))
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`underlay.dev/config: .+`).FindString(files["ccm/deployment.yaml"])
	}
	before := annotation("{}")
	if before == "" || annotation("ccm: {replicas: 3}") != before {
		t.Error("more replicas replace those that are there")
	}
	if annotation("config: {network: other}") == before {
		t.Error("another network leaves pods as they are")
	}
}

// selecting is an object with labels and a selector.
type selecting struct {
	Kind     string
	Metadata struct{ Labels map[string]string }
	Spec     struct {
		Selector map[string]any
		Template struct {
			Metadata struct{ Labels map[string]string }
		}
		PodMetricsEndpoints, Endpoints []struct{ Port string }
	}
}

// TestMonitorsFindPrograms: a PodMonitor selects pods, a ServiceMonitor a Service that does, and
// each scrapes a port by its name there.
func TestMonitorsFindPrograms(t *testing.T) {
	for _, values := range []string{"everything", "more"} {
		files := renderFile(t, golden+values+".values.yaml")
		for _, program := range []string{"ccm", "agent"} {
			workload := files["ccm/deployment.yaml"]
			if program == "agent" {
				workload = files["agent/daemonset.yaml"]
			}
			labels := decodeLoosely(t, workload).Spec.Template.Metadata.Labels
			monitor := files[program+"/podmonitor.yaml"]
			if monitor == "" {
				service, rest, _ := strings.Cut(files[program+"/servicemonitor.yaml"], "---\n")
				selects(t, decodeLoosely(t, service), labels)
				labels, monitor, workload = decodeLoosely(t, service).Metadata.Labels, rest, service
			}
			m := decodeLoosely(t, monitor)
			selects(t, m, labels)
			for _, asked := range append(m.Spec.PodMetricsEndpoints, m.Spec.Endpoints...) {
				if !strings.Contains(workload, "- name: "+asked.Port+"\n") {
					t.Errorf("%s of %s asks for port %s of\n%s", m.Kind, program, asked.Port, workload)
				}
			}
		}
	}
}

func decodeLoosely(t *testing.T, content string) (object selecting) {
	t.Helper()
	if err := yaml.Unmarshal([]byte(content), &object); err != nil {
		t.Fatal(err)
	}
	return object
}

func selects(t *testing.T, by selecting, labels map[string]string) {
	t.Helper()
	selector := by.Spec.Selector
	if nested, ok := selector["matchLabels"].(map[string]any); ok {
		selector = nested
	}
	for key, value := range selector {
		if labels[key] != value {
			t.Errorf("%s selects %v of %v", by.Kind, selector, labels)
		}
	}
	if len(selector) == 0 {
		t.Errorf("%s selects everything", by.Kind)
	}
}

// TestDashboardsArrive: they are rendered byte for byte, with the label that the sidecar selects.
func TestDashboardsArrive(t *testing.T) {
	want := map[string]string{}
	paths, err := filepath.Glob(deploy + "/dashboards/*.json")
	if err != nil || len(paths) < 3 {
		t.Fatalf("there are %q, %v", paths, err)
	}
	for _, path := range paths {
		want[filepath.Base(path)] = content(t, path)
	}
	made := decode[corev1.ConfigMap](t, renderFile(t, golden+"everything.values.yaml")["dashboards.yaml"])
	labeled := made.Labels["watch/me"] == "yes" && made.Annotations["grafana_folder"] == "Underlay"
	if !labeled || made.Namespace != "grafana" || !maps.Equal(made.Data, want) {
		t.Errorf("%+v, data of %q", made.ObjectMeta, slices.Sorted(maps.Keys(made.Data)))
	}
}

// TestPolicyOfPodCIDRs: it would reject the podCIDRs of another allocator.
func TestPolicyOfPodCIDRs(t *testing.T) {
	for values, installed := range map[string]bool{"": true, "allocateNodeCIDRs: false": false} {
		files, err := render(t, onCloud+values)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(files["ccm/podcidr-policy.yaml"], "underlay-podcidrs"); got != installed {
			t.Errorf("%q: the policy is installed: %t", values, got)
		}
	}
}
