package kube

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/underlay-ccm/underlay/policy"
)

// PodOf converts a Pod. It skips addresses that are unreadable.
func PodOf(p *corev1.Pod) policy.Pod {
	out := policy.Pod{
		Name: policy.Name{Namespace: p.Namespace, Name: p.Name}, Labels: p.Labels, Node: p.Spec.NodeName,
		HostNetwork: p.Spec.HostNetwork, Created: p.CreationTimestamp.Unix(),
		Ended: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed,
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil {
			out.Addresses = append(out.Addresses, a.Unmap())
		}
	}
	for _, port := range namedPorts(p) {
		out.Ports = append(out.Ports, policy.NamedPort{
			Name: port.Name, Protocol: protocolOf(&port.Protocol), Port: uint16(port.ContainerPort),
		})
	}
	return out
}

// namedPorts returns the ports that policies can name. An init container that is restarted runs
// beside the others (KEP-753).
func namedPorts(p *corev1.Pod) (found []corev1.ContainerPort) {
	add := func(c corev1.Container) {
		for _, port := range c.Ports {
			if port.Name != "" {
				found = append(found, port)
			}
		}
	}
	for _, c := range p.Spec.Containers {
		add(c)
	}
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			add(c)
		}
	}
	return found
}

// TrimPod is a transform for informers. It keeps what PodOf uses.
func TrimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	trimmed := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			Labels: p.Labels, CreationTimestamp: p.CreationTimestamp,
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}
	if ports := namedPorts(p); len(ports) > 0 {
		trimmed.Spec.Containers = []corev1.Container{{Ports: ports}}
	}
	return trimmed, nil
}

// TrimNamespace is a transform for informers. It keeps the labels.
func TrimNamespace(obj any) (any, error) {
	n, ok := obj.(*corev1.Namespace)
	if !ok {
		return obj, nil
	}
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels,
	}}, nil
}

// PolicyOf converts a NetworkPolicy. An unreadable block matches nothing.
func PolicyOf(p *networkingv1.NetworkPolicy) policy.Policy {
	out := policy.Policy{
		Name: policy.Name{Namespace: p.Namespace, Name: p.Name}, Pods: selectorOf(&p.Spec.PodSelector),
	}
	for _, t := range p.Spec.PolicyTypes {
		switch t {
		case networkingv1.PolicyTypeIngress:
			out.Types = append(out.Types, policy.Ingress)
		case networkingv1.PolicyTypeEgress:
			out.Types = append(out.Types, policy.Egress)
		}
	}
	for _, r := range p.Spec.Ingress {
		out.Ingress = append(out.Ingress, allowOf(r.From, r.Ports))
	}
	for _, r := range p.Spec.Egress {
		out.Egress = append(out.Egress, allowOf(r.To, r.Ports))
	}
	return out
}

func allowOf(
	peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort,
) (a policy.Allow) {
	for _, p := range peers {
		peer := policy.Peer{}
		if p.IPBlock != nil {
			peer.Block, _ = readPrefix(p.IPBlock.CIDR)
			for _, text := range p.IPBlock.Except {
				if e, ok := readPrefix(text); ok {
					peer.Except = append(peer.Except, e)
				}
			}
		} else {
			peer.Namespaces = optionalSelector(p.NamespaceSelector)
			peer.Pods = optionalSelector(p.PodSelector)
		}
		a.Peers = append(a.Peers, peer)
	}
	for _, p := range ports {
		port := policy.Port{Protocol: protocolOf(p.Protocol)}
		switch {
		case p.Port == nil:
		case p.Port.Type == intstr.String:
			port.Name = p.Port.StrVal
		default:
			port.Number = uint16(p.Port.IntVal)
		}
		if p.EndPort != nil {
			port.End = uint16(*p.EndPort)
		}
		a.Ports = append(a.Ports, port)
	}
	return a
}

func optionalSelector(s *metav1.LabelSelector) *policy.Selector {
	if s == nil {
		return nil
	}
	converted := selectorOf(s)
	return &converted
}

func selectorOf(s *metav1.LabelSelector) policy.Selector {
	var out policy.Selector
	for key, value := range s.MatchLabels {
		out = append(out, policy.Requirement{Key: key, Operator: policy.In, Values: []string{value}})
	}
	for _, e := range s.MatchExpressions {
		out = append(out, policy.Requirement{
			Key: e.Key, Operator: policy.Operator(e.Operator), Values: e.Values,
		})
	}
	return out
}

// protocolOf returns TCP for a protocol that is not set, as the API's default, and 0, which no
// packet of a policy's ports has, for one that is unknown.
func protocolOf(p *corev1.Protocol) policy.Protocol {
	switch {
	case p == nil || *p == "" || *p == corev1.ProtocolTCP:
		return policy.TCP
	case *p == corev1.ProtocolUDP:
		return policy.UDP
	case *p == corev1.ProtocolSCTP:
		return policy.SCTP
	}
	return 0
}
