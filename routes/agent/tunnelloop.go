package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	// handshakeLimit is how long a peer may take to shake hands before it is unreachable.
	handshakeLimit = time.Minute
	// endpointLimit is how long a candidate endpoint is tried. WireGuard sends a handshake
	// every 5 s.
	endpointLimit = 15 * time.Second
	// handshakePoll is the interval of looks for handshakes, which cause no event.
	handshakePoll = 2 * time.Second
	// sessionEnd is the age of a handshake after which an endpoint may be changed: a session
	// lasts 180 s (WireGuard, section 6.1).
	sessionEnd = 3 * time.Minute
)

// tunnelPeer is the progress towards the first handshake with a node.
type tunnelPeer struct {
	key       string    // public; empty while the node has none
	since     time.Time // when it was first planned with this key
	tried     int       // candidate endpoints
	triedAt   time.Time
	several   bool // candidate endpoints
	connected bool
}

// readTunnels returns the device's state. Without a device, only tunnels are missing.
func (a *Agent) readTunnels(ctx context.Context) TunnelState {
	state, err := a.Device.State(ctx)
	if err != nil {
		a.warn(ctx, err.Error())
		return TunnelState{Problem: err.Error()}
	}
	state.Unanswered = map[string]bool{}
	now := time.Now()
	for node, p := range a.tunnelPeers {
		p.connected = p.connected || !state.Peers[p.key].Handshake.IsZero()
		state.Unanswered[node] = !p.connected && now.Sub(p.since) >= handshakeLimit
	}
	return state
}

// writeTunnels sets the device's peers, before there are routes into it.
func (a *Agent) writeTunnels(ctx context.Context, s Situation, plan TunnelPlan) error {
	if !s.Tunnels.Enabled || s.Tunnel.Problem != "" {
		return nil
	}
	if err := a.Device.SetLink(ctx, plan.TunnelDevice); err != nil {
		return err
	}
	now := time.Now()
	progress := make(map[string]*tunnelPeer, len(plan.Peers))
	follow := func(node, key string) *tunnelPeer {
		p := a.tunnelPeers[node]
		if p == nil || p.key != key {
			p = &tunnelPeer{key: key, since: now, triedAt: now, connected: !s.Tunnel.Peers[key].Handshake.IsZero()}
		}
		progress[node] = p
		return p
	}
	var changes []TunnelPeer
	for _, peer := range plan.Peers {
		have, exists := s.Tunnel.Peers[peer.PublicKey]
		if change, differs := follow(peer.Node, peer.PublicKey).next(peer, have, exists, now); differs {
			changes = append(changes, change)
		}
	}
	for _, node := range plan.Keyless {
		follow(node, "")
	}
	a.tunnelPeers = progress
	a.queue.AddAfter(handshakes, handshakePoll)
	return a.Device.SetPeers(ctx, changes)
}

// next returns the peer to set, and reports whether it differs from the existing one. A working
// endpoint is kept: the peer may be behind NAT, where only the device observes its address.
// Until the first handshake, keepalives make the device try.
func (p *tunnelPeer) next(want TunnelPeer, have TunnelPeerState, exists bool, now time.Time) (TunnelPeer, bool) {
	const try = 5 * time.Second
	if !p.connected {
		want.Keepalive = try
	}
	allowed := slices.SortedFunc(slices.Values(want.AllowedIPs), netip.Prefix.Compare)
	want.Replace = slices.ContainsFunc(have.AllowedIPs, func(p netip.Prefix) bool { return !slices.Contains(allowed, p) })
	works := now.Sub(have.Handshake) < sessionEnd || slices.Contains(want.Endpoints, have.Endpoint) && p.connected
	p.several = len(want.Endpoints) > 1
	if len(want.Endpoints) > 0 && !works {
		if exists && now.Sub(p.triedAt) >= endpointLimit {
			p.tried, p.triedAt = p.tried+1, now
		}
		want.Endpoint = want.Endpoints[p.tried%len(want.Endpoints)]
	}
	moved := want.Endpoint.IsValid() && want.Endpoint != have.Endpoint
	return want, !exists || moved || want.Keepalive != have.Keepalive || !slices.Equal(allowed, have.AllowedIPs)
}

// pruneTunnels removes the peers that are not in the plan, after the routes to them. Without
// tunnels, it removes the device once all plain routes exist.
func (a *Agent) pruneTunnels(ctx context.Context, s Situation, plan TunnelPlan, routed bool) error {
	if !s.Tunnels.Enabled && a.Device != nil && !a.removed && routed {
		_, err := a.Device.Remove(ctx)
		a.removed = err == nil
		return err
	}
	if !s.Tunnels.Enabled || s.Tunnel.Problem != "" {
		return nil
	}
	var gone []string
	for key := range s.Tunnel.Peers {
		if !slices.ContainsFunc(plan.Peers, func(p TunnelPeer) bool { return p.PublicKey == key }) {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	return a.Device.RemovePeers(ctx, gone)
}

// awaitHandshakes looks whether nodes have shaken hands, and triggers a pass if one has, if one
// is overdue, or if another endpoint is to be tried.
func (a *Agent) awaitHandshakes(ctx context.Context) error {
	now, waiting, due := time.Now(), false, false
	var state TunnelState
	for _, p := range a.tunnelPeers {
		if p.connected {
			continue
		}
		if !waiting {
			var err error
			if state, err = a.Device.State(ctx); err != nil {
				return err
			}
		}
		waiting = true
		age := now.Sub(p.since)
		overdue := age >= handshakeLimit && age < handshakeLimit+2*handshakePoll
		due = due || overdue || !state.Peers[p.key].Handshake.IsZero() || p.several && now.Sub(p.triedAt) >= endpointLimit
	}
	switch {
	case due:
		a.queue.Add(pass) // which looks again later
	case waiting:
		a.queue.AddAfter(handshakes, handshakePoll)
	}
	return nil
}

// wireGuard returns the annotation of the own Node, nil if there is none to write. Connected is
// not withdrawn: a later failure is a peer's or the network's, and routes into tunnels remain.
func (a *Agent) wireGuard(s Situation, d Decision) *kube.WireGuard {
	if !s.Tunnels.Enabled || s.Tunnel.Problem != "" {
		return nil
	}
	own := a.Nodes.Own()
	if own == nil {
		return nil
	}
	before := kube.WireGuardOf(own)
	w := kube.WireGuard{PublicKey: s.Tunnel.PublicKey, Port: s.Tunnels.Port}
	reported := kube.ReachOf(own) != "" || s.Tunnels.Phase == Require
	w.Connected = reported && (d.Tunnels.Connected() || before != nil && before.Connected && before.PublicKey == w.PublicKey)
	if before != nil && *before == w {
		return nil
	}
	return &w
}

// writeWireGuard annotates the own Node. The status may be written, and its metadata with it.
func (s *status) writeWireGuard(ctx context.Context, node *corev1.Node, w *kube.WireGuard) error {
	if w == nil {
		return nil
	}
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encoding the WireGuard annotation: %w", err)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "annotations": map[string]string{kube.WireGuardAnnotation: string(text)},
	}})
	if err != nil {
		return fmt.Errorf("encoding the WireGuard annotation: %w", err)
	}
	_, err = s.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotating node %s: %w", node.Name, err)
	}
	return nil
}
