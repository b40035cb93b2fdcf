package survey

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/policy"
)

// networkPolicies runs after nodes. It reads no Pods and Namespaces while there is no
// NetworkPolicy.
func (c *collector) networkPolicies(ctx context.Context) error {
	policies, err := listed[networkingv1.NetworkPolicy](ctx, "networkpolicies.networking.k8s.io", "",
		c.Client.NetworkingV1().NetworkPolicies("").List)
	if err != nil || len(policies) == 0 {
		return err
	}
	if !c.s.Saw(PartNodes) {
		return errNotSeen("NetworkPolicies can't be judged while the Nodes are not seen")
	}
	namespaces, err := listed[corev1.Namespace](ctx, "namespaces", "",
		c.Client.CoreV1().Namespaces().List)
	if err != nil {
		return err
	}
	pods, err := listed[corev1.Pod](ctx, "pods", "", c.Client.CoreV1().Pods("").List)
	if err != nil {
		return err
	}
	x := policy.NewIndex("")
	nodes := make(map[string]policy.Node, len(c.s.Nodes))
	for _, n := range c.s.Nodes {
		nodes[n.Name] = kube.NodeOf(n).ForPolicies()
	}
	x.SetNodes(nodes)
	for _, n := range namespaces {
		x.SetNamespace(n.Name, n.Labels)
	}
	for _, p := range pods {
		x.SetPod(kube.PodOf(p))
	}
	for _, p := range policies {
		x.SetPolicy(kube.PolicyOf(p))
	}
	c.s.NetworkPolicies = x
	return nil
}
