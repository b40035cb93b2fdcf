package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// addPeers adds the node as a peer of each device for which it has a key. It returns the device to
// use, or why there is none.
func (d *decider) addPeers(n *kube.Node, dsts []netip.Prefix) (at int, problem string) {
	switch at, found := d.device(n); {
	case d.Devices[0].Problem != "":
		return at, d.Devices[0].Problem
	case n.WireGuard == nil:
		return at,
			"its agent has not published a WireGuard key; check that underlay-agent runs there, and its log"
	case !found:
		return at, "its agent has no WireGuard key for this machine's port; check that all agents have the same wireguardPort"
	case slices.ContainsFunc(n.WireGuard.Keys, func(k kube.WireGuardKey) bool {
		return d.keyOwners[k.PublicKey] != n.Name
	}):
		return at, "another Node has the same WireGuard key; delete /var/lib/underlay/wireguard-*.key on the machine that was cloned, and restart its underlay-agent"
	default:
		for i, state := range d.Devices {
			if key := n.WireGuard.Key(state.Port); key != "" {
				peer := d.tunnelPeer(n, dsts)
				peer.PublicKey, peer.Endpoints = key, d.endpoints(n, dsts, uint16(state.Port))
				d.TunnelPlans[i].Peers = append(d.TunnelPlans[i].Peers, peer)
				if i == at {
					d.checkHandshake(n, peer, state)
				}
			}
		}
		d.TunnelPlans[at].Needed = d.TunnelPlans[at].Needed || n.Ready
		current := d.Devices[0]
		if at > 0 && n.Ready && current.Unanswered[n.Name] && n.WireGuard.Key(current.Port) != "" {
			d.late = append(d.late, Peer{n.Name, fmt.Sprint("at port ", d.Devices[at].Port)})
		}
		return at, ""
	}
}

func (d *decider) checkHandshake(n *kube.Node, peer TunnelPeer, state TunnelState) {
	if !n.Ready || state.handshaken(peer.PublicKey) {
		return
	}
	if !state.Unanswered[n.Name] {
		d.Unconnected = true
		return
	}
	problem := fmt.Sprintf("no WireGuard handshake with it at %v; check that UDP port %d is open on both machines, and that one of them can be reached by the other", peer.Endpoints, d.Tunnels.Port)
	switch {
	case state.Peers[peer.PublicKey].Received > 0: // its handshakes begin, and the responses fail
		problem = fmt.Sprintf("packets of it arrive at UDP port %d, and no WireGuard handshake is completed; check that both agents have the same wireguardPresharedKeyFile, and that packets of this machine reach it", state.Port)
	case len(peer.Endpoints) == 0 && d.behindNAT():
		problem = "no WireGuard handshake with it: neither it nor this machine has a public address, and two nodes behind NAT can't connect"
	case len(peer.Endpoints) == 0:
		problem = fmt.Sprintf("no WireGuard handshake with it: it has no public address, and has not reached UDP port %d of this machine", d.Tunnels.Port)
	}
	d.lost(n.Name, problem)
}

// addTunnelDestinations adds the podCIDRs of Nodes that don't overlap those of an older Node.
func (d *decider) addTunnelDestinations(ipv4 bool, dsts map[string][]netip.Prefix) {
	wanted := routes.Desired(d.planned(ipv4, func(_ *kube.Node, p *routes.Node) {
		p.Via = netip.IPv4Unspecified() // any: routes into the tunnel have none
	}), nil)
	for _, r := range wanted.Routes {
		dsts[r.Node] = append(dsts[r.Node], r.Dst)
	}
	for _, dup := range wanted.Duplicates {
		if dup.Node != d.Self {
			d.lost(dup.Node, dup.String())
		}
	}
}

// owners returns the only Node with each value, or "" if there are several: a cloned machine, or a
// Node that claims another's key or address.
func owners[T comparable](nodes []*kube.Node, values func(*kube.Node) []T) map[T]string {
	found := map[T]string{}
	for _, n := range nodes {
		for _, value := range values(n) {
			owner, taken := found[value]
			if found[value] = n.Name; taken && owner != n.Name {
				found[value] = ""
			}
		}
	}
	return found
}

func publicKeys(n *kube.Node) (keys []string) {
	if n.WireGuard != nil {
		for _, k := range n.WireGuard.Keys {
			keys = append(keys, k.PublicKey)
		}
	}
	return keys
}

func (d *decider) tunnelPeer(n *kube.Node, dsts []netip.Prefix) TunnelPeer {
	peer := TunnelPeer{Node: n.Name, AllowedIPs: slices.Concat(dsts, d.privateAddresses(n, dsts))}
	for _, p := range d.nodeAddresses(n, dsts) {
		if !slices.Contains(peer.AllowedIPs, p) {
			peer.AllowedIPs = append(peer.AllowedIPs, p)
		}
	}
	if d.apart(n) && d.behindNAT() {
		peer.Keepalive = keepalive
	}
	return peer
}

// apart reports whether this machine and the node share no network.
func (d *decider) apart(n *kube.Node) bool {
	return d.Node.Reach == routes.NoNetwork || n.Reach == routes.NoNetwork
}

func (d *decider) endpoints(
	n *kube.Node, dsts []netip.Prefix, port uint16,
) (found []netip.AddrPort) {
	apart := d.apart(n)
	for _, a := range slices.Concat(n.InternalIPs, n.ExternalIPs) {
		near := !apart && slices.Contains(n.InternalIPs, a)
		// Not inside a prefix that is routed into a tunnel: the tunnel would run in itself.
		if (near || apart && !a.IsPrivate()) && !contain(d.PodRanges, a) && !contain(dsts, a) {
			found = append(found, netip.AddrPortFrom(a, port))
		}
	}
	return found
}

// privateAddresses returns the node's addresses in the network, if this machine is outside and
// reaches them only by the tunnel.
func (d *decider) privateAddresses(n *kube.Node, dsts []netip.Prefix) (found []netip.Prefix) {
	if d.Node.Reach != routes.NoNetwork || n.Reach == routes.NoNetwork ||
		!slices.ContainsFunc(dsts, isIPv4) {
		return nil
	}
	for _, a := range n.InternalIPs {
		if a.Is4() && a.IsPrivate() && d.only(n, a) {
			found = append(found, host(a))
		}
	}
	return found
}

// nodeAddresses returns the node's addresses that pods here reach by the tunnel, of the families
// of dsts.
func (d *decider) nodeAddresses(n *kube.Node, dsts []netip.Prefix) (found []netip.Prefix) {
	for _, a := range n.InternalIPs {
		family := func(p netip.Prefix) bool { return p.Addr().Is4() == a.Is4() }
		if slices.ContainsFunc(dsts, family) && d.trusted(n, a) && d.only(n, a) {
			found = append(found, host(a))
		}
	}
	return found
}

// only reports whether an address may be routed into the node's tunnel. It comes from the Node's
// status, so it counts only if no other Node has it.
func (d *decider) only(n *kube.Node, a netip.Addr) bool {
	return d.addressOwners[a] == n.Name && !slices.Contains(d.Tunnels.Server, a) &&
		!contain(d.PodRanges, a)
}

// behindNAT reports whether no interface has one of the node's public addresses.
func (d *decider) behindNAT() bool {
	return !slices.ContainsFunc(slices.Concat(d.Node.InternalIPs, d.Node.ExternalIPs),
		func(a netip.Addr) bool { return !a.IsPrivate() && d.own(a) })
}
