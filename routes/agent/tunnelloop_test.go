package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// device is a WireGuard device that shakes hands with peers at some endpoints, and prints itself.
type device struct {
	mu      sync.Mutex
	peers   map[string]TunnelPeerState
	answers map[netip.AddrPort]bool
	sets    int
	err     error
	// port is 51820 if it is not set.
	port    int
	earlier *device
	removed bool
	arrives bool // from every peer, as often as it is looked at
}

func (d *device) State(context.Context) (TunnelState, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, p := range d.peers {
		if d.answers[p.Endpoint] {
			p.Handshake = time.Now()
			if d.arrives {
				p.Received++
			}
			d.peers[key] = p
		}
	}
	state := TunnelState{PublicKey: keyOf("self"), Port: 51820, Link: 9, Peers: maps.Clone(d.peers)}
	if d.port != 0 {
		state.PublicKey, state.Port, state.Link = keyOf(fmt.Sprint("self", d.port)), d.port, 8
	}
	return state, d.err
}

func (d *device) SetLink(context.Context, TunnelDevice) error { return nil }

func (d *device) SetPeers(_ context.Context, peers []TunnelPeer) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range peers {
		if p.Remove {
			delete(d.peers, p.PublicKey)
			continue
		}
		d.sets++
		state := d.peers[p.PublicKey]
		if p.Endpoint.IsValid() {
			state.Endpoint = p.Endpoint
		}
		if !p.Replace {
			p.AllowedIPs = slices.Concat(p.AllowedIPs, state.AllowedIPs)
		}
		slices.SortFunc(p.AllowedIPs, netip.Prefix.Compare)
		state.AllowedIPs = slices.Compact(p.AllowedIPs)
		state.Keepalive = p.Keepalive
		// An allowed IP belongs to one peer.
		for key, other := range d.peers {
			other.AllowedIPs = slices.DeleteFunc(slices.Clone(other.AllowedIPs), func(a netip.Prefix) bool {
				return slices.Contains(state.AllowedIPs, a)
			})
			d.peers[key] = other
		}
		d.peers[p.PublicKey] = state
	}
	return nil
}

func (d *device) Remove(context.Context, bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.removed = true
	return nil
}

func (d *device) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lines []string
	for key, p := range d.peers {
		lines = append(lines, fmt.Sprintf("%s at %s, keepalive %s: %v", strings.TrimRight(key, " ="), p.Endpoint, p.Keepalive, p.AllowedIPs))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// object returns a kubeNode with a Node's addresses, reach and key.
func object(n *kube.Node) *corev1.Node {
	o := kubeNode(n.Name)
	for _, p := range n.PodCIDRs {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, p.String())
	}
	for kind, addrs := range map[corev1.NodeAddressType][]netip.Addr{
		corev1.NodeInternalIP: n.InternalIPs, corev1.NodeExternalIP: n.ExternalIPs,
	} {
		for _, a := range addrs {
			o.Status.Addresses = append(o.Status.Addresses, corev1.NodeAddress{
				Type: kind, Address: a.String(),
			})
		}
	}
	o.Annotations = map[string]string{kube.ReachAnnotation: string(n.Reach)}
	if n.WireGuard != nil {
		text, err := json.Marshal(n.WireGuard)
		if err != nil {
			panic(err)
		}
		o.Annotations[kube.WireGuardAnnotation] = string(text)
	}
	return o
}

// withDevice runs a test with the agent of a machine with tunnels.
func withDevice(t *testing.T, d *device, s Situation, test func(*fixture)) {
	for each := d; each != nil; each = each.earlier {
		each.peers = map[string]TunnelPeerState{}
	}
	nodes := make([]*corev1.Node, len(s.Nodes))
	for i, n := range s.Nodes {
		nodes[i] = object(n)
	}
	nodes[0].Annotations = map[string]string{kube.ReachAnnotation: string(s.Nodes[0].Reach)}
	testMachine(t, s, d, nodes, test)
}

