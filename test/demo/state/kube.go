package state

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// Node is the part of a Node that the demo shows.
type Node struct {
	Name         string
	ProviderID   string
	PodCIDRs     []netip.Prefix
	InternalIP   string
	ExternalIP   string
	InstanceType string
	Region       string
	Taints       []string // keys
	Unavailable  Condition
	Ready        Condition
	Created      time.Time
}

// Condition is one of a Node's conditions; the zero value: it was never set.
type Condition struct{ Status, Reason, Message string }

// NodeOf converts a Node.
func NodeOf(node *corev1.Node) Node {
	n := Node{
		Name: node.Name, ProviderID: node.Spec.ProviderID, Created: node.CreationTimestamp.Time,
		InstanceType: node.Labels[corev1.LabelInstanceTypeStable],
		Region:       node.Labels[corev1.LabelTopologyRegion],
	}
	for _, text := range node.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			n.PodCIDRs = append(n.PodCIDRs, p)
		}
	}
	for _, taint := range node.Spec.Taints {
		if !slices.Contains(n.Taints, taint.Key) {
			n.Taints = append(n.Taints, taint.Key)
		}
	}
	for _, a := range node.Status.Addresses {
		switch a.Type {
		case corev1.NodeInternalIP:
			n.InternalIP = a.Address
		case corev1.NodeExternalIP:
			n.ExternalIP = a.Address
		}
	}
	for _, c := range node.Status.Conditions {
		found := Condition{Status: string(c.Status), Reason: c.Reason, Message: c.Message}
		switch c.Type {
		case corev1.NodeNetworkUnavailable:
			n.Unavailable = found
		case corev1.NodeReady:
			n.Ready = found
		}
	}
	return n
}

// podCIDR is the Node's prefix of one family.
func (n Node) podCIDR(v4 bool) (netip.Prefix, bool) {
	for _, p := range n.PodCIDRs {
		if p.Addr().Is4() == v4 {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// PodCIDR4 is the Node's IPv4 podCIDR; invalid: it has none.
func (n Node) PodCIDR4() netip.Prefix { p, _ := n.podCIDR(true); return p }

// PodCIDR6 is the Node's IPv6 podCIDR; invalid: it has none.
func (n Node) PodCIDR6() netip.Prefix { p, _ := n.podCIDR(false); return p }

// initialized: a cloud controller manager has identified the machine.
func (n Node) initialized() bool {
	return n.ProviderID != "" && n.InstanceType != "" && n.Region != "" && n.ExternalIP != "" &&
		!slices.Contains(n.Taints, cloudproviderapi.TaintExternalCloudProvider)
}

// taints are the keys without their domains.
func (n Node) taints() string {
	short := make([]string, len(n.Taints))
	for i, key := range n.Taints {
		short[i] = key[strings.LastIndex(key, "/")+1:]
	}
	return strings.Join(short, ", ")
}

// Service is the part of a Service of type LoadBalancer that the demo shows.
type Service struct {
	Name, UID           string
	Policy              string // externalTrafficPolicy
	Port, NodePort      int
	HealthCheckNodePort int
	Addresses           []string
}

// ServiceOf converts a Service with one port.
func ServiceOf(svc *corev1.Service) Service {
	s := Service{
		Name: svc.Name, UID: string(svc.UID), Policy: string(svc.Spec.ExternalTrafficPolicy),
		HealthCheckNodePort: int(svc.Spec.HealthCheckNodePort),
	}
	for _, p := range svc.Spec.Ports {
		s.Port, s.NodePort = int(p.Port), int(p.NodePort)
	}
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			s.Addresses = append(s.Addresses, ingress.IP)
		}
	}
	return s
}
