package kube

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

const (
	// ReachAnnotation marks a Node with podCIDRs that no plain route can lead to. The route
	// controller writes it, and only a client deletes it, so that tunnels don't flap.
	ReachAnnotation = "underlay.dev/reach"
	// WireGuardAnnotation has a [WireGuard]. The agent writes it to its own Node.
	WireGuardAnnotation = "underlay.dev/wireguard"
)

// Reach is the reason why tunnels connect a Node; empty if plain routes do.
type Reach string

const (
	NoRoom    Reach = "no-room"    // in the network's route table
	NoNetwork Reach = "no-network" // the machine is not in the network of the other Nodes
)

// ReachOf returns the Node's reach. A value that is not defined counts as none.
func ReachOf(node *corev1.Node) Reach {
	switch r := Reach(node.Annotations[ReachAnnotation]); r {
	case NoRoom, NoNetwork:
		return r
	default:
		return ""
	}
}

// WireGuard is how other Nodes connect to a Node's WireGuard device.
type WireGuard struct {
	PublicKey string `json:"publicKey"` // 32 bytes in base64
	Port      int    `json:"port"`      // UDP
	// Connected means that the tunnels to all Ready Nodes have worked.
	Connected bool `json:"connected,omitempty"`
}

// WireGuardOf returns the Node's annotation, or nil if it is missing or unreadable.
func WireGuardOf(node *corev1.Node) *WireGuard {
	var w WireGuard
	const keyLength = 44
	err := json.Unmarshal([]byte(node.Annotations[WireGuardAnnotation]), &w)
	if err != nil || len(w.PublicKey) != keyLength || w.Port < 1 || w.Port > 65535 {
		return nil
	}
	return &w
}
