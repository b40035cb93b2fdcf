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
	// SetLink sets the device's MTU and addresses, and the routes into it that only pods use.
	SetLink(ctx context.Context, link TunnelDevice) error
	// SetPeers adds or changes peers, but not the endpoint of one whose Endpoint is not set.
	SetPeers(ctx context.Context, peers []TunnelPeer) error
	RemovePeers(ctx context.Context, keys []string) error
	// Remove deletes the device, and reports whether it existed.
	Remove(ctx context.Context) (bool, error)
}

// TunnelDevice is the desired state of the device without its peers.
type TunnelDevice struct {
	MTU int
	// Addrs are the first addresses of PodCIDRs: the node's packets to pods have them as their
	// source, so that replies are routed back into the tunnel.
	Addrs []netip.Addr
	// PodCIDRs are the node's own. Packets from there to NodeAddrs, the addresses of other
	// nodes, are routed into tunnels; those of the node itself are not.
	PodCIDRs  []netip.Prefix
	NodeAddrs []netip.Addr
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
	// Replace removes other allowed IPs, and for a moment all of them: packets are lost then.
	Replace   bool
	Keepalive time.Duration // 0: none
}

// TunnelPlan is the desired state of the device.
type TunnelPlan struct {
	TunnelDevice
	Peers []TunnelPeer // by node name
	// Keyless are the nodes that can't be peers yet.
	Keyless []string
	// unconnected means that a Ready node has not shaken hands yet.
	unconnected bool
}

// Connected reports whether every Ready node has shaken hands, or has not for handshakeLimit.
func (p TunnelPlan) Connected() bool { return !p.unconnected }

// TunnelSettings are constant while an agent runs.
type TunnelSettings struct {
	Enabled bool
	Port    int // UDP
	// Phase is set if tunnels connect all nodes; otherwise they connect those without a route.
	Phase Phase
	// Server has the addresses of the API server, which are never reached by a tunnel.
	Server []netip.Addr
}

// Phase is a step from plain routes to tunnels between all nodes. Nodes in adjacent phases reach
// each other.
type Phase string

const (
	Accept  Phase = "accept"  // receive through tunnels, send plainly
	Prefer  Phase = "prefer"  // send through tunnels that have shaken hands
	Require Phase = "require" // send and receive through tunnels only
)

// tunneled reports whether a tunnel connects this machine with the node.
func (d *decider) tunneled(n *kube.Node) bool {
	return d.Tunnels.Enabled && n.Name != d.Self && (d.Tunnels.Phase != "" || d.unrouted(n))
}

// unrouted reports whether no plain route connects this machine with the node.
func (d *decider) unrouted(n *kube.Node) bool {
	return routes.Tunneled(routes.Reach(d.self.Reach), routes.Reach(n.Reach))
}

// enters reports whether packets to the node's pods are sent through the tunnel.
func (d *decider) enters(n *kube.Node) bool {
	switch {
	case d.unrouted(n) || d.Tunnels.Phase == Require:
		return true
	case d.Tunnels.Phase == Prefer && n.WireGuard != nil:
		return !d.Tunnel.Peers[n.WireGuard.PublicKey].Handshake.IsZero()
	}
	return false
}

// tunnels adds the peers, and the routes into tunnels, of a family. It returns the podCIDRs to
// which no plain route may lead. A node outside the network reaches the private addresses of the
// nodes in it by the tunnel as well.
func (d *decider) tunnels(ipv4 bool) (encrypted map[netip.Prefix]bool) {
	mode := d.Modes.of(ipv4)
	if !d.Tunnels.Enabled || mode == Unrouted || d.Tunnels.Phase == "" && mode != ByCloud {
		return nil
	}
	encrypted = map[netip.Prefix]bool{}
	plan := &d.tunnelPlan
	plan.MTU = d.smallestMTU() - tunnelOverhead
	for _, p := range d.self.PodCIDRs {
		if p.Addr().Is4() == ipv4 {
			plan.PodCIDRs, plan.Addrs = append(plan.PodCIDRs, p), append(plan.Addrs, p.Addr().Next())
		}
	}
	dsts := d.tunnelDestinations(ipv4)
	sharedKeys := d.sharedKeys()
	for _, n := range d.Nodes {
		if !d.tunneled(n) || len(dsts[n.Name]) == 0 {
			continue
		}
		peer, problem := d.tunnelPeer(n, dsts[n.Name], sharedKeys, ipv4)
		enters := d.enters(n) && (problem == "" || d.unrouted(n) || d.Tunnels.Phase == Require)
		for _, dst := range dsts[n.Name] {
			encrypted[dst] = enters
		}
		if problem != "" {
			d.withoutTunnel(n, dsts[n.Name], enters, problem)
			continue
		}
		d.addPeer(peer)
		d.checkHandshake(n, peer)
		if !enters {
			continue
		}
		for _, dst := range slices.Concat(dsts[n.Name], d.privateAddresses(n, ipv4)) {
			d.want = append(d.want, WantedEntry{into(dst, d.Tunnel.Link), n.Name, "a WireGuard tunnel connects it: " + d.whyTunneled(n)})
		}
		plan.NodeAddrs = append(plan.NodeAddrs, d.nodeAddresses(n, ipv4)...)
	}
	return encrypted
}

// withoutTunnel records that a node can't be a peer. Existing routes into its tunnel are kept.
func (d *decider) withoutTunnel(n *kube.Node, dsts []netip.Prefix, enters bool, problem string) {
	d.tunnelPlan.Keyless = append(d.tunnelPlan.Keyless, n.Name)
	d.tunnelPlan.unconnected = d.tunnelPlan.unconnected || n.Ready && !d.Tunnel.Unanswered[n.Name]
	if !enters {
		return
	}
	d.lost(n.Name, problem)
	for _, dst := range dsts {
		d.held[dst] = netip.Addr{}
		d.want = append(d.want, WantedEntry{refusing(dst), "", "no tunnel connects " + n.Name + " yet"})
	}
}

