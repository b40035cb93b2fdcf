package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// TunnelLinks matches the names of all WireGuard devices.
const TunnelLinks = "underlay-*"

// TunnelLink returns the name of the WireGuard device with the port.
func TunnelLink(port int) string { return fmt.Sprintf("underlay-%d", port) }

// tunnelOverhead is what WireGuard adds to a packet in IPv6; 20 bytes less in IPv4.
const tunnelOverhead = 80

// leastMTUIPv6 is IPv6's minimum MTU (RFC 8200, section 5); below it a device has no IPv6.
const leastMTUIPv6 = 1280

// keepalive keeps the entry of a NAT gateway, which may end after 30 s without a packet.
const keepalive = 25 * time.Second

// Tunnels is a WireGuard device of the machine.
type Tunnels interface {
	// State returns the device's state. It creates the device if it is missing.
	State(ctx context.Context) (TunnelState, error)
	// SetLink sets the device's MTU and addresses, and the routes into it that only pods use.
	SetLink(ctx context.Context, link TunnelDevice) error
	// SetPeers adds, changes or removes peers. It keeps the endpoint of one without an Endpoint.
	SetPeers(ctx context.Context, peers []TunnelPeer) error
	// Remove deletes the device, if it exists, and its key. The last one's rules are deleted too.
	Remove(ctx context.Context, last bool) error
}

// TunnelDevice is the desired state of the device without its peers.
type TunnelDevice struct {
	MTU int
	// Addrs are the first addresses of PodCIDRs: the node's packets to pods have them as their
	// source, so that replies are routed back into the tunnel.
	Addrs []netip.Prefix
	// PodCIDRs are the node's own. Packets from there to NodeAddrs, the addresses of other
	// nodes, are routed into tunnels; those of the node itself are not.
	PodCIDRs, NodeAddrs []netip.Prefix
}

// TunnelState is the state of a WireGuard device.
type TunnelState struct {
	PublicKey string
	Port      int
	Link      int
	// Peers are by public key.
	Peers map[string]TunnelPeerState
	// Problem is why there is no device; empty otherwise.
	Problem string
	// Unanswered has the nodes without a handshake for handshakeLimit.
	Unanswered map[string]bool
	// Future is the latest handshake if the machine's clock has been set back since; else zero.
	Future time.Time
}

// handshaken reports whether the peer with the key has shaken hands.
func (s TunnelState) handshaken(key string) bool { return !s.Peers[key].Handshake.IsZero() }

// TunnelPeerState is a peer as it is set in the device.
type TunnelPeerState struct {
	Endpoint   netip.AddrPort
	Handshake  time.Time // the latest; zero: none
	AllowedIPs []netip.Prefix
	Keepalive  time.Duration
	// Received and Sent are in bytes, since the device exists.
	Received, Sent int64
}

// TunnelPeer is another node's end of a tunnel.
type TunnelPeer struct {
	Node      string
	PublicKey string
	// Endpoints are candidates by preference, Endpoint is the one to set, if any.
	Endpoints []netip.AddrPort
	Endpoint  netip.AddrPort
	// AllowedIPs are the node's podCIDRs, and its addresses if they are reached by the tunnel.
	AllowedIPs []netip.Prefix
	// Replace removes other allowed IPs, and for a moment all of them: packets are lost then.
	Replace   bool
	Keepalive time.Duration // 0: none
	Remove    bool
}

// TunnelPlan is the desired state of a device.
type TunnelPlan struct {
	TunnelDevice
	Peers []TunnelPeer // by node name
	// Keyless has the nodes that can't be peers yet.
	Keyless map[string]bool
	// Needed means that a Ready node is connected by this device.
	Needed bool
}

// TunnelSettings are constant while an agent runs.
type TunnelSettings struct {
	Enabled bool
	Port    int // UDP
	// Phase is set if tunnels connect all nodes; otherwise they connect those without a route.
	Phase routes.TunnelPhase
	// Server has the addresses of the API server, which are never reached by a tunnel.
	Server []netip.Addr
}

// checkDevice reports the problems of the current device.
func (d *decider) checkDevice(current TunnelState) {
	if current.Problem != "" && (d.Node.Reach != "" || d.Tunnels.Phase == routes.RequireTunnels) {
		d.Faults = append(d.Faults, current.Problem)
	}
	if at := current.Future; !at.IsZero() {
		d.warn("this machine's clock was set back: a WireGuard handshake was at %s, which is in the future, and other nodes refuse handshakes of this machine until then; use NTP, and if the clock is right now, delete /var/lib/underlay/wireguard-*.key and restart underlay-agent", at.UTC().Format(time.RFC3339))
	}
}

// tunneled reports whether a tunnel connects this machine with the node.
func (d *decider) tunneled(n *kube.Node) bool {
	return n.Name != d.Self && (d.Tunnels.Phase != "" || d.unrouted(n))
}

// unrouted reports whether no plain route connects this machine with the node.
func (d *decider) unrouted(n *kube.Node) bool {
	return routes.Tunneled(d.Node.Reach, n.Reach)
}

