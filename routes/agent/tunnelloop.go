package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/kube"
)

const (
	// handshakeLimit is how long a peer may take to shake hands before it is unreachable.
	handshakeLimit = time.Minute
	// endpointLimit is how long a candidate endpoint is tried. WireGuard sends a handshake
	// every 5 s.
	endpointLimit = 15 * time.Second
	// handshakePoll is the interval of looks for handshakes, which cause no event, and
	// overduePoll that after handshakeLimit.
	handshakePoll = 2 * time.Second
	overduePoll   = 20 * time.Second
	// sessionEnd is the age of a handshake after which an endpoint may be changed: a session
	// lasts 180 s (WireGuard, section 6.1).
	sessionEnd = 3 * time.Minute
	// clockTolerance is how far a clock may be set back without an effect: the next handshake that
	// this machine begins has a later time even so (WireGuard, section 6.2: after 120 s).
	clockTolerance = 2 * time.Minute
	// retirement is how long an earlier device must receive nothing before it is removed.
	retirement = time.Minute
)

// retiring is an earlier device, and how much it has received from its peers until when.
type retiring struct {
	Tunnels
	received map[string]int64
	until    time.Time
}

// peerOf identifies a peer by its device's port and its Node.
type peerOf struct {
	port int
	node string
}

// tunnelPeer is the progress towards the first handshake with a node.
type tunnelPeer struct {
	key       string    // public; empty while the node has none
	since     time.Time // when it was first planned with this key
	tried     int       // candidate endpoints
	triedAt   time.Time
	several   bool // candidate endpoints
	connected bool
}

// readTunnels reads the state of the devices. Without the first one, only tunnels are missing.
func (a *Agent) readTunnels(ctx context.Context, s *Situation) (err error) {
	if s.Tunnel, err = a.readDevice(ctx, a.Device); err != nil {
		a.warn(ctx, err.Error())
		s.Tunnel = TunnelState{Problem: err.Error()}
		return nil
	}
	for _, r := range a.retiring {
		state, err := a.readDevice(ctx, r)
		if err != nil {
			return err
		}
		s.Retiring = append(s.Retiring, state)
	}
	return nil
}

func (a *Agent) readDevice(ctx context.Context, device Tunnels) (TunnelState, error) {
	state, err := device.State(ctx)
	state.Unanswered = map[string]bool{}
	now := time.Now()
	for peer, p := range a.tunnelPeers {
		if peer.port == state.Port && err == nil {
			p.connected = p.connected || state.handshaken(p.key)
			state.Unanswered[peer.node] = !p.connected && now.Sub(p.since) >= handshakeLimit
		}
	}
	for _, p := range state.Peers {
		if p.Handshake.Sub(now) > clockTolerance && p.Handshake.After(state.Future) {
			state.Future = p.Handshake
		}
	}
	return state, err
}

// writeTunnels sets the devices' peers, before there are routes into them.
func (a *Agent) writeTunnels(ctx context.Context, s Situation, d Decision) error {
	if !s.Tunnels.Enabled || s.Tunnel.Problem != "" {
		return nil
	}
	progress := make(map[peerOf]*tunnelPeer, len(d.Tunnels.Peers))
	err := a.writeDevice(ctx, a.Device, s.Tunnel, d.Tunnels, progress)
	for i, r := range a.retiring {
		err = errors.Join(err, a.writeDevice(ctx, r, s.Retiring[i], d.Retiring[i], progress))
	}
	a.tunnelPeers = progress
	a.queue.AddAfter(handshakes, handshakePoll)
	return err
}

func (a *Agent) writeDevice(
	ctx context.Context, device Tunnels, state TunnelState, plan TunnelPlan,
	progress map[peerOf]*tunnelPeer,
) error {
	if err := device.SetLink(ctx, plan.TunnelDevice); err != nil {
		return err
	}
	now := time.Now()
	follow := func(node, key string) *tunnelPeer {
		at := peerOf{state.Port, node}
		p := a.tunnelPeers[at]
		if p == nil || p.key != key {
			p = &tunnelPeer{key: key, since: now, triedAt: now, connected: state.handshaken(key)}
		}
		progress[at] = p
		return p
	}
	var changes []TunnelPeer
	for _, peer := range plan.Peers {
		have, exists := state.Peers[peer.PublicKey]
		if change, differs := follow(peer.Node, peer.PublicKey).next(peer, have, exists, now); differs {
			changes = append(changes, change)
		}
	}
	for _, node := range plan.Keyless {
		follow(node, "")
	}
	return device.SetPeers(ctx, changes)
}

