package doctor

import (
	"fmt"
	"net/netip"
	"strconv"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/lb"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// shape is the kind of a healthy cluster.
type shape struct{ dual, metal bool }

func (s shape) String() string { return fmt.Sprintf("dual-stack %t, metal %t", s.dual, s.metal) }

// now is the time of every test's Snapshot.
func now() time.Time { return time.Date(2026, 11, 22, 4, 0, 0, 0, time.UTC) }

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now().Add(-d)) }

const machines = 3

// nameOf names machine i, from 0.
func nameOf(i int) string { return []string{"control-1", "worker-1", "worker-2", "worker-3"}[i] }

func innerOf(i int) string { return fmt.Sprintf("10.0.0.%d", i+2) }

// healthy is a cluster without faults.
func healthy(t *testing.T, s shape) *survey.Snapshot {
	t.Helper()
	snap := &survey.Snapshot{
		Taken: now(), Parts: survey.Everything,
		Namespace: "kube-system", LeaseName: types.NamespacedName{Namespace: "kube-system", Name: "cloud-controller-manager"},
	}
	snap.Config, snap.ConfigWarnings = loaded(t, s)
	for i := range machines {
		snap.Nodes = append(snap.Nodes, nodeOf(s, i))
	}
	for object := range snap.Ledger {
		snap.Ledger[object] = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: ago(48 * time.Hour)},
			Data:       map[string]string{ipam.MarkKey: ipam.Mark(object)},
		}
	}
	for _, n := range snap.Nodes {
		snap.Ledger[0].Data[n.Name] = recordOf(n, time.Time{})
	}
	snap.ServiceCIDRs = prefixes("10.96.0.0/16")
	if s.dual {
		snap.ServiceCIDRs = append(snap.ServiceCIDRs, prefixes("fd00:96::/112")...)
	}
	snap.Services = []*corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes", UID: "uid-kubernetes", CreationTimestamp: ago(48 * time.Hour)},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}}
	setUp(snap, s)
	if s.metal {
		snap.Parts &^= survey.Cloud
		for _, part := range []survey.Part{
			survey.PartNetwork, survey.PartServers, survey.PartLoadBalancers,
		} {
			snap.Gaps = append(snap.Gaps, survey.Gap{Part: part, Reason: "the provider is metal: there is no cloud to read"})
		}
		return snap
	}
	inCloud(snap)
	balanced(snap)
	return snap
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// loaded is the configuration as underlay-ccm reads it.
func loaded(t *testing.T, s shape) (config.Config, []config.Warning) {
	t.Helper()
	flags := config.Flags{
		"--cloud-provider": "hcloud", "--allocate-node-cidrs": "true", "--configure-cloud-routes": strconv.FormatBool(!s.metal), "--cluster-name": "kubernetes",
		"--cluster-cidr": "10.244.0.0/16", "--service-cluster-ip-range": "10.96.0.0/16", "--route-reconciliation-period": "1m",
	}
	if s.dual {
		flags["--cluster-cidr"] += ",fd00:10:244::/56"
		flags["--service-cluster-ip-range"] += ",fd00:96::/112"
	}
	file := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\n"
	if s.metal {
		file += "provider: metal\n"
	} else {
		file += "network: cluster\ntokenFile: /token\nloadBalancers: {location: fsn1, usePrivateIP: true}\n"
	}
	if s.dual {
		file += "families: {ipv6: node}\n"
	}
	c, warnings, err := config.Load(flags, []byte(file), func(string) string { return "" }, func(string) ([]byte, error) { return []byte("a-token-that-is-never-sent"), nil })
	if err != nil {
		t.Fatalf("the configuration of the fixture: %v", err)
	}
	return c, warnings
}