// device returns the index of the device to use for the node: the first that has shaken hands with
// it, else the first for which it has a key. So a node whose port and key change is reached by the
// earlier device until both ends have shaken hands by the new one, and no packet is lost.
func (d *decider) device(n *kube.Node) (at int, found bool) {
	for i, state := range d.Devices {
		key := n.WireGuard.Key(state.Port)
		switch {
		case state.handshaken(key):
			return i, true
		case key != "" && !found:
			at, found = i, true
		}
	}
	return at, found
}

// tunnels adds the peers, and the routes into tunnels. It returns the podCIDRs to which no plain
// route may lead. A node outside the network reaches the private addresses of the nodes in it by
// the tunnel as well.
func (d *decider) tunnels() (encrypted map[netip.Prefix]bool) {
	if !d.Tunnels.Enabled {
		return nil
	}
	mtu, dsts := d.smallestMTU()-tunnelOverhead, map[string][]netip.Prefix{}
	for _, ipv4 := range []bool{true, false} {
		mode := d.Modes.Of(ipv4)
		if mode == routes.Unrouted || d.Tunnels.Phase == "" && mode != routes.ByCloud {
			continue
		}
		if !ipv4 && mtu > 0 && mtu < leastMTUIPv6 {
			d.fault("WireGuard tunnels carry packets of %d bytes, and IPv6 needs %d; raise the MTU of all uplinks to %d or more, or remove the IPv6 pools", mtu, leastMTUIPv6, leastMTUIPv6+tunnelOverhead)
		}
		for i := range d.TunnelPlans {
			plan := &d.TunnelPlans[i]
			plan.MTU = mtu
			for _, p := range d.Node.PodCIDRs {
				if p.Addr().Is4() == ipv4 {
					plan.PodCIDRs = append(plan.PodCIDRs, p)
					plan.Addrs = append(plan.Addrs, host(p.Addr().Next()))
				}
			}
		}
		d.addTunnelDestinations(ipv4, dsts)
	}
	d.keyOwners = owners(d.Nodes, publicKeys)
	d.addressOwners = owners(d.Nodes, func(n *kube.Node) []netip.Addr { return n.InternalIPs })
	encrypted, d.TunnelPlans[0].Keyless = map[netip.Prefix]bool{}, map[string]bool{}
	for _, n := range d.Nodes {
		if !d.tunneled(n) || len(dsts[n.Name]) == 0 {
			continue
		}
		at, problem := d.addPeers(n, dsts[n.Name])
		// Whether packets to the node's pods are sent through the tunnel.
		enters := d.unrouted(n) || d.Tunnels.Phase == routes.RequireTunnels ||
			problem == "" && d.Tunnels.Phase == routes.PreferTunnels &&
				d.Devices[at].handshaken(n.WireGuard.Key(d.Devices[at].Port))
		for _, dst := range dsts[n.Name] {
			encrypted[dst] = enters
		}
		if problem != "" {
			d.withoutTunnel(n, dsts[n.Name], enters, problem)
			continue
		}
		if !enters {
			continue
		}
		for _, dst := range slices.Concat(dsts[n.Name], d.privateAddresses(n, dsts[n.Name])) {
			d.add(toward(dst, netip.Addr{}, d.Devices[at].Link), n.Name,
				"a WireGuard tunnel connects it: "+d.whyTunneled(n))
		}
		plan := &d.TunnelPlans[at]
		plan.NodeAddrs = append(plan.NodeAddrs, d.nodeAddresses(n, dsts[n.Name])...)
	}
	for _, plan := range d.TunnelPlans {
		slices.SortFunc(plan.Peers, func(a, b TunnelPeer) int { return cmp.Compare(a.Node, b.Node) })
	}
	return encrypted
}

// withoutTunnel records that a node can't be a peer. Existing routes into its tunnel are kept.
func (d *decider) withoutTunnel(n *kube.Node, dsts []netip.Prefix, enters bool, problem string) {
	d.TunnelPlans[0].Keyless[n.Name] = true
	d.Unconnected = d.Unconnected || n.Ready && !d.Devices[0].Unanswered[n.Name]
	if !enters {
		return
	}
	d.lost(n.Name, problem)
	for _, dst := range dsts {
		d.held[dst] = netip.Addr{}
		d.add(refusing(dst), "", "no tunnel connects "+n.Name+" yet")
	}
}

func (d *decider) whyTunneled(n *kube.Node) string {
	for _, one := range []*kube.Node{d.Node, n} {
		switch one.Reach {
		case routes.NoRoom:
			return "no room in the route table for " + one.Name
		case routes.NoNetwork:
			return one.Name + " is not in the network"
		}
	}
	return "the traffic between nodes is encrypted"
}

// smallestMTU returns that of the interfaces on which tunnels may run.
func (d *decider) smallestMTU() int {
	smallest := 0
	for _, l := range d.Links {
		outward := func(e Entry) bool {
			return e.Dst.Bits() == 0 && e.Kind == Unicast && e.Link == l.Index
		}
		if (d.onUplink(l.Index) || slices.ContainsFunc(d.Table, outward)) &&
			(smallest == 0 || l.MTU < smallest) {
			smallest = l.MTU
		}
	}
	return smallest
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
