//go:build linux

package policy_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/policy"
)

// The cluster: each namespace has as many policies as apps, each of which allows two apps of the
// namespace, all pods of another one, and a block.
const (
	nodeCount  = 100
	podCount   = 10_000
	namespaces = 100
	apps       = 10 // 1,000 policies
	own        = "node-0"

	scenario = "1,000 NetworkPolicies, 10,000 pods on 100 nodes"
)

func namespaceOf(i int) string { return fmt.Sprint("team-", i%namespaces) }

func nodeAddress(i int) string { return fmt.Sprint("10.255.255.", i+1) }

func nodeOf(i int) *corev1.Node {
	ipv4, ipv6 := fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("fd00:0:0:%x::/64", i+1)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)},
		Spec:       corev1.NodeSpec{PodCIDR: ipv4, PodCIDRs: []string{ipv4, ipv6}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeAddress(i)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("fd00:ffff::%x", i+1)},
		}},
	}
}

func podOf(i int) *corev1.Pod {
	node, host := i%nodeCount, 2+i/nodeCount
	return newPod(fmt.Sprint("pod-", i), namespaceOf(i/nodeCount), i%apps, node,
		fmt.Sprintf("10.%d.0.%d", node, host), fmt.Sprintf("fd00:0:0:%x::%x", node+1, host))
}

func newPod(name, namespace string, app, node int, addresses ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(fmt.Sprintf("%036s", name)), ResourceVersion: "1234567",
			Labels: map[string]string{"app": fmt.Sprint("app-", app), "pod-template-hash": "5d4f8c7b9"},
		},
		Spec: corev1.PodSpec{
			NodeName:   fmt.Sprint("node-", node),
			Containers: []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}},
		},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, HostIP: nodeAddress(node), PodIP: addresses[0],
		},
	}
	for _, a := range addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a})
	}
	return pod
}

func namespace(i int) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i), Labels: map[string]string{"team": fmt.Sprint(i % namespaces)}}}
}

func policyOf(i, a int) *networkingv1.NetworkPolicy {
	app := func(a int) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint("app-", a%apps)}}
	}
	peers := []networkingv1.NetworkPolicyPeer{
		{PodSelector: app(a + 1)},
		{PodSelector: app(a + 2)},
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: namespace(i + 1).Labels}},
		{IPBlock: &networkingv1.IPBlock{CIDR: "192.0.2.0/24", Except: []string{"192.0.2.7/32"}}},
	}
	ports := []networkingv1.NetworkPolicyPort{
		{Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(intstr.FromString("http"))},
		{Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(intstr.FromInt32(53))},
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaceOf(i), Name: fmt.Sprint("policy-", i, "-", a)},
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: *app(a),
			PolicyTypes: []networkingv1.PolicyType{
				networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress,
			},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: peers, Ports: ports}},
			Egress:  []networkingv1.NetworkPolicyEgressRule{{To: peers, Ports: ports}},
		},
	}
}

// cluster returns the index of node-0's agent, and its cache of Pods.
func cluster(b *testing.B) (*policy.Index, cache.Store) {
	b.Helper()
	x, pods := policy.NewIndex(own), cache.NewStore(cache.MetaNamespaceKeyFunc)
	nodes := map[string]policy.Node{}
	for i := range nodeCount {
		n := kube.NodeOf(nodeOf(i))
		nodes[n.Name] = n.ForPolicies()
	}
	x.SetNodes(nodes)
	for i := range namespaces {
		x.SetNamespace(namespaceOf(i), namespace(i).Labels)
		for a := range apps {
			x.SetPolicy(kube.PolicyOf(policyOf(i, a)))
		}
	}
	for i := range podCount {
		pod, err := kube.TrimPod(podOf(i))
		if err == nil {
			err = pods.Add(pod)
		}
		if err != nil {
			b.Fatal(err)
		}
		x.SetPod(kube.PodOf(pod.(*corev1.Pod)))
	}
	return x, pods
}

// firstAddress returns the IPv4 address of a pod.
func firstAddress(i int) netip.Addr { return netip.MustParseAddr(podOf(i).Status.PodIP) }