func nodeOf(s shape, i int) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: nameOf(i), UID: types.UID("uid-" + nameOf(i)), CreationTimestamp: ago(24 * time.Hour),
			ManagedFields: []metav1.ManagedFieldsEntry{setBy("underlay-node-ipam", 23*time.Hour)},
		},
		Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("hcloud://%d", 101+i), PodCIDRs: []string{fmt.Sprintf("10.244.%d.0/24", i)}},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeHostName, Address: nameOf(i)},
				{Type: corev1.NodeInternalIP, Address: innerOf(i)},
				{Type: corev1.NodeExternalIP, Address: fmt.Sprintf("203.0.113.%d", i+2)},
			},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
				{Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, Reason: "RouteCreated", LastTransitionTime: ago(23 * time.Hour)},
				{Type: agent.PeersReachable, Status: corev1.ConditionTrue, Reason: "AllPeersReachable", LastTransitionTime: ago(23 * time.Hour)},
			},
		},
	}
	if s.dual {
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, fmt.Sprintf("fd00:10:244:%x::/64", i))
	}
	if s.metal {
		n.Spec.ProviderID = "underlay://" + nameOf(i)
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	return n
}

// setBy is the API server's record of the manager that set podCIDRs.
func setBy(manager string, before time.Duration) metav1.ManagedFieldsEntry {
	at := ago(before)
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Time: &at,
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:podCIDR":{},"f:podCIDRs":{".":{},"v:\"10.244.0.0/24\"":{}}}}`),
	}
}

// recordOf is the ledger's entry of a Node, or its last one after the deletion.
func recordOf(n *corev1.Node, released time.Time) string {
	h := ipam.Holding{
		Node:  ipam.Node{Name: n.Name, UID: string(n.UID), ProviderID: n.Spec.ProviderID},
		Pools: map[netip.Prefix]string{}, Released: released,
	}
	for _, text := range n.Spec.PodCIDRs {
		p := netip.MustParsePrefix(text)
		h.Prefixes = append(h.Prefixes, p)
		h.Pools[p] = "default-ipv4"
		if p.Addr().Is6() {
			h.Pools[p] = "default-ipv6"
		}
	}
	return h.Record()
}

// proxyConf is kubeadm's form of the configuration in deploy/.
const proxyConf = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: 0.0.0.0
clientConnection:
  kubeconfig: /var/lib/kube-proxy/kubeconfig.conf
clusterCIDR: 10.244.0.0/16,fd00:10:244::/56
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: veth
detectLocalMode: InterfaceNamePrefix
healthzBindAddress: ""
kind: KubeProxyConfiguration
mode: nftables
nodePortAddresses:
- 10.0.0.0/16
`

