package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Node is what an agent uses of a Node, parsed once. Each of 15,000 agents keeps one for each of
// 15,000 Nodes, so it has nothing else. Its JSON is the entry of internal/directory.
type Node struct {
	Name         string         `json:"-"`
	UID          types.UID      `json:"uid"`
	Created      metav1.Time    `json:"created"`
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	InternalIPs  []netip.Addr   `json:"internalIPs,omitempty"`
	ExternalIPs  []netip.Addr   `json:"externalIPs,omitempty"`
	ControlPlane bool           `json:"controlPlane,omitempty"`
	Ready        bool           `json:"ready,omitempty"`
}

// NodeOf reads a Node. What can't be read of it is left out; [PodCIDRs] has the error.
func NodeOf(node *corev1.Node) *Node {
	podCIDRs, _ := PodCIDRs(node)
	return &Node{
		Name: node.Name, UID: node.UID, Created: node.CreationTimestamp, PodCIDRs: podCIDRs,
		InternalIPs: InternalIPs(node), ExternalIPs: ExternalIPs(node),
		ControlPlane: ControlPlane(node), Ready: Ready(node),
	}
}

// Equal reports whether both are the same in everything that may change.
func (n *Node) Equal(o *Node) bool {
	return n.Name == o.Name && n.UID == o.UID && slices.Equal(n.PodCIDRs, o.PodCIDRs) &&
		slices.Equal(n.InternalIPs, o.InternalIPs) && slices.Equal(n.ExternalIPs, o.ExternalIPs) &&
		n.ControlPlane == o.ControlPlane && n.Ready == o.Ready
}
