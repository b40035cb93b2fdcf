// Package kube translates between Kubernetes objects and the values that the
// pure packages decide on: podCIDRs and addresses as netip values, conditions,
// roles. It knows Nodes; it decides nothing and never talks to a cloud.
package kube

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// PodCIDRs are the node's pod prefixes in their order, masked. The error names
// the node and the value that is no prefix, which the API server would not have
// let in.
func PodCIDRs(node *corev1.Node) ([]netip.Prefix, error) {
	texts := node.Spec.PodCIDRs
	if len(texts) == 0 && node.Spec.PodCIDR != "" {
		texts = []string{node.Spec.PodCIDR}
	}
	prefixes := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("node %s: podCIDR %q: %w", node.Name, text, err)
		}
		prefixes = append(prefixes, p.Masked())
	}
	return prefixes, nil
}

// Condition is the node's condition of that type, or nil if it never had one.
func Condition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if node.Status.Conditions[i].Type == kind {
			return &node.Status.Conditions[i]
		}
	}
	return nil
}

// Ready says whether the kubelet reports the node as ready.
func Ready(node *corev1.Node) bool {
	c := Condition(node, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// ControlPlane says whether the node carries the control plane's role label.
func ControlPlane(node *corev1.Node) bool {
	_, ok := node.Labels["node-role.kubernetes.io/control-plane"]
	return ok
}

// InternalIPs are the addresses that the node is reported to have inside the
// cluster, in their order. Text that is no address is left out.
func InternalIPs(node *corev1.Node) []netip.Addr {
	var addrs []netip.Addr
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs
}