// setUp adds the installation in kube-system.
func setUp(snap *survey.Snapshot, s shape) {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "kube-system", Name: name, Labels: map[string]string{"app.kubernetes.io/name": name}}
	}
	replicas := int32(2)
	snap.Deployments = []*appsv1.Deployment{{
		ObjectMeta: meta("underlay-ccm"),
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Template: template("registry.example/underlay-ccm:v1")},
		Status:     appsv1.DeploymentStatus{Replicas: 2, AvailableReplicas: 2},
	}}
	for _, name := range []string{"kube-proxy", "underlay-agent"} {
		snap.DaemonSets = append(snap.DaemonSets, &appsv1.DaemonSet{
			ObjectMeta: meta(name), Spec: appsv1.DaemonSetSpec{Template: template("registry.example/" + name + ":v1")},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: machines, NumberReady: machines},
		})
		for i := range machines {
			pod := &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: nameOf(i), Containers: []corev1.Container{{Image: "registry.example/" + name + ":v1"}}}}
			pod.Name += "-" + nameOf(i)
			pod.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: name}}
			pod.Status = corev1.PodStatus{
				Phase:      corev1.PodRunning,
				Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			}
			snap.Pods = append(snap.Pods, pod)
		}
	}
	snap.Pods = append(snap.Pods, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-controller-manager-control-1", Labels: map[string]string{"component": "kube-controller-manager"}},
		Spec: corev1.PodSpec{NodeName: nameOf(0), Containers: []corev1.Container{{
			Image:   "registry.k8s.io/kube-controller-manager:v1.37.1",
			Command: []string{"kube-controller-manager", "--allocate-node-cidrs=false", "--cluster-cidr=10.244.0.0/16", "--controllers=*,bootstrapsigner,tokencleaner"},
		}}},
	})
	snap.KubeProxy = &corev1.ConfigMap{ObjectMeta: meta("kube-proxy"), Data: map[string]string{"config.conf": proxyConf}}
	renewed, holder, lasts := metav1.NewMicroTime(now().Add(-3*time.Second)), "control-1_0f", int32(15)
	wrote := ago(3 * time.Second)
	snap.Lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "cloud-controller-manager", ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "underlay-ccm", Time: &wrote, FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`),
		}}},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, RenewTime: &renewed, LeaseDurationSeconds: &lasts,
		},
	}
	for _, name := range []string{"underlay-podcidrs", "underlay-agent-node-status", "underlay-agent-events", "underlay-kubelet-addresses"} {
		snap.Policies = append(snap.Policies, &admissionv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
		})
		snap.PolicyBindings = append(snap.PolicyBindings, &admissionv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			},
		})
	}
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
}

// inCloud adds servers and the network.
func inCloud(snap *survey.Snapshot) {
	snap.Network = &hetzner.NetworkDetails{ID: 7, Name: "cluster", IPRange: netip.MustParsePrefix("10.0.0.0/8"), Subnets: prefixes("10.0.0.0/16"), Servers: machines, LoadBalancers: 1}
	for i := range machines {
		addr := netip.MustParseAddr(innerOf(i))
		snap.Servers = append(snap.Servers, cloud.Machine{ID: int64(101 + i), Name: nameOf(i), PrivateIP: addr, Status: "running"})
		snap.Network.Routes = append(snap.Network.Routes, routes.Route{Dst: netip.MustParsePrefix(fmt.Sprintf("10.244.%d.0/24", i)), Via: addr})
	}
	recordAll(snap)
}

// recordAll records every existing route as written by the cluster.
func recordAll(snap *survey.Snapshot) {
	record := routes.Record{}
	for _, r := range snap.Network.Routes {
		record[r] = true
	}
	snap.RouteRecord = &corev1.ConfigMap{Data: record.Text()}
}

// balanced adds a Service with its load balancer.
func balanced(snap *survey.Snapshot) {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "uid-web", CreationTimestamp: ago(24 * time.Hour),
			Finalizers: []string{"service.kubernetes.io/load-balancer-cleanup"},
		},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.80", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}},
		},
		Status: corev1.ServiceStatus{Conditions: []metav1.Condition{{Type: "underlay.dev/Accepted", Status: metav1.ConditionTrue, Reason: "Accepted", Message: "the load balancer is as the Service requests"}}},
	}
	snap.Services = append(snap.Services, svc)
	node := nameOf(1)
	snap.EndpointSlices = []*discoveryv1.EndpointSlice{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		Endpoints:  []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.9"}, NodeName: &node}},
	}}
	b := lb.State{
		Created: now().Add(-24 * time.Hour),
		ID:      900, Name: "web", Labels: lb.Owner{Cluster: "kubernetes", UID: "uid-web"}.Labels(), Type: "lb11", Location: "fsn1", Network: 7, Public: true,
		Listeners: []lb.Listener{{
			Port: 80, DestinationPort: 30080, Protocol: lb.ProtocolTCP,
			Check: lb.HealthCheck{Protocol: lb.ProtocolHTTP, Port: 10256, Path: "/healthz", Interval: 10 * time.Second, Timeout: 15 * time.Second, Retries: 3, StatusCodes: "2??,3??"},
		}},
	}
	for i := range machines {
		target := lb.Target{Server: int64(101 + i), Private: true}
		b.Targets = append(b.Targets, target)
	}
	b.Verdicts = map[int]map[lb.Target]lb.Verdict{80: verdicts(b.Targets, machines)}
	snap.LoadBalancers = []lb.State{b}
}

// verdicts marks a number of the targets as healthy, and the others as unknown.
func verdicts(targets []lb.Target, healthy int) map[lb.Target]lb.Verdict {
	out := make(map[lb.Target]lb.Verdict, len(targets))
	for i, t := range targets {
		if out[t] = lb.Unknown; i < healthy {
			out[t] = lb.Healthy
		}
	}
	return out
}
