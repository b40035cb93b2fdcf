package kube

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/routes"
)

// Node holds the parsed fields of a Node that agents use. It is kept small because each of
// 15,000 agents caches 15,000 Nodes. Its JSON is the entry of internal/directory.
type Node struct {
	Name         string         `json:"-"`
	UID          types.UID      `json:"uid"`
	Created      metav1.Time    `json:"created"`
	PodCIDRs     []netip.Prefix `json:"podCIDRs,omitempty"`
	InternalIPs  []netip.Addr   `json:"internalIPs,omitempty"`
	ExternalIPs  []netip.Addr   `json:"externalIPs,omitempty"`
	ControlPlane bool           `json:"controlPlane,omitempty"`
	Ready        bool           `json:"ready,omitempty"`
	Reach        routes.Reach   `json:"reach,omitempty"`
	WireGuard    *WireGuard     `json:"wireGuard,omitempty"`
}

// NodeOf converts a Node. It skips unreadable values; [PodCIDRs] returns the error.
func NodeOf(node *corev1.Node) *Node {
	podCIDRs, _ := PodCIDRs(node)
	return &Node{
		Name: node.Name, UID: node.UID, Created: node.CreationTimestamp, PodCIDRs: podCIDRs,
		InternalIPs: InternalIPs(node), ExternalIPs: ExternalIPs(node),
		ControlPlane: ControlPlane(node), Ready: Ready(node),
		Reach: ReachOf(node), WireGuard: WireGuardOf(node),
	}
}

// ForPolicies returns the Node's addresses of both types: no filter applies to connections between
// a machine and its own pods, since these are not forwarded.
func (n *Node) ForPolicies() policy.Node {
	return policy.Node{PodCIDRs: n.PodCIDRs, Addresses: slices.Concat(n.InternalIPs, n.ExternalIPs)}
}

// Equal reports whether all fields are the same except Created, which can't change.
func (n *Node) Equal(o *Node) bool {
	return n.Name == o.Name && n.UID == o.UID && slices.Equal(n.PodCIDRs, o.PodCIDRs) &&
		slices.Equal(n.InternalIPs, o.InternalIPs) && slices.Equal(n.ExternalIPs, o.ExternalIPs) &&
		n.ControlPlane == o.ControlPlane && n.Ready == o.Ready && n.Reach == o.Reach &&
		n.WireGuard.Equal(o.WireGuard)
}
