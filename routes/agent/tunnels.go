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

// TunnelLink is the name of the WireGuard device.
const TunnelLink = "underlay-wg"

// tunnelOverhead is what WireGuard adds to a packet in IPv6; 20 bytes less in IPv4.
const tunnelOverhead = 80

// keepalive keeps the entry of a NAT gateway, which may end after 30 s without a packet.
const keepalive = 25 * time.Second

// Tunnels is the machine's WireGuard device, TunnelLink.
type Tunnels interface {
	// State returns the device's state. It creates the device if it is missing.
	State(ctx context.Context) (TunnelState, error)
	// SetLink sets the MTU, 0 for the existing one, and the addresses of the device.
	SetLink(ctx context.Context, mtu int, addrs []netip.Addr) error
	// SetPeers adds or changes peers, but not the endpoint of one whose Endpoint is not set.
	SetPeers(ctx context.Context, peers []TunnelPeer) error
	RemovePeers(ctx context.Context, keys []string) error
}

// TunnelState is the state of the WireGuard device.
type TunnelState struct {
	PublicKey string
	Link      int
	// Peers are by public key.
	Peers map[string]TunnelPeerState
	// Problem is why there is no device; empty otherwise.
	Problem string
	// Unanswered has the nodes without a handshake for handshakeLimit.
	Unanswered map[string]bool
}

// ObservedTunnel returns the part of the state that an observer has, who creates no device.
func ObservedTunnel(links []Link) TunnelState {
	for _, l := range links {
		if l.Name == TunnelLink {
			return TunnelState{Link: l.Index}
		}
	}
	return TunnelState{Problem: "there is no device " + TunnelLink + ": underlay-agent creates it, or its log has the reason"}
}

// TunnelPeerState is a peer as it is set in the device.
type TunnelPeerState struct {
	Endpoint   netip.AddrPort
	Handshake  time.Time // the latest; zero: none
	AllowedIPs []netip.Prefix
	Keepalive  time.Duration
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
	Keepalive  time.Duration // 0: none
}

// TunnelPlan is the desired state of the device.
type TunnelPlan struct {
	// Addrs are the first addresses of the own podCIDRs: the node's packets to pods have them as
	// their source, so that replies are routed back into the tunnel.
	Addrs []netip.Addr
	MTU   int
	Peers []TunnelPeer // by node name
	// Keyless are the nodes that can't be peers yet.
	Keyless []string
	// Connected means that every Ready node has shaken hands, or has not for handshakeLimit.
	Connected bool
}

// TunnelSettings are constant while an agent runs.
type TunnelSettings struct {
	Enabled bool
	Port    int // UDP
	// Server has the addresses of the API server, which are never reached by a tunnel.
	Server []netip.Addr
}

// tunneled reports whether a tunnel connects this machine with the node.
func (d *decider) tunneled(n *kube.Node) bool {
	return d.Tunnels.Enabled && n.Name != d.Self &&
		routes.Tunneled(routes.Reach(d.self.Reach), routes.Reach(n.Reach))
}

// tunnels adds the peers and routes of the family that the cloud's table routes. A node outside
// the network reaches the private addresses of the nodes in it by the tunnel as well.
func (d *decider) tunnels(ipv4 bool) {
	if !d.Tunnels.Enabled {
		return
	}
	if d.Tunnel.Problem != "" && d.self.Reach != "" {
		d.faults = append(d.faults, d.Tunnel.Problem)
	}
	plan := &d.tunnelPlan
	plan.MTU = d.smallestMTU() - tunnelOverhead
	for _, p := range d.self.PodCIDRs {
		if p.Addr().Is4() == ipv4 {
			plan.Addrs = append(plan.Addrs, p.Addr().Next())
		}
	}
	dsts := d.tunnelDestinations(ipv4)
	sharedKeys := d.sharedKeys()
	plan.Connected = true
	for _, n := range d.Nodes {
		if !d.tunneled(n) || len(dsts[n.Name]) == 0 {
			continue
		}
		peer, problem := d.tunnelPeer(n, dsts[n.Name], sharedKeys)
		if problem != "" {
			d.lost(n.Name, problem)
			for _, dst := range dsts[n.Name] {
				d.held[dst] = netip.Addr{}
			}
			plan.Keyless = append(plan.Keyless, n.Name)
			plan.Connected = plan.Connected && (!n.Ready || d.Tunnel.Unanswered[n.Name])
			continue
		}
		plan.Peers = append(plan.Peers, peer)
		for _, dst := range peer.AllowedIPs {
			d.want = append(d.want, WantedEntry{into(dst, d.Tunnel.Link), n.Name, "a WireGuard tunnel connects it: " + d.whyTunneled(n)})
		}
		d.checkHandshake(n, peer)
	}
	slices.SortFunc(plan.Peers, func(a, b TunnelPeer) int { return cmp.Compare(a.Node, b.Node) })
}

