package chart

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// everything sets each value to something else than its default.
const everything = `
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
serviceCIDR: 10.97.0.0/16,fd00:97::/112
apiServer: https://api.example:443
clusterName: blue
allocateNodeCIDRs: false
configureCloudRoutes: false
config: {network: 12345678, routes: {limit: 90, maxDeletions: 10%}, families: {ipv6: node}}
token: {secretName: project, secretKey: api}
images:
  registry: registry.example/a
  tag: v9.9.9
  agentDigest: sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef
  pullPolicy: Always
  pullSecrets: [one, two]
ccm:
  replicas: 3
  apiServerPort: 443
  bindAddress: "::"
  env: {HTTPS_PROXY: http://proxy.example, NUMBER: 12345678}
  extraArgs: [--v=4]
  resources: {limits: {memory: 1Gi}}
agent:
  uplinks: [eth1, eth2]
  networkGateway: 10.0.0.1
  filterInbound: false
  allowInbound: [192.0.2.0/24, 'fd02::/48']
  cniConfDir: /var/lib/net.d
  cniBinDir: /usr/lib/cni
  installPlugins: true
  bindAddress: 0.0.0.0
  extraArgs: [--sync-period=2m]
  resources: {limits: {memory: 1Gi}}
podMonitor: {enabled: true, labels: {release: prometheus}, interval: 1m, tokenSecret: {name: reader, key: t}}
dashboards: {enabled: true, label: watch/me, labelValue: "yes", namespace: grafana, annotations: {grafana_folder: Underlay}}
`

// documents decodes strictly what a template has made, by kind.
func documents(t *testing.T, content string) map[string]any {
	t.Helper()
	found := map[string]any{}
	for text := range strings.SplitSeq(content, "\n---\n") {
		var head struct{ Kind string }
		if err := yaml.Unmarshal([]byte(text), &head); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		into, ok := map[string]any{
			"ConfigMap": &corev1.ConfigMap{}, "ServiceAccount": &corev1.ServiceAccount{}, "Namespace": &corev1.Namespace{},
			"Deployment": &appsv1.Deployment{}, "DaemonSet": &appsv1.DaemonSet{},
			"ClusterRole": &rbacv1.ClusterRole{}, "ClusterRoleBinding": &rbacv1.ClusterRoleBinding{},
			"Role": &rbacv1.Role{}, "RoleBinding": &rbacv1.RoleBinding{},
			"PodDisruptionBudget":              &policyv1.PodDisruptionBudget{},
			"ValidatingAdmissionPolicy":        &admissionv1.ValidatingAdmissionPolicy{},
			"ValidatingAdmissionPolicyBinding": &admissionv1.ValidatingAdmissionPolicyBinding{},
			"Service":                          &corev1.Service{}, "PodMonitor": &monitor{}, "ServiceMonitor": &monitor{},
		}[head.Kind]
		if !ok {
			t.Fatalf("an object of kind %q:\n%s", head.Kind, text)
		}
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Errorf("%s: %v", head.Kind, err)
		}
		found[head.Kind] = into
	}
	return found
}

// TestEveryValueArrives renders with all values changed.
func TestEveryValueArrives(t *testing.T) {
	files, err := render(t.Context(), source, namespace, everything)
	if err != nil {
		t.Fatal(err)
	}
	delete(files, "NOTES.txt")
	objects := map[string]map[string]any{}
	for name, content := range files {
		objects[name] = documents(t, content)
		if strings.Contains(content, " \n") {
			t.Errorf("%s has blanks at the end of a line", name)
		}
	}
	for file, says := range map[string][]string{
		"ccm/configmap.yaml": {"network: 12345678\n", "limit: 90\n", "maxDeletions: 10%\n", "Secret kube-system/project"},
	} {
		for _, text := range says {
			if !strings.Contains(files[file], text) {
				t.Errorf("%s doesn't say %q:\n%s", file, text, files[file])
			}
		}
	}
	manager := objects["ccm/deployment.yaml"]["Deployment"].(*appsv1.Deployment)
	agent := objects["agent/daemonset.yaml"]["DaemonSet"].(*appsv1.DaemonSet)
	t.Run("controller manager", func(t *testing.T) { managerHasAll(t, manager) })
	t.Run("agent", func(t *testing.T) { agentHasAll(t, agent) })
	for name, program := range map[string]*corev1.PodTemplateSpec{"ccm": &manager.Spec.Template, "agent": &agent.Spec.Template} {
		container := program.Spec.Containers[0]
		if program.Annotations["underlay.dev/config"] == "" || len(program.Spec.ImagePullSecrets) != 2 || container.Resources.Limits.Memory().String() != "1Gi" {
			t.Errorf("%s: annotations %v, pull Secrets %v, limits %v", name, program.Annotations, program.Spec.ImagePullSecrets, container.Resources.Limits)
		}
	}
}

