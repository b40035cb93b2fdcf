package chart

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// monitor is the part of monitoring.coreos.com/v1 that is used here: of a PodMonitor or of a
// ServiceMonitor.
type monitor struct {
	APIVersion, Kind string
	Metadata         struct {
		Name, Namespace string
		Labels          map[string]string
	}
	Spec struct {
		Selector                       struct{ MatchLabels map[string]string }
		PodMetricsEndpoints, Endpoints []endpoint
	}
}

type endpoint struct {
	Port, Path, Interval, Scheme string
	TLSConfig                    struct{ InsecureSkipVerify bool }
	Authorization                struct {
		Type        string
		Credentials corev1.SecretKeySelector
	}
	Relabelings []relabeling
}

type relabeling struct {
	SourceLabels             []string
	TargetLabel, Replacement string
}

// monitored are the two programs' pods, the monitors of a kind and everything beside them.
func monitored(t *testing.T, kind string) map[string]map[string]any {
	t.Helper()
	files, err := render(t.Context(), source, namespace, strings.Replace(everything, "podMonitor:", kind+":", 1))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for name, program := range map[string]string{"ccm": "deployment", "agent": "daemonset"} {
		out[name] = documents(t, files[name+"/"+program+".yaml"])
		maps.Copy(out[name], documents(t, files[name+"/"+strings.ToLower(kind)+".yaml"]))
	}
	return out
}

func podOf(objects map[string]any) corev1.PodTemplateSpec {
	if d, ok := objects["Deployment"].(*appsv1.Deployment); ok {
		return d.Spec.Template
	}
	return objects["DaemonSet"].(*appsv1.DaemonSet).Spec.Template
}

// TestMonitorsFindPrograms: both kinds read the same port of the same pods.
func TestMonitorsFindPrograms(t *testing.T) {
	byPod, byService := monitored(t, "podMonitor"), monitored(t, "serviceMonitor")
	for _, name := range []string{"ccm", "agent"} {
		pods, services := byPod[name]["PodMonitor"].(*monitor), byService[name]["ServiceMonitor"].(*monitor)
		pod, service := podOf(byService[name]), byService[name]["Service"].(*corev1.Service)
		container := pod.Spec.Containers[0]
		for _, m := range []*monitor{pods, services} {
			if m.Metadata.Name != "underlay-"+name || m.Metadata.Namespace != namespace || m.Metadata.Labels["release"] != "prometheus" {
				t.Errorf("%s of %s: %+v", m.Kind, name, m.Metadata)
			}
			asks := append(slices.Clone(m.Spec.PodMetricsEndpoints), m.Spec.Endpoints...)
			if len(asks) != 1 || asks[0].Port != container.Ports[0].Name || asks[0].Interval != "1m" || asks[0].Path != "/metrics" {
				t.Errorf("%s of %s asks %+v", m.Kind, name, asks)
			}
		}
		selects(t, pods.Spec.Selector.MatchLabels, pod.Labels)
		selects(t, service.Spec.Selector, pod.Labels)
		selects(t, services.Spec.Selector.MatchLabels, service.Labels)
		want := []corev1.ServicePort{{Name: container.Ports[0].Name, Port: container.Ports[0].ContainerPort, TargetPort: intstr.FromString(container.Ports[0].Name)}}
		if service.Spec.ClusterIP != corev1.ClusterIPNone || !service.Spec.PublishNotReadyAddresses || !reflect.DeepEqual(service.Spec.Ports, want) {
			t.Errorf("the Service of %s is %+v", name, service.Spec)
		}
		// Alerts and dashboards look for the job that a PodMonitor makes.
		one, other := pods.Spec.PodMetricsEndpoints[0], services.Spec.Endpoints[0]
		job := relabeling{TargetLabel: "job", Replacement: namespace + "/underlay-" + name}
		if !reflect.DeepEqual(append(one.Relabelings, job), other.Relabelings) {
			t.Errorf("%s: relabelings %+v and %+v", name, one.Relabelings, other.Relabelings)
		}
		one.Relabelings, other.Relabelings = nil, nil
		if !reflect.DeepEqual(one, other) {
			t.Errorf("%s: a PodMonitor reads %+v, a ServiceMonitor %+v", name, one, other)
		}
	}
	secret := byService["ccm"]["ServiceMonitor"].(*monitor).Spec.Endpoints[0].Authorization.Credentials
	if secret.Name != "reader" || secret.Key != "t" {
		t.Errorf("the token is %+v", secret)
	}
}

func selects(t *testing.T, selector, labels map[string]string) {
	t.Helper()
	for key, value := range selector {
		if labels[key] != value {
			t.Errorf("selects %v of %v", selector, labels)
		}
	}
	if len(selector) == 0 {
		t.Error("selects everything")
	}
}

// TestDashboardsArrive: byte for byte, with the label that the sidecar looks for.
func TestDashboardsArrive(t *testing.T) {
	want := map[string]string{}
	paths, err := filepath.Glob(deploy + "/dashboards/*.json")
	if err != nil || len(paths) != 3 {
		t.Fatalf("there are %q, %v", paths, err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want[filepath.Base(path)] = string(content)
	}
	for values, label := range map[string][2]string{
		three + "dashboards: {enabled: true}": {"grafana_dashboard", "1"},
		everything:                            {"watch/me", "yes"},
	} {
		files, err := render(t.Context(), source, namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		made := documents(t, files["dashboards.yaml"])["ConfigMap"].(*corev1.ConfigMap)
		if made.Labels[label[0]] != label[1] || !maps.Equal(made.Data, want) {
			t.Errorf("labels %v, data of %q", made.Labels, slices.Sorted(maps.Keys(made.Data)))
		}
		if values == everything && (made.Namespace != "grafana" || made.Annotations["grafana_folder"] != "Underlay") {
			t.Errorf("namespace %s, annotations %v", made.Namespace, made.Annotations)
		}
	}
	files, err := render(t.Context(), source, namespace, three)
	if err != nil || files["dashboards.yaml"] != "" {
		t.Errorf("made without being asked for: %q, %v", files["dashboards.yaml"], err)
	}
}
