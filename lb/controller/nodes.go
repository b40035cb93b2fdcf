package controller

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
)

// toBeDeletedTaint is set by the cluster autoscaler before it removes a node.
const toBeDeletedTaint = "ToBeDeletedByClusterAutoscaler"

// eligible reports whether a node may be a target: a cloud server or a dedicated server. As in the
// service controller of Kubernetes, it need not be Ready, because health checks are faster and
// more precise. Only new targets must be Ready, by joins.
func eligible(node *corev1.Node) bool {
	if !node.DeletionTimestamp.IsZero() || kube.Excluded(node) {
		return false
	}
	_, err := kube.ParseProviderID(node.Spec.ProviderID)
	return err == nil || dedicated(node)
}

// dedicated reports whether a node is a dedicated server, which is a target by its addresses only.
func dedicated(node *corev1.Node) bool {
	_, err := kube.ParseDedicatedID(node.Spec.ProviderID)
	return err == nil
}

// Is reports whether a target is the node, at any of its addresses, or a pod on it.
func Is(node *corev1.Node, t lb.Target) bool {
	if t.Address.IsValid() && !t.Pod() {
		return eligible(node) && dedicated(node) && slices.Contains(reported(node), t.Address)
	}
	server, err := kube.ParseProviderID(node.Spec.ProviderID)
	return err == nil && (eligible(node) || t.Pod()) && server == t.Server
}

// reported returns all addresses in a node's status, external addresses first.
func reported(node *corev1.Node) []netip.Addr {
	return slices.Concat(kube.ExternalIPs(node), kube.InternalIPs(node))
}

// asTarget converts a node for package lb. A dedicated server's addresses are from its Node's
// status, so this needs no account of the Robot web service. Its private address must be in
// ranges, if there are any. ipv6 means that the Service's node ports also accept IPv6.
func asTarget(node *corev1.Node, ranges []netip.Prefix, ipv6 bool) lb.Node {
	n := lb.Node{Name: node.Name}
	if !dedicated(node) {
		n.Server, _ = kube.ParseProviderID(node.Spec.ProviderID) // eligible nodes have an ID
		return n
	}
	for _, a := range kube.InternalIPs(node) {
		in := func(p netip.Prefix) bool { return p.Contains(a) }
		if a.Is4() && a.IsPrivate() && (len(ranges) == 0 || slices.ContainsFunc(ranges, in)) {
			n.Private = a
			break
		}
	}
	n.Public = publicAddress(reported(node), ipv6)
	return n
}

// publicAddress returns the first public IPv4 address, or else, with ipv6, the first IPv6 address.
// A server without a vSwitch may have it as its InternalIP.
func publicAddress(all []netip.Addr, ipv6 bool) netip.Addr {
	var second netip.Addr
	for _, a := range all {
		switch {
		case !a.IsGlobalUnicast() || a.IsPrivate():
		case a.Is4():
			return a
		case ipv6 && !second.IsValid():
			second = a
		}
	}
	return second
}

// joins reports whether a node may become a target. It must be Ready, because the cloud may send
// traffic to targets that it has not checked yet, and the cluster autoscaler must not be about to
// remove it. Existing targets are kept: their health check fails, which stops new connections,
// while a removal would cut connections that are being drained.
func joins(node *corev1.Node) bool {
	return eligible(node) && kube.Ready(node) && !kube.Tainted(node, toBeDeletedTaint)
}

func noPods() lb.Note {
	return lb.Note{
		Grade: lb.Warning, Reason: lb.ReasonNoNodes,
		Text: "no pod can be a target: none of the Service is ready",
	}
}