func (w *fixture) wireGuard() string {
	w.t.Helper()
	node, err := w.client.CoreV1().Nodes().Get(w.t.Context(), "self", metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return node.Annotations[kube.WireGuardAnnotation]
}

// A node publishes its key at once, and that it is connected once every Ready node has shaken
// hands. Keepalives end with the handshake.
func TestANodeReportsThatItsTunnelsWork(t *testing.T) {
	d := &device{answers: map[netip.AddrPort]bool{}}
	withDevice(t, d, tunneled(routes.NoRoom, plain()), func(w *fixture) {
		if got, want := d.String(), "plain at 10.0.0.3:51820, keepalive 5s: [10.0.0.3/32 10.244.2.0/24]"; got != want {
			t.Errorf("the device has\n%s\nwant\n%s", got, want)
		}
		if got := w.wireGuard(); got != fmt.Sprintf(`{"keys":[{"publicKey":%q,"port":51820}]}`, keyOf("self")) {
			t.Errorf("published: %s", got)
		}
		d.answer("10.0.0.3:51820")
		time.Sleep(10 * time.Second)
		w.rest()
		if got := w.wireGuard(); !strings.Contains(got, `"connected":true`) {
			t.Errorf("published: %s", got)
		}
		if got, want := d.String(), "plain at 10.0.0.3:51820, keepalive 0s: [10.0.0.3/32 10.244.2.0/24]"; got != want {
			t.Errorf("the device has\n%s\nwant\n%s", got, want)
		}
		sets := d.sets
		time.Sleep(time.Hour)
		w.rest()
		if d.sets != sets {
			t.Errorf("%d writes in an hour at rest", d.sets-sets)
		}
	})
}

func (d *device) answer(at string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[netip.MustParseAddrPort(at)] = true
}

// A Ready node that never shakes hands is reported, and does not keep this one from joining.
func TestANodeThatNeverShakesHands(t *testing.T) {
	d := &device{answers: map[netip.AddrPort]bool{}}
	withDevice(t, d, tunneled(routes.NoRoom, plain(), noRoom()), func(w *fixture) {
		d.answer("10.0.0.4:51820")
		time.Sleep(handshakeLimit / 2)
		w.rest()
		if strings.Contains(w.wireGuard(), "connected") {
			t.Errorf("published: %s", w.wireGuard())
		}
		time.Sleep(handshakeLimit)
		w.rest()
		if !strings.Contains(w.wireGuard(), "connected") {
			t.Errorf("published: %s", w.wireGuard())
		}
		if c := w.condition(PeersReachable); c.Status != corev1.ConditionFalse || !strings.Contains(c.Message, "plain: no WireGuard handshake") {
			t.Errorf("PeersReachable: %+v", c)
		}
	})
}

// Candidate endpoints are tried in turn; an endpoint that works is kept, also one that only the
// device has observed.
func TestEndpointsAreTriedInTurn(t *testing.T) {
	far := outside()
	far.ExternalIPs = []netip.Addr{addr("198.51.100.5")}
	d := &device{answers: map[netip.AddrPort]bool{}}
	withDevice(t, d, tunneled("", far), func(w *fixture) {
		d.answer("198.51.100.5:51820")
		time.Sleep(time.Minute)
		w.rest()
		if got := d.String(); !strings.HasPrefix(got, "outside at 198.51.100.5:51820, keepalive 0s") {
			t.Errorf("the device has %s", got)
		}
		d.answer("192.0.2.200:4000")
		d.mu.Lock()
		roamed := d.peers[keyOf("outside")]
		roamed.Endpoint = netip.MustParseAddrPort("192.0.2.200:4000")
		d.peers[keyOf("outside")] = roamed
		d.mu.Unlock()
		time.Sleep(time.Hour)
		w.rest()
		if got := d.String(); !strings.HasPrefix(got, "outside at 192.0.2.200:4000") {
			t.Errorf("the device has %s", got)
		}
	})
}

// A podCIDR that moves to another Node moves in the device, and the peer of a Node that is deleted
// is removed.
func TestPeersFollowNodes(t *testing.T) {
	d := &device{answers: map[netip.AddrPort]bool{}}
	withDevice(t, d, tunneled("", noRoom()), func(w *fixture) {
		next := noRoom()
		next.Name, next.InternalIPs, next.WireGuard = "next", []netip.Addr{addr("10.0.0.8")}, wireGuardOf("next")
		w.remove("no-room")
		w.put(object(next))
		time.Sleep(10 * time.Second)
		w.rest()
		if got, want := d.String(), "next at 10.0.0.8:51820, keepalive 5s: [10.0.0.8/32 10.244.3.0/24]"; got != want {
			t.Errorf("the device has\n%s\nwant\n%s", got, want)
		}
	})
}

// A machine with another port has two devices, with keys of their own. A node is reached by the
// earlier one until it has shaken hands with the other, and the earlier one is removed when no
// Ready node needs it and nothing arrives there any more.
func TestKeysAreReplaced(t *testing.T) {
	earlier := &device{port: 4000, arrives: true, answers: map[netip.AddrPort]bool{netip.MustParseAddrPort("10.0.0.3:4000"): true}}
	d := &device{answers: map[netip.AddrPort]bool{}, earlier: earlier}
	peer := plain()
	peer.WireGuard.Keys = []kube.WireGuardKey{{PublicKey: keyOf("before"), Port: 4000}}
	s := tunneled(routes.NoRoom, peer)
	s.Links = append(s.Links, Link{Index: 8, Name: TunnelLink(4000), Up: true, MTU: 1370})
	withDevice(t, d, s, func(w *fixture) {
		expect := func(when, route, keys string) {
			t.Helper()
			w.rest()
			if got := w.machine.String(); !strings.Contains(got, route) {
				t.Errorf("%s: routes\n%s\nwant %s", when, got, route)
			}
			if got := w.wireGuard(); !strings.HasPrefix(got, keys) {
				t.Errorf("%s: published %s, want %s", when, got, keys)
			}
		}
		const to, by = "10.244.2.0/24 on interface ", `{"keys":[{"publicKey":"%s","port":51820}%s]`
		both := fmt.Sprintf(by, keyOf("self"), fmt.Sprintf(`,{"publicKey":%q,"port":4000}`, keyOf("self4000")))
		time.Sleep(10 * time.Minute)
		expect("the peer has no new key", to+"8", both)

		peer.WireGuard.Keys = append([]kube.WireGuardKey{{PublicKey: keyOf("after"), Port: 51820}}, peer.WireGuard.Keys...)
		w.put(object(peer))
		time.Sleep(10 * time.Minute)
		expect("no handshake", to+"8", both)
		if c := w.condition(PeersReachable); c.Reason != ReasonAtRisk || !strings.Contains(c.Message, "plain: at port 4000") {
			t.Errorf("PeersReachable: %+v", c)
		}

		d.answer("10.0.0.3:51820")
		time.Sleep(overduePoll)
		expect("a handshake", to+"9", both)
		time.Sleep(10 * time.Minute)
		if expect("packets arrive", to+"9", both); earlier.removed {
			t.Error("a device is removed that another node uses")
		}

		earlier.mu.Lock()
		earlier.arrives = false
		earlier.mu.Unlock()
		time.Sleep(3 * time.Minute)
		if expect("silence", to+"9", fmt.Sprintf(by, keyOf("self"), "")); !earlier.removed || d.removed {
			t.Errorf("removed: earlier %v, current %v", earlier.removed, d.removed)
		}
	})
}

// After a clock was set back, the latest handshake is in the future.
func TestAClockThatWasSetBack(t *testing.T) {
	d := &device{answers: map[netip.AddrPort]bool{}}
	withDevice(t, d, tunneled("", noRoom()), func(w *fixture) {
		for _, c := range []struct {
			by     time.Duration
			reason string
		}{{clockTolerance - time.Second, reasonAllReachable}, {time.Hour, ReasonAtRisk}} {
			d.mu.Lock()
			p := d.peers[keyOf("no-room")]
			p.Handshake = time.Now().Add(c.by)
			d.peers[keyOf("no-room")] = p
			d.mu.Unlock()
			time.Sleep(2 * time.Minute)
			w.rest()
			if got := w.condition(PeersReachable); got.Reason != c.reason || strings.Contains(got.Message, "clock was set back") != (c.reason == ReasonAtRisk) {
				t.Errorf("set back by %s: %+v", c.by, got)
			}
		}
	})
}
