package deploy

import (
	"errors"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/underlay-ccm/underlay/internal/config"
)

// TestItRunsBeforeAnythingElseCan is about what a cluster's first node has: no
// pod network, no Services, no DNS, and taints that only this program removes.
func TestItRunsBeforeAnythingElseCan(t *testing.T) {
	pod := only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSDefault {
		t.Errorf("hostNetwork is %t and dnsPolicy %s: both rest on the pod network", pod.HostNetwork, pod.DNSPolicy)
	}
	if pod.PriorityClassName != "system-cluster-critical" {
		t.Errorf("priorityClassName is %q", pod.PriorityClassName)
	}
	for _, taint := range []corev1.Taint{
		{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.kubernetes.io/network-unavailable", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule},
		{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoExecute},
	} {
		if !tolerates(pod, taint) {
			t.Errorf("taint %s keeps it away", taint.ToString())
		}
	}
	// A node that is gone must be left: another control-plane node may be there.
	if gone := (corev1.Taint{Key: "node.kubernetes.io/unreachable", Effect: corev1.TaintEffectNoExecute}); tolerates(pod, gone) {
		t.Errorf("taint %s is tolerated forever", gone.ToString())
	}
	terms := pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(terms) != 1 || len(terms[0].MatchExpressions) != 1 || terms[0].MatchExpressions[0].Key != "node-role.kubernetes.io/control-plane" {
		t.Errorf("it isn't bound to control-plane nodes: %v", terms)
	}
}

func tolerates(pod corev1.PodSpec, taint corev1.Taint) bool {
	return slices.ContainsFunc(pod.Tolerations, func(t corev1.Toleration) bool {
		return t.Key == taint.Key && (t.Effect == "" || t.Effect == taint.Effect) &&
			(t.Operator == corev1.TolerationOpExists || t.Value == taint.Value) && t.TolerationSeconds == nil
	})
}

// TestAPIServerIsNotReachedThroughItsService checks the way around the
// ClusterIP: a name that the certificate has, and that leads to this node.
func TestAPIServerIsNotReachedThroughItsService(t *testing.T) {
	pod := only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec
	env := map[string]string{}
	for _, variable := range pod.Containers[0].Env {
		env[variable.Name] = variable.Value
	}
	host := env["KUBERNETES_SERVICE_HOST"]
	// What kubeadm v1.37 puts into every API server's certificate, beside names
	// and addresses that differ from cluster to cluster: GetAPIServerAltNames in
	// cmd/kubeadm/app/util/pkiutil.
	if !slices.Contains([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"}, host) {
		t.Errorf("kubeadm's certificates don't have the name %q", host)
	}
	if len(pod.HostAliases) != 1 || !slices.Equal(pod.HostAliases[0].Hostnames, []string{host}) {
		t.Fatalf("%s has no address of its own: %v", host, pod.HostAliases)
	}
	if address, err := netip.ParseAddr(pod.HostAliases[0].IP); err != nil || !address.IsLoopback() {
		t.Errorf("%s leads to %s, not to this node", host, pod.HostAliases[0].IP)
	}
	if port, err := strconv.Atoi(env["KUBERNETES_SERVICE_PORT"]); err != nil || port == 443 {
		t.Errorf("port %q is no API server's own", env["KUBERNETES_SERVICE_PORT"])
	}
}

// TestReplicasGiveWay is about two replicas that want the same port of a node.
func TestReplicasGiveWay(t *testing.T) {
	spec := only[*appsv1.Deployment](t, shipped(t)).Spec
	if *spec.Replicas != 2 {
		t.Errorf("%d replicas, want 2", *spec.Replicas)
	}
	update := spec.Strategy.RollingUpdate
	if update.MaxSurge.IntValue() != 0 || update.MaxUnavailable.IntValue() != 1 {
		t.Errorf("maxSurge %s, maxUnavailable %s: an update needs a place that isn't there, or replaces both at once", update.MaxSurge, update.MaxUnavailable)
	}
}

func TestProbesAskTheSecurePort(t *testing.T) {
	container := only[*appsv1.Deployment](t, shipped(t)).Spec.Template.Spec.Containers[0]
	flags := flagsOf(t, container.Args)
	port := container.Ports[0]
	if got := strconv.Itoa(int(port.ContainerPort)); got != flags["--secure-port"] {
		t.Errorf("the container's port is %s, --secure-port is %s", got, flags["--secure-port"])
	}
	for name, probe := range map[string]*corev1.Probe{
		"startup": container.StartupProbe, "readiness": container.ReadinessProbe, "liveness": container.LivenessProbe,
	} {
		get := probe.HTTPGet
		if get.Scheme != corev1.URISchemeHTTPS || get.Path != "/healthz" || get.Port.StrVal != port.Name || get.Host != flags["--bind-address"] {
			t.Errorf("the %s probe asks %v, --bind-address is %s", name, get, flags["--bind-address"])
		}
	}
	if start := container.StartupProbe; start.PeriodSeconds*start.FailureThreshold < 24*60*60 {
		t.Errorf("a cloud that can't be reached for %d s at start would get the pod killed", start.PeriodSeconds*start.FailureThreshold)
	}
}

// TestAgentRunsOnEveryNode, also where nothing else may or can.
func TestAgentRunsOnEveryNode(t *testing.T) {
	set := only[*appsv1.DaemonSet](t, shippedIn(t, agentFolder)).Spec
	pod, container := set.Template.Spec, set.Template.Spec.Containers[0]
	if !pod.HostNetwork || pod.DNSPolicy != corev1.DNSDefault || pod.PriorityClassName != "system-node-critical" {
		t.Errorf("hostNetwork %t, dnsPolicy %s, priorityClassName %s", pod.HostNetwork, pod.DNSPolicy, pod.PriorityClassName)
	}
	everything := corev1.Toleration{Operator: corev1.TolerationOpExists}
	if !slices.Equal(pod.Tolerations, []corev1.Toleration{everything}) || pod.Affinity != nil || pod.NodeSelector != nil {
		t.Errorf("some nodes are left out: tolerations %v, affinity %v, nodeSelector %v", pod.Tolerations, pod.Affinity, pod.NodeSelector)
	}
	flags, port := flagsOf(t, container.Args[1:]), container.Ports[0]
	if strconv.Itoa(int(port.ContainerPort)) != flags["--port"] {
		t.Errorf("the container's port is %d, --port is %s", port.ContainerPort, flags["--port"])
	}
	for path, probe := range map[string]*corev1.Probe{"/readyz": container.ReadinessProbe, "/healthz": container.LivenessProbe} {
		if get := probe.HTTPGet; get.Path != path || get.Port.StrVal != port.Name || get.Host != flags["--bind-address"] {
			t.Errorf("a probe asks %v, --bind-address is %s", get, flags["--bind-address"])
		}
	}
	if update := set.UpdateStrategy.RollingUpdate; update.MaxSurge != nil || update.MaxUnavailable.String() != "10%" {
		t.Errorf("an update wants two agents on one port, or all nodes at once: %+v", update)
	}
}

// TestSettingsAreValid loads what the containers would see: their arguments, and
// the files where they are mounted.
func TestSettingsAreValid(t *testing.T) {
	const token = "a-token-of-the-project"
	for name, objects := range map[string][]runtime.Object{
		"cloud": slices.Concat(shipped(t), shippedIn(t, agentFolder)),
		"metal": shippedIn(t, metalFolder),
	} {
		t.Run(name, func(t *testing.T) {
			pod := only[*appsv1.Deployment](t, objects).Spec.Template.Spec
			loaded, warnings, err := load(t, pod, mounted(t, pod, objects, token))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("error %v, warnings %v", err, warnings)
			}
			cloud := name == "cloud"
			if cloud {
				if read, err := loaded.Token.Read(); err != nil || read.Reveal() != token {
					t.Errorf("the token isn't found where it is mounted: %v", err)
				}
			}
			if !loaded.IPAM.Enabled || loaded.Routes.Enabled != cloud || loaded.LoadBalancers.Enabled != cloud {
				t.Errorf("switched on: IPAM %t, routes %t, load balancers %t", loaded.IPAM.Enabled, loaded.Routes.Enabled, loaded.LoadBalancers.Enabled)
			}
			agent := only[*appsv1.DaemonSet](t, objects).Spec.Template.Spec
			flags := flagsOf(t, agent.Containers[0].Args[1:])
			node, err := config.LoadAgent(flags["--config"], flags["--cluster-cidr"], reader(mounted(t, agent, objects, token)))
			if err != nil || !slices.Equal(node.IPAM.Pools, loaded.IPAM.Pools) || node.Families != loaded.Families {
				t.Errorf("the agent sees families %v and pools %v, the controller manager %v and %v: %v", node.Families, node.IPAM.Pools, loaded.Families, loaded.IPAM.Pools, err)
			}
		})
	}
}

// load loads the controller manager's configuration.
func load(t *testing.T, pod corev1.PodSpec, files map[string]string) (config.Config, []config.Warning, error) {
	t.Helper()
	flags := flagsOf(t, pod.Containers[0].Args)
	return config.Load(config.Flags{
		CloudProvider:         "hcloud",
		CloudConfig:           flags["--cloud-config"],
		AllocateNodeCIDRs:     flags["--allocate-node-cidrs"] == "true",
		ConfigureCloudRoutes:  flags["--configure-cloud-routes"] == "true",
		ClusterCIDR:           flags["--cluster-cidr"],
		ServiceClusterIPRange: flags["--service-cluster-ip-range"],
		ClusterName:           flags["--cluster-name"],
	}, nil, func(string) string { return "" }, reader(files))
}

// reader reads files that only the test has.
func reader(files map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		if content, ok := files[name]; ok {
			return []byte(content), nil
		}
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("not mounted")}
	}
}

// mounted are the files that the pod's container finds, by their paths.
func mounted(t *testing.T, pod corev1.PodSpec, objects []runtime.Object, token string) map[string]string {
	t.Helper()
	settings := only[*corev1.ConfigMap](t, objects)
	files := map[string]string{}
	for _, mount := range pod.Containers[0].VolumeMounts {
		i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		if i < 0 {
			t.Fatalf("volume %s isn't there", mount.Name)
		}
		switch source := pod.Volumes[i].VolumeSource; {
		case source.ConfigMap != nil && source.ConfigMap.Name == settings.Name:
			for key, content := range settings.Data {
				files[path.Join(mount.MountPath, key)] = content
			}
		case source.Secret != nil:
			for _, item := range source.Secret.Items {
				files[path.Join(mount.MountPath, item.Path)] = token
			}
		case source.HostPath != nil: // the machine's own
		default:
			t.Fatalf("volume %s has a source that isn't shipped", mount.Name)
		}
	}
	return files
}
