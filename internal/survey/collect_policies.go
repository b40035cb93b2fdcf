package survey

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/policy"
)

const networkPolicies = "networkpolicies.networking.k8s.io"

// networkPolicies reads no Pods while there is no NetworkPolicy.
func (c *collector) networkPolicies(ctx context.Context) error {
	some, err := c.Client.NetworkingV1().NetworkPolicies("").List(ctx, metav1.ListOptions{Limit: 1})
	switch {
	case err != nil:
		return &kubeError{"list", networkPolicies, "", err}
	case len(some.Items) > 0:
		c.s.NetworkPolicies, err = ReadNetworkPolicies(ctx, c.Client)
	}
	return err
}

// ReadNetworkPolicies reads NetworkPolicies and everything that they depend on.
func ReadNetworkPolicies(ctx context.Context, client kubernetes.Interface) (*policy.Index, error) {
	x := policy.NewIndex("")
	nodes, err := listed[corev1.Node](ctx, "nodes", "", metav1.ListOptions{}, client.CoreV1().Nodes().List)
	if err != nil {
		return nil, err
	}
	byName := map[string]policy.Node{}
	for _, node := range nodes {
		n := kube.NodeOf(node)
		byName[n.Name] = policy.Node{PodCIDRs: n.PodCIDRs, Addresses: append(n.InternalIPs, n.ExternalIPs...)}
	}
	x.SetNodes(byName)
	namespaces, err := listed[corev1.Namespace](ctx, "namespaces", "", metav1.ListOptions{}, client.CoreV1().Namespaces().List)
	if err != nil {
		return nil, err
	}
	for _, n := range namespaces {
		x.SetNamespace(n.Name, n.Labels)
	}
	pods, err := listed[corev1.Pod](ctx, "pods", "", metav1.ListOptions{}, client.CoreV1().Pods("").List)
	if err != nil {
		return nil, err
	}
	for _, p := range pods {
		x.SetPod(kube.PodOf(p))
	}
	policies, err := listed[networkingv1.NetworkPolicy](ctx, networkPolicies, "", metav1.ListOptions{}, client.NetworkingV1().NetworkPolicies("").List)
	for _, p := range policies {
		x.SetPolicy(kube.PolicyOf(p))
	}
	return x, err
}
