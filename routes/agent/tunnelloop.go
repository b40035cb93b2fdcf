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
	"github.com/underlay-ccm/underlay/routes"
)

const (
	// handshakeLimit is how long a peer may take to shake hands before it is unreachable.
	handshakeLimit = time.Minute
	// endpointLimit is how long a candidate endpoint is tried. WireGuard sends a handshake
	// every 5 s.
	endpointLimit = 15 * time.Second
	// handshakePoll is the interval of passes while a handshake is missing, because handshakes
	// cause no event, and overduePoll that after handshakeLimit. A missing key comes with an event.
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

// observedDevice is a WireGuard device, and what the agent has observed of it.
type observedDevice struct {
	Tunnels
	peers    map[string]*tunnelPeer // by Node
	received map[string]int64       // in bytes, by public key
	until    time.Time              // when it was used last
}

// tunnelPeer is the progress towards the first handshake with a node.
type tunnelPeer struct {
	key       string    // public; empty while the node has none
	since     time.Time // when it was first planned with this key
	tried     int       // candidate endpoints
	triedAt   time.Time
	connected bool
}

// readTunnels reads the state of the devices. Without the first one, only tunnels are missing.
func (a *Agent) readTunnels(ctx context.Context) (states []TunnelState, err error) {
	for i, d := range a.devices {
		state, err := d.read(ctx, time.Now())
		if err != nil && i == 0 {
			a.warn(ctx, err.Error())
			return []TunnelState{{Problem: err.Error()}}, nil
		}
		if err != nil {
			return nil, err
		}
		states = append(states, state)
	}
	return states, nil
}

func (d *observedDevice) read(ctx context.Context, now time.Time) (TunnelState, error) {
	state, err := d.State(ctx)
	if err != nil {
		return state, err
	}
	state.Unanswered = map[string]bool{}
	for node, p := range d.peers {
		p.connected = p.connected || state.handshaken(p.key)
		state.Unanswered[node] = !p.connected && now.Sub(p.since) >= handshakeLimit
	}
	for _, p := range state.Peers {
		if p.Handshake.Sub(now) > clockTolerance && p.Handshake.After(state.Future) {
			state.Future = p.Handshake
		}
	}
	return state, nil
}

// writeTunnels sets the devices' peers, before there are routes into them.
func (a *Agent) writeTunnels(ctx context.Context, s Situation, d Decision) (err error) {
	if !s.Tunnels.Enabled || s.Devices[0].Problem != "" {
		return nil
	}
	now, next := time.Now(), time.Duration(0)
	for i, device := range a.devices {
		err = errors.Join(err, device.write(ctx, s.Devices[i], d.TunnelPlans[i], now))
	}
	for node, p := range a.devices[0].peers {
		// A new key is not overdue, although the device was read before.
		overdue := s.Devices[0].Unanswered[node] && now.Sub(p.since) >= handshakeLimit
		wait := overduePoll
		switch {
		case p.connected, p.key == "" && overdue:
			continue
		case p.key == "":
			wait = max(handshakePoll, handshakeLimit-now.Sub(p.since))
		case !overdue:
			wait = handshakePoll
		}
		if next == 0 || wait < next {
			next = wait
		}
	}
	if next > 0 {
		a.queue.AddAfter(pass, next)
	}
	return err
}

func (d *observedDevice) write(
	ctx context.Context, state TunnelState, plan TunnelPlan, now time.Time,
) error {
	before := d.peers
	d.peers = make(map[string]*tunnelPeer, len(plan.Peers))
	follow := func(node, key string) *tunnelPeer {
		p := before[node]
		if p == nil || p.key != key {
			p = &tunnelPeer{key: key, since: now, triedAt: now, connected: state.handshaken(key)}
		}
		d.peers[node] = p
		return p
	}
	var changes []TunnelPeer
	for _, peer := range plan.Peers {
		have, exists := state.Peers[peer.PublicKey]
		if change, differs := follow(peer.Node, peer.PublicKey).next(peer, have, exists, now); differs {
			changes = append(changes, change)
		}
	}
	for node := range plan.Keyless {
		follow(node, "")
	}
	if err := d.SetLink(ctx, plan.TunnelDevice); err != nil {
		return err
	}
	return d.SetPeers(ctx, changes)
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
func (a *Agent) pruneTunnels(
	ctx context.Context, s Situation, d Decision, routed bool,
) (err error) {
	if !s.Tunnels.Enabled && routed {
		a.devices = slices.DeleteFunc(a.devices, func(device *observedDevice) bool {
			failed := device.Remove(ctx, true)
			err = errors.Join(err, failed)
			return failed == nil
		})
		return err
	}
	if !s.Tunnels.Enabled || s.Devices[0].Problem != "" {
		return nil
	}
	var kept []*observedDevice
	for i, device := range a.devices {
		state, plan := s.Devices[i], d.TunnelPlans[i]
		err = errors.Join(err, device.prune(ctx, state, plan))
		if i == 0 || device.used(state, plan, time.Now()) {
			kept = append(kept, device)
			continue
		}
		klog.FromContext(ctx).Info("WireGuard device is not used any more; removing it and its key",
			"port", state.Port)
		if failed := device.Remove(ctx, false); failed != nil {
			kept, err = append(kept, device), errors.Join(err, failed)
		}
		a.queue.Add(pass) // publishes the keys that are left
	}
	a.devices = kept
	return err
}

func (d *observedDevice) prune(ctx context.Context, state TunnelState, plan TunnelPlan) error {
	planned := make(map[string]bool, len(plan.Peers))
	for _, p := range plan.Peers {
		planned[p.PublicKey] = true
	}
	var unplanned []TunnelPeer
	for key := range state.Peers {
		if !planned[key] {
			unplanned = append(unplanned, TunnelPeer{PublicKey: key, Remove: true})
		}
	}
	return d.SetPeers(ctx, unplanned)
}

// used reports whether this or another node may still send through the device.
func (d *observedDevice) used(state TunnelState, plan TunnelPlan, now time.Time) bool {
	received := make(map[string]int64, len(state.Peers))
	for key, p := range state.Peers {
		if received[key] = p.Received; p.Received > d.received[key] {
			d.until = now
		}
	}
	if d.received = received; plan.Needed || d.until.IsZero() {
		d.until = now
	}
	return now.Sub(d.until) < retirement
}

// wireGuard returns the annotation of the own Node, nil if there is none to write. Connected is
// not withdrawn: a later failure is a peer's or the network's, and routes into tunnels remain.
func (a *Agent) wireGuard(s Situation, d Decision) *kube.WireGuard {
	own := a.Nodes.Own()
	if own == nil || !s.Tunnels.Enabled || s.Devices[0].Problem != "" {
		return nil
	}
	before, w, kept := kube.WireGuardOf(own), &kube.WireGuard{}, false
	for _, state := range s.Devices {
		w.Keys = append(w.Keys, kube.WireGuardKey{PublicKey: state.PublicKey, Port: state.Port})
		kept = kept || before.Key(state.Port) == state.PublicKey
	}
	reported := kube.ReachOf(own) != "" || s.Tunnels.Phase == routes.RequireTunnels
	w.Connected = reported && (!d.Unconnected || kept && before.Connected)
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
	text, failed := json.Marshal(w)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": node.UID, "annotations": map[string]string{kube.WireGuardAnnotation: string(text)},
	}})
	if err = errors.Join(failed, err); err != nil {
		return fmt.Errorf("encoding the WireGuard annotation: %w", err)
	}
	_, err = s.Client.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("annotating node %s: %w", node.Name, err)
	}
	return nil
}
