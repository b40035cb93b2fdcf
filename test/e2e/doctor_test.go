package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/metrics"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/internal/doctor"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
)

// In a cluster that is set up by deploy/ and deploy/kubeadm, doctor finds nothing; then each fault,
// caused one after the other through the API server and the cloud only, is found.
func TestDoctorFindsFaults(t *testing.T) {
	t.Parallel()
	c := start(t, hcloudsim.Options{ActionTime: 20 * time.Millisecond, RateLimit: 100_000})
	p := &patient{Cluster: c, config: c.CloudConfig() + "families: {ipv6: none}\n"}
	p.setUp(t)
	startManager(t, c, cluster.ManagerOptions{Config: p.config})
	for _, name := range []string{"control-1", "worker-1", "worker-2"} {
		addMachine(t, c, name)
	}
	eventually(t, time.Minute, "all Nodes are served", allServed(t, c, 3))
	createService(t, c, "web", corev1.ServiceExternalTrafficPolicyCluster)
	serveFrom(t, c, "web", "worker-1")
	eventually(t, 30*time.Second, "the Service has an address", hasAddress(t, c, "web"))
	eventually(t, 30*time.Second, "all machines are targets", hasTargets(t, c, 3))
	p.health(t, hcloudsim.HealthHealthy)

	eventually(t, 30*time.Second, "nothing is found in a healthy cluster", func(ctx context.Context) (bool, string) {
		found, err := p.examine(ctx)
		return err == nil && len(found) == 0, describe(found, err)
	})
	for _, w := range wrongs() {
		w.do(t, p)
		eventually(t, 30*time.Second, w.check+" finds it", func(ctx context.Context) (bool, string) {
			found, err := p.examine(ctx)
			return slices.ContainsFunc(found, w.isFoundBy), describe(found, err)
		})
	}
	wrote := slices.DeleteFunc(c.Cloud.Requests(), func(r hcloudsim.Request) bool {
		return r.Method == http.MethodGet || !strings.HasPrefix(r.UserAgent, "underlayctl")
	})
	if len(wrote) > 0 {
		t.Errorf("looking wrote to the cloud: %v", wrote)
	}
}

// wrong is a fault that a user, or another program, causes.
type wrong struct {
	do       func(*testing.T, *patient)
	check    string
	severity doctor.Severity
	object   string
	says     string
}

func (w wrong) isFoundBy(f doctor.Finding) bool {
	return f.Check == w.check && f.Severity == w.severity && f.Object == w.object &&
		strings.Contains(f.What, w.says)
}

// wrongs are caused in this order, and none is corrected.
func wrongs() []wrong {
	return []wrong{
		{proxyWith("detectLocalMode: InterfaceNamePrefix", "detectLocalMode: NodeCIDR"), "kube-proxy-local-mode", doctor.Error, "ConfigMap/kube-system/kube-proxy", "NodeCIDR"},
		{proxyWith("10.0.0.0/24", "192.168.0.0/24"), "kube-proxy-node-ports", doctor.Error, "ConfigMap/kube-system/kube-proxy", "192.168.0.0/24"},
		{foreignRoute, "foreign-routes", doctor.Warning, "route/10.244.128.0/20", "10.0.0.2"},
		{fullTable, "route-table", doctor.Error, "", "100 of 100 routes stand"},
		{peersDeployment, "other-cloud-controller", doctor.Error, "Deployment/kube-system/hcloud-cloud-controller-manager", "still there"},
		{closedHealthPort, "load-balancer-health", doctor.Error, "Service/default/web", "http :10256/healthz"},
		{secondAllocator, "second-allocator", doctor.Warning, "Pod/kube-system/kube-controller-manager-control-1", "--allocate-node-cidrs"},
		{noPolicy, "admission-policies", doctor.Warning, "ValidatingAdmissionPolicyBinding/underlay-podcidrs", "no binding"},
		{samePodCIDR, "duplicate-podcidr", doctor.Error, "Node/copy", "worker-1"},
		{badServiceType, "service-refused", doctor.Error, "Service/default/web", "no-such-algorithm"},
		{detached, "node-server", doctor.Error, "Node/worker-2", "not attached"},
	}
}