func (d *decider) checkHandshake(n *kube.Node, peer TunnelPeer) {
	if !n.Ready || !d.Tunnel.Peers[peer.PublicKey].Handshake.IsZero() {
		return
	}
	if !d.Tunnel.Unanswered[n.Name] {
		d.tunnelPlan.Connected = false
		return
	}
	d.lost(n.Name, fmt.Sprintf("no WireGuard handshake with it at %v; check that UDP port %d is open on both machines, and that one of them can be reached by the other", peer.Endpoints, d.Tunnels.Port))
}

func (d *decider) whyTunneled(n *kube.Node) string {
	for _, one := range []*kube.Node{d.self, n} {
		switch one.Reach {
		case kube.NoRoom:
			return "no room in the route table for " + one.Name
		case kube.NoNetwork:
			return one.Name + " is not in the network"
		}
	}
	return ""
}

// tunnelDestinations returns the podCIDRs of Nodes that don't overlap those of an older Node.
func (d *decider) tunnelDestinations(ipv4 bool) map[string][]netip.Prefix {
	planned := make([]routes.Node, 0, len(d.Nodes))
	for _, n := range d.Nodes {
		p := plannedNode(n, ipv4)
		p.Via = netip.IPv4Unspecified() // any: routes into the tunnel have none
		planned = append(planned, p)
	}
	wanted := routes.Desired(planned, nil)
	dsts := map[string][]netip.Prefix{}
	for _, r := range wanted.Routes {
		dsts[r.Node] = append(dsts[r.Node], r.Dst)
	}
	for _, dup := range wanted.Duplicates {
		if dup.Node != d.Self {
			d.lost(dup.Node, dup.String())
		}
	}
	return dsts
}

// sharedKeys returns the public keys of more than one Node: a cloned machine, or a Node that
// claims another's key.
func (d *decider) sharedKeys() map[string]bool {
	owners, shared := map[string]bool{}, map[string]bool{}
	for _, n := range d.Nodes {
		if n.WireGuard != nil {
			shared[n.WireGuard.PublicKey] = shared[n.WireGuard.PublicKey] || owners[n.WireGuard.PublicKey]
			owners[n.WireGuard.PublicKey] = true
		}
	}
	return shared
}

func (d *decider) tunnelPeer(
	n *kube.Node, dsts []netip.Prefix, shared map[string]bool,
) (peer TunnelPeer, problem string) {
	switch {
	case d.Tunnel.Problem != "":
		return peer, d.Tunnel.Problem
	case n.WireGuard == nil:
		return peer, "its agent has not published a WireGuard key; check that underlay-agent runs there, and its log"
	case shared[n.WireGuard.PublicKey]:
		return peer, "another Node has the same WireGuard key; delete /var/lib/underlay/wireguard.key on the machine that was cloned, and restart its underlay-agent"
	}
	peer = TunnelPeer{Node: n.Name, PublicKey: n.WireGuard.PublicKey, AllowedIPs: dsts}
	apart := d.self.Reach == kube.NoNetwork || n.Reach == kube.NoNetwork
	if apart {
		peer.AllowedIPs = slices.Concat(dsts, d.addressesInTunnel(n))
	}
	for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
		// Not inside a prefix that is routed into a tunnel: the tunnel would run in itself.
		if a.IsPrivate() != apart && !contain(d.PodRanges, a) && !contain(peer.AllowedIPs, a) {
			peer.Endpoints = append(peer.Endpoints, netip.AddrPortFrom(a, uint16(n.WireGuard.Port)))
		}
	}
	if d.behindNAT() {
		peer.Keepalive = keepalive
	}
	return peer, ""
}

// addressesInTunnel returns the node's addresses in the network, if this machine is outside.
// They come from the Node's status, so only private ones count that no other Node has.
func (d *decider) addressesInTunnel(n *kube.Node) (found []netip.Prefix) {
	if d.self.Reach != kube.NoNetwork || n.Reach == kube.NoNetwork {
		return nil
	}
	for _, a := range n.InternalIPs {
		others := func(o *kube.Node) bool { return o.Name != n.Name && slices.Contains(o.InternalIPs, a) }
		if a.Is4() && a.IsPrivate() && !slices.ContainsFunc(d.Nodes, others) && !slices.Contains(d.Tunnels.Server, a) && !contain(d.PodRanges, a) {
			found = append(found, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return found
}

// behindNAT reports whether no interface has one of the node's addresses.
func (d *decider) behindNAT() bool {
	return !slices.ContainsFunc(slices.Concat(d.self.InternalIPs, d.self.ExternalIPs), func(a netip.Addr) bool {
		return slices.ContainsFunc(d.Links, func(l Link) bool { return l.has(a) })
	})
}

// smallestMTU returns that of the interfaces on which tunnels may run.
func (d *decider) smallestMTU() int {
	smallest := 0
	for _, l := range d.Links {
		if (d.onUplink(l.Index) || d.outward(l.Index)) && (smallest == 0 || l.MTU < smallest) {
			smallest = l.MTU
		}
	}
	return smallest
}

func into(dst netip.Prefix, link int) Entry {
	return Entry{Dst: dst, Kind: Unicast, Link: link, Metric: PeerMetric(dst), Protocol: Protocol}
}
