package kube

import (
	"encoding/json"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/routes"
)

const (
	// ReachAnnotation marks a Node with podCIDRs that no plain route can lead to. The route
	// controller writes it, and only a client deletes it, so that tunnels don't flap.
	ReachAnnotation = "underlay.dev/reach"
	// WireGuardAnnotation has a [WireGuard]. The agent writes it to its own Node.
	WireGuardAnnotation = "underlay.dev/wireguard"
)

// ReachOf returns the Node's reach. A value that is not defined counts as none.
func ReachOf(node *corev1.Node) routes.Reach {
	switch r := routes.Reach(node.Annotations[ReachAnnotation]); r {
	case routes.NoRoom, routes.NoNetwork:
		return r
	default:
		return ""
	}
}

// WireGuard is how other Nodes connect to a Node's WireGuard devices.
type WireGuard struct {
	// Keys are those of its devices. After the first follow those that are being replaced.
	Keys []WireGuardKey `json:"keys"`
	// Connected means that the tunnels to all Ready Nodes have worked.
	Connected bool `json:"connected,omitempty"`
}

// WireGuardKey is the public key of a device, 32 bytes in base64, and its UDP port.
type WireGuardKey struct {
	PublicKey string `json:"publicKey"`
	Port      int    `json:"port"`
}

// Key returns the public key of the device with the port, empty if there is none.
func (w *WireGuard) Key(port int) string {
	if w != nil {
		for _, k := range w.Keys {
			if k.Port == port {
				return k.PublicKey
			}
		}
	}
	return ""
}

// Equal reports whether both are the same, or nil.
func (w *WireGuard) Equal(o *WireGuard) bool {
	if w == nil || o == nil {
		return w == o
	}
	return w.Connected == o.Connected && slices.Equal(w.Keys, o.Keys)
}

// WireGuardOf returns the Node's annotation, or nil if it is missing or unreadable.
func WireGuardOf(node *corev1.Node) *WireGuard {
	var w WireGuard
	const keyLength, most = 44, 4
	err := json.Unmarshal([]byte(node.Annotations[WireGuardAnnotation]), &w)
	invalid := func(k WireGuardKey) bool {
		return len(k.PublicKey) != keyLength || k.Port < 1 || k.Port > 65535
	}
	if err != nil || len(w.Keys) == 0 || len(w.Keys) > most || slices.ContainsFunc(w.Keys, invalid) {
		return nil
	}
	return &w
}