// patient is a cluster with the objects of an installation.
type patient struct {
	*cluster.Cluster
	config string
}

// examine reads the cluster as underlayctl does, one hour later: Nodes have a grace period until
// they are initialized, and load balancers until their health is known.
func (p *patient) examine(ctx context.Context) ([]doctor.Finding, error) {
	s, err := survey.Collect(ctx, survey.Sources{
		Client: p.Client,
		Configuration: survey.Configuration{
			File: []byte(p.config), FileName: "of the test",
			Flags: []string{"--cluster-cidr=" + cluster.PodRanges, "--service-cluster-ip-range=" + cluster.ServiceRange},
		},
		Cloud: func(endpoint string) (*hetzner.Client, error) {
			return hetzner.New(hetzner.Options{
				Endpoint: endpoint, Token: func() (string, error) { return cluster.Token, nil },
				Application: "underlayctl", Version: "test", Registry: metrics.NewKubeRegistry(),
			})
		},
	}, survey.Want{Parts: survey.Everything})
	if err != nil {
		return nil, err
	}
	for _, n := range s.Nodes {
		n.CreationTimestamp = metav1.NewTime(n.CreationTimestamp.Add(-time.Hour))
	}
	for i := range s.LoadBalancers {
		s.LoadBalancers[i].Created = s.LoadBalancers[i].Created.Add(-time.Hour)
	}
	return doctor.Examine(s), nil
}

func describe(all []doctor.Finding, err error) string {
	var b strings.Builder
	if err != nil {
		fmt.Fprintf(&b, "looking failed: %v\n", err)
	}
	for _, f := range all {
		fmt.Fprintf(&b, "%s %s %s: %s\n", f.Severity, f.Check, f.Object, f.What)
	}
	return b.String()
}

// setUp applies the manifests that a user applies, and adds the objects that kubeadm and the
// controllers of a whole control plane create.
func (p *patient) setUp(t *testing.T) {
	t.Helper()
	for _, path := range []string{"ccm/podcidr-policy.yaml", "ccm/kubelet-policy.yaml", "ccm/deployment.yaml", "agent/rbac.yaml", "agent/node-status-policy.yaml", "agent/events-policy.yaml", "agent/daemonset.yaml"} {
		if err := p.ControlPlane.Apply(t.Context(), "../../deploy/"+path); err != nil {
			t.Fatal(err)
		}
	}
	const system = metav1.NamespaceSystem
	d, err := p.Client.AppsV1().Deployments(system).Get(t.Context(), "underlay-ccm", metav1.GetOptions{})
	must(t, err)
	d.Status = appsv1.DeploymentStatus{
		Replicas: *d.Spec.Replicas, ReadyReplicas: *d.Spec.Replicas, AvailableReplicas: *d.Spec.Replicas,
	}
	_, err = p.Client.AppsV1().Deployments(system).UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
	must(t, err)
	agents, err := p.Client.AppsV1().DaemonSets(system).Get(t.Context(), "underlay-agent", metav1.GetOptions{})
	must(t, err)
	agents.Status = appsv1.DaemonSetStatus{
		DesiredNumberScheduled: 3, CurrentNumberScheduled: 3, NumberReady: 3,
	}
	_, err = p.Client.AppsV1().DaemonSets(system).UpdateStatus(t.Context(), agents,
		metav1.UpdateOptions{})
	must(t, err)
	_, err = p.Client.CoreV1().ConfigMaps(system).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy"}, Data: map[string]string{"config.conf": shippedProxyConfig(t)},
	}, metav1.CreateOptions{})
	must(t, err)
	p.managerPod(t, "--allocate-node-cidrs=false")
}

// shippedProxyConfig is the part for kube-proxy of the example for kubeadm.
func shippedProxyConfig(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../deploy/kubeadm/cloud/init.yaml")
	must(t, err)
	for _, document := range strings.Split(string(content), "\n---\n") {
		if strings.Contains(document, "kind: KubeProxyConfiguration") {
			return document
		}
	}
	t.Fatal("the example for kubeadm has nothing for kube-proxy")
	return ""
}