// TestAgentsAnswerOnlyWhereTheyHaveTo: packet sockets are for pools whose addresses a node is asked
// for, and passwords for clusters with routers that have any.
func TestAgentsAnswerOnlyWhereTheyHaveTo(t *testing.T) {
	const metal = "clusterCIDR: 10.244.0.0/16\napiServer: https://a.example:6443\nconfig:\n  provider: metal\n"
	for more, raw := range map[string]bool{
		"":                                 false,
		"  addresses: {bgp: {asn: 64512}}": false,
		"  addresses: {pools: [{name: a, ranges: [192.0.2.1], mover: bgp}]}":                                                false,
		"  addresses: {pools: [{name: a, ranges: [192.0.2.1]}]}":                                                            true,
		"  addresses: {pools: [{name: a, ranges: [192.0.2.1], mover: bgp}, {name: b, ranges: [192.0.2.2], mover: layer2}]}": true,
		"  addresses: {pools: [{name: a, ranges: [192.0.2.1], mover: floating-ip}]}":                                        true,
		"  addresses: {pools: [{name: a, ranges: [192.0.2.1], mover: failover}]}":                                           false,
	} {
		for secret, mounted := range map[string]bool{"": false, "routers": true} {
			files, err := render(t.Context(), source, namespace, metal+more+"\nbgp: {secretName: \""+secret+"\"}\n")
			if err != nil {
				t.Fatalf("%s: %v", more, err)
			}
			pod := documents(t, files["agent/daemonset.yaml"])["DaemonSet"].(*appsv1.DaemonSet).Spec.Template.Spec
			if got := slices.Contains(pod.Containers[0].SecurityContext.Capabilities.Add, "NET_RAW"); got != raw {
				t.Errorf("%s: NET_RAW %t", more, got)
			}
			volume := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == secret })
			mount := slices.IndexFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/underlay-bgp" && m.ReadOnly })
			if (volume >= 0) != mounted || (mount >= 0) != mounted {
				t.Errorf("%s, Secret %q: volume %d, mount %d", more, secret, volume, mount)
			}
		}
	}
}

func managerHasAll(t *testing.T, d *appsv1.Deployment) {
	container := d.Spec.Template.Spec.Containers[0]
	hasArgs(t, container.Args,
		"--cluster-cidr=10.244.0.0/16,fd00:10:244::/56", "--service-cluster-ip-range=10.97.0.0/16,fd00:97::/112", "--cluster-name=blue",
		"--allocate-node-cidrs=false", "--configure-cloud-routes=false", "--bind-address=::", "--v=4")
	if container.Args[len(container.Args)-1] != "--v=4" {
		t.Errorf("arguments after the further ones, which outrank them: %v", container.Args)
	}
	env := map[string]string{}
	for _, v := range container.Env {
		env[v.Name] = v.Value
	}
	if env["HTTPS_PROXY"] != "http://proxy.example" || env["NUMBER"] != "12345678" || env["KUBERNETES_SERVICE_PORT"] != "443" {
		t.Errorf("variables %v", env)
	}
	if *d.Spec.Replicas != 3 || container.Image != "registry.example/a/underlay-ccm:v9.9.9" || container.ImagePullPolicy != corev1.PullAlways {
		t.Errorf("%d replicas of %s, pulled %s", *d.Spec.Replicas, container.Image, container.ImagePullPolicy)
	}
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
		if probe.HTTPGet.Host != "::1" {
			t.Errorf("a probe asks %q, the program listens on every address", probe.HTTPGet.Host)
		}
	}
	secret := d.Spec.Template.Spec.Volumes[1].Secret
	if secret.SecretName != "project" || secret.Items[0] != (corev1.KeyToPath{Key: "api", Path: "token"}) {
		t.Errorf("the token comes from %+v", secret)
	}
}

func agentHasAll(t *testing.T, d *appsv1.DaemonSet) {
	pod := d.Spec.Template.Spec
	container := pod.Containers[0]
	hasArgs(t, container.Args,
		"--api-server=https://api.example:443", "--cluster-cidr=10.244.0.0/16,fd00:10:244::/56", "--uplink=eth1", "--uplink=eth2",
		"--network-gateway=10.0.0.1", "--filter-inbound=false", "--allow-inbound=192.0.2.0/24", "--allow-inbound=fd02::/48", "--bind-address=0.0.0.0", "--sync-period=2m")
	for _, image := range []string{container.Image, pod.InitContainers[0].Image} {
		if !strings.HasPrefix(image, "registry.example/a/underlay-agent@sha256:0123") {
			t.Errorf("image %s", image)
		}
	}
	paths := map[string]string{}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			t.Errorf("the agent is given Secret %s", v.Secret.SecretName)
		}
		if v.HostPath != nil {
			paths[v.Name] = v.HostPath.Path
		}
	}
	if paths["cni-conf"] != "/var/lib/net.d" || paths["cni-bin"] != "/usr/lib/cni" {
		t.Errorf("paths of the host: %v", paths)
	}
	for _, probe := range []*corev1.Probe{container.ReadinessProbe, container.LivenessProbe} {
		if probe.HTTPGet.Host != "127.0.0.1" {
			t.Errorf("a probe asks %q, the program listens on every address", probe.HTTPGet.Host)
		}
	}
	t.Run("plugins", func(t *testing.T) { installsPlugins(t, pod.InitContainers[0]) })
}

func hasArgs(t *testing.T, args []string, want ...string) {
	t.Helper()
	for _, arg := range want {
		if !slices.Contains(args, arg) {
			t.Errorf("no argument %s in %v", arg, args)
		}
	}
}

// installsPlugins runs the init container's script over folders of the test.
func installsPlugins(t *testing.T, container corev1.Container) {
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
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
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

// A change of the configuration replaces pods, and nothing else does.
func TestPodsFollowTheConfiguration(t *testing.T) {
	annotation := func(values string) string {
		files, err := render(t.Context(), source, namespace, values)
		if err != nil {
			t.Fatal(err)
		}
		d := documents(t, files["ccm/deployment.yaml"])["Deployment"].(*appsv1.Deployment)
		return d.Spec.Template.Annotations["underlay.dev/config"]
	}
	before := annotation(three)
	if annotation(three+"ccm: {replicas: 3}") != before {
		t.Error("more replicas replace those that are there")
	}
	if annotation(strings.Replace(three, "network: cluster", "network: other", 1)) == before {
		t.Error("another network leaves pods as they are")
	}
}