// next returns the peer to set, and reports whether it differs from the existing one. A working
// endpoint is kept: the peer may be behind NAT, where only the device observes its address.
// Until the first handshake, keepalives make the device try.
func (p *tunnelPeer) next(
	want TunnelPeer, have TunnelPeerState, exists bool, now time.Time,
) (TunnelPeer, bool) {
	const try = 5 * time.Second
	if !p.connected {
		want.Keepalive = try
	}
	allowed := slices.SortedFunc(slices.Values(want.AllowedIPs), netip.Prefix.Compare)
	want.Replace = slices.ContainsFunc(have.AllowedIPs, func(p netip.Prefix) bool {
		return !slices.Contains(allowed, p)
	})
	works := now.Sub(have.Handshake) < sessionEnd ||
		slices.Contains(want.Endpoints, have.Endpoint) && p.connected
	p.several = len(want.Endpoints) > 1
	if len(want.Endpoints) > 0 && !works {
		if exists && now.Sub(p.triedAt) >= endpointLimit {
			p.tried, p.triedAt = p.tried+1, now
		}
		want.Endpoint = want.Endpoints[p.tried%len(want.Endpoints)]
	}
	moved := want.Endpoint.IsValid() && want.Endpoint != have.Endpoint
	return want,
		!exists || moved || want.Keepalive != have.Keepalive || !slices.Equal(allowed, have.AllowedIPs)
}

// pruneTunnels removes the peers that are not in the plans, after the routes to them, and devices
// that are not used any more. Without tunnels, it removes all once all plain routes exist.
func (a *Agent) pruneTunnels(ctx context.Context, s Situation, d Decision, routed bool) error {
	if !s.Tunnels.Enabled && a.Device != nil && !a.removed && routed {
		_, err := a.Device.Remove(ctx, true)
		for _, r := range a.retiring {
			_, other := r.Remove(ctx, true)
			err = errors.Join(err, other)
		}
		a.removed = err == nil
		return err
	}
	if !s.Tunnels.Enabled || s.Tunnel.Problem != "" {
		return nil
	}
	err := pruneDevice(ctx, a.Device, s.Tunnel, d.Tunnels)
	var kept []*retiring
	for i, r := range a.retiring {
		err = errors.Join(err, pruneDevice(ctx, r, s.Retiring[i], d.Retiring[i]))
		if r.used(s.Retiring[i], d.Retiring[i], time.Now()) {
			kept = append(kept, r)
			continue
		}
		klog.FromContext(ctx).Info("WireGuard device is not used any more; removing it and its key",
			"port", s.Retiring[i].Port)
		if _, failed := r.Remove(ctx, false); failed != nil {
			kept, err = append(kept, r), errors.Join(err, failed)
		}
		a.queue.Add(pass) // publishes the keys that are left
	}
	a.retiring = kept
	return err
}

func pruneDevice(ctx context.Context, device Tunnels, state TunnelState, plan TunnelPlan) error {
	planned := make(map[string]bool, len(plan.Peers))
	for _, p := range plan.Peers {
		planned[p.PublicKey] = true
	}
	var gone []string
	for key := range state.Peers {
		if !planned[key] {
			gone = append(gone, key)
		}
	}
	slices.Sort(gone)
	return device.RemovePeers(ctx, gone)
}

// used reports whether this or another node may still send through the device.
func (r *retiring) used(state TunnelState, plan TunnelPlan, now time.Time) bool {
	received := make(map[string]int64, len(state.Peers))
	for key, p := range state.Peers {
		if received[key] = p.Received; p.Received > r.received[key] {
			r.until = now
		}
	}
	if r.received = received; plan.Needed || r.until.IsZero() {
		r.until = now
	}
	return now.Sub(r.until) < retirement
}

// awaitHandshakes looks whether nodes have shaken hands, and triggers a pass if one has, if one
// is overdue, or if another endpoint is to be tried.
func (a *Agent) awaitHandshakes(ctx context.Context) error {
	now, waiting, due, next := time.Now(), false, false, overduePoll
	var state TunnelState
	for peer, p := range a.tunnelPeers {
		if p.connected || peer.port != a.Settings.Tunnels.Port {
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
		if age < handshakeLimit {
			next = handshakePoll
		}
		overdue := age >= handshakeLimit && age < handshakeLimit+2*handshakePoll
		due = due || overdue || state.handshaken(p.key) ||
			p.several && now.Sub(p.triedAt) >= endpointLimit
	}
	switch {
	case due:
		a.queue.Add(pass) // which looks again later
	case waiting:
		a.queue.AddAfter(handshakes, next)
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
	w := &kube.WireGuard{}
	kept := false
	for _, state := range s.Devices() {
		w.Keys = append(w.Keys, kube.WireGuardKey{PublicKey: state.PublicKey, Port: state.Port})
		kept = kept || before.Key(state.Port) == state.PublicKey
	}
	reported := kube.ReachOf(own) != "" || s.Tunnels.Phase == Require
	w.Connected = reported && (d.Tunnels.Connected() || kept && before.Connected)
	if before.Equal(w) {
		return nil
	}
	return w
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
	_, err = s.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotating node %s: %w", node.Name, err)
	}
	return nil
}