// managerPod creates the mirror pod of kube-controller-manager's static pod.
func (p *patient) managerPod(t *testing.T, flag string) {
	t.Helper()
	pods := p.Client.CoreV1().Pods(metav1.NamespaceSystem)
	const name = "kube-controller-manager-control-1"
	no := false
	_ = pods.Delete(t.Context(), name, *metav1.NewDeleteOptions(0)) // the previous one
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"component": "kube-controller-manager", "tier": "control-plane"}},
		Spec: corev1.PodSpec{
			AutomountServiceAccountToken: &no,
			Containers:                   []corev1.Container{{Name: "kube-controller-manager", Image: "registry.k8s.io/kube-controller-manager:v1.37.1", Command: []string{"kube-controller-manager", flag}}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

func (p *patient) health(t *testing.T, h hcloudsim.Health) {
	t.Helper()
	b := balancers(t, p.Cluster, 1)[0]
	for _, target := range b.Targets {
		must(t, p.Cloud.SetTargetHealth(b.ID, hcloudsim.TargetID{Server: target.Server.ID}, 0, h))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func proxyWith(old, changed string) func(*testing.T, *patient) {
	return func(t *testing.T, p *patient) {
		maps := p.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
		m, err := maps.Get(t.Context(), "kube-proxy", metav1.GetOptions{})
		must(t, err)
		if !strings.Contains(m.Data["config.conf"], old) {
			t.Fatalf("kube-proxy's configuration has no %s:\n%s", old, m.Data["config.conf"])
		}
		m.Data["config.conf"] = strings.Replace(m.Data["config.conf"], old, changed, 1)
		_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
		must(t, err)
	}
}

func (p *patient) route(t *testing.T, destination string) {
	t.Helper()
	must(t, p.Cloud.AddRoute(p.Network.ID, hcloudsim.RouteSeed{Destination: netip.MustParsePrefix(destination), Gateway: netip.MustParseAddr("10.0.0.2")}))
}

func foreignRoute(t *testing.T, p *patient) { p.route(t, "10.244.128.0/20") }

func fullTable(t *testing.T, p *patient) {
	for i := range 100 - len(routeTable(t, p.Cluster)) {
		p.route(t, fmt.Sprintf("10.77.%d.0/24", i))
	}
}

func peersDeployment(t *testing.T, p *patient) {
	labels := map[string]string{"app": "hcloud-cloud-controller-manager"}
	_, err := p.Client.AppsV1().Deployments(metav1.NamespaceSystem).Create(t.Context(),
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: labels["app"]},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: labels["app"], Image: "docker.io/hetznercloud/hcloud-cloud-controller-manager:v1.35.0"}}},
				},
			},
		}, metav1.CreateOptions{})
	must(t, err)
}

func closedHealthPort(t *testing.T, p *patient) { p.health(t, hcloudsim.HealthUnhealthy) }

func secondAllocator(t *testing.T, p *patient) { p.managerPod(t, "--allocate-node-cidrs=true") }

func noPolicy(t *testing.T, p *patient) {
	must(t, p.Client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(t.Context(), "underlay-podcidrs", metav1.DeleteOptions{}))
}

// samePodCIDR registers a machine of another provider with a podCIDR that is in use.
func samePodCIDR(t *testing.T, p *patient) {
	taken, err := p.Client.CoreV1().Nodes().Get(t.Context(), "worker-1", metav1.GetOptions{})
	must(t, err)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "copy"},
		Spec:       corev1.NodeSpec{ProviderID: "hrobot://4711", PodCIDR: taken.Spec.PodCIDR, PodCIDRs: taken.Spec.PodCIDRs},
	}
	eventually(t, 30*time.Second, "the policy is out of force", func(ctx context.Context) (bool, string) {
		_, err := p.Client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err == nil, fmt.Sprint(err)
	})
}

func badServiceType(t *testing.T, p *patient) {
	patchService(t, p.Cluster, "web", annotate("algorithm-type", "no-such-algorithm"))
}

func detached(t *testing.T, p *patient) {
	node, err := p.Client.CoreV1().Nodes().Get(t.Context(), "worker-2", metav1.GetOptions{})
	must(t, err)
	id := strings.TrimPrefix(node.Spec.ProviderID, "hcloud://")
	request(t, p.Cluster, "/servers/"+id+"/actions/detach_from_network", fmt.Sprintf(`{"network":%d}`, p.Network.ID))
}