// addPeer adds a peer, or its podCIDRs of another family.
func (d *decider) addPeer(peer TunnelPeer) {
	plan := &d.tunnelPlan
	at, found := slices.BinarySearchFunc(plan.Peers, peer.Node, func(p TunnelPeer, name string) int { return cmp.Compare(p.Node, name) })
	if !found {
		plan.Peers = slices.Insert(plan.Peers, at, peer)
		return
	}
	for _, a := range peer.AllowedIPs {
		if !slices.Contains(plan.Peers[at].AllowedIPs, a) {
			plan.Peers[at].AllowedIPs = append(plan.Peers[at].AllowedIPs, a)
		}
	}
}

func (d *decider) checkHandshake(n *kube.Node, peer TunnelPeer) {
	if !n.Ready || !d.Tunnel.Peers[peer.PublicKey].Handshake.IsZero() {
		return
	}
	if !d.Tunnel.Unanswered[n.Name] {
		d.tunnelPlan.unconnected = true
		return
	}
	problem := fmt.Sprintf("no WireGuard handshake with it at %v; check that UDP port %d is open on both machines, and that one of them can be reached by the other", peer.Endpoints, d.Tunnels.Port)
	switch {
	case len(peer.Endpoints) == 0 && d.behindNAT():
		problem = "no WireGuard handshake with it: neither it nor this machine has a public address, and two nodes behind NAT can't connect"
	case len(peer.Endpoints) == 0:
		problem = fmt.Sprintf("no WireGuard handshake with it: it has no public address, and has not reached UDP port %d of this machine", d.Tunnels.Port)
	}
	d.lost(n.Name, problem)
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
	return "the traffic between nodes is encrypted"
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
	n *kube.Node, dsts []netip.Prefix, shared map[string]bool, ipv4 bool,
) (peer TunnelPeer, problem string) {
	switch {
	case d.Tunnel.Problem != "":
		return peer, d.Tunnel.Problem
	case n.WireGuard == nil:
		return peer, "its agent has not published a WireGuard key; check that underlay-agent runs there, and its log"
	case shared[n.WireGuard.PublicKey]:
		return peer, "another Node has the same WireGuard key; delete /var/lib/underlay/wireguard.key on the machine that was cloned, and restart its underlay-agent"
	}
	peer = TunnelPeer{Node: n.Name, PublicKey: n.WireGuard.PublicKey, AllowedIPs: slices.Concat(dsts, d.privateAddresses(n, ipv4))}
	for _, a := range d.nodeAddresses(n, ipv4) {
		if host := netip.PrefixFrom(a, a.BitLen()); !slices.Contains(peer.AllowedIPs, host) {
			peer.AllowedIPs = append(peer.AllowedIPs, host)
		}
	}
	apart := d.self.Reach == kube.NoNetwork || n.Reach == kube.NoNetwork
	for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
		near := !apart && slices.Contains(n.InternalIPs, a)
		// Not inside a prefix that is routed into a tunnel: the tunnel would run in itself.
		if (near || apart && !a.IsPrivate()) && !contain(d.PodRanges, a) && !contain(dsts, a) {
			peer.Endpoints = append(peer.Endpoints, netip.AddrPortFrom(a, uint16(n.WireGuard.Port)))
		}
	}
	if apart && d.behindNAT() {
		peer.Keepalive = keepalive
	}
	return peer, ""
}

// privateAddresses returns the node's addresses in the network, if this machine is outside and
// reaches them only by the tunnel.
func (d *decider) privateAddresses(n *kube.Node, ipv4 bool) (found []netip.Prefix) {
	if !ipv4 || d.self.Reach != kube.NoNetwork || n.Reach == kube.NoNetwork {
		return nil
	}
	for _, a := range n.InternalIPs {
		if a.Is4() && a.IsPrivate() && d.only(n, a) {
			found = append(found, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return found
}

// nodeAddresses returns the node's addresses that pods here reach by the tunnel.
func (d *decider) nodeAddresses(n *kube.Node, ipv4 bool) (found []netip.Addr) {
	for _, a := range n.InternalIPs {
		if a.Is4() == ipv4 && d.trusted(n, a) && d.only(n, a) {
			found = append(found, a)
		}
	}
	return found
}

// only reports whether an address may be routed into the node's tunnel. It comes from the Node's
// status, so it counts only if no other Node has it.
func (d *decider) only(n *kube.Node, a netip.Addr) bool {
	if d.addressOwners == nil {
		d.addressOwners = map[netip.Addr]string{}
		for _, o := range d.Nodes {
			for _, owned := range o.InternalIPs {
				if first, taken := d.addressOwners[owned]; taken && first != o.Name {
					d.addressOwners[owned] = "" // several
				} else {
					d.addressOwners[owned] = o.Name
				}
			}
		}
	}
	return d.addressOwners[a] == n.Name && !slices.Contains(d.Tunnels.Server, a) && !contain(d.PodRanges, a)
}

// behindNAT reports whether no interface has one of the node's public addresses.
func (d *decider) behindNAT() bool {
	return !slices.ContainsFunc(slices.Concat(d.self.InternalIPs, d.self.ExternalIPs), func(a netip.Addr) bool {
		return !a.IsPrivate() && slices.ContainsFunc(d.Links, func(l Link) bool { return l.has(a) })
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
