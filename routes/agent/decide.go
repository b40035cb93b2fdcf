package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/routes"
)

// Settings are the inputs of a decision that are constant while an agent runs.
type Settings struct {
	// Self is the name of this machine's Node.
	Self  string
	Modes Modes
	// Pools are the prefixes that podCIDRs are carved from.
	Pools []netip.Prefix
	// PodRanges contain pods only: the Pools without their exclusions.
	PodRanges []netip.Prefix
	// Gateway is the cloud network's gateway. The zero Addr means that it is found in the table.
	Gateway netip.Addr
	// Uplinks are names of interfaces. If empty, they are those with the Node's InternalIPs.
	Uplinks []string
	// Untrusting means that there is no cloud, and that every ignored address of a Node is
	// reported. An address counts only if it is in Inventory, if the machine reaches it over
	// an uplink by a route that is neither ours nor the default route, or if it is in the
	// prefix that the provider routes to the Node's machine.
	Untrusting bool
	Inventory  []netip.Addr
	// VSwitch connects dedicated servers, in clusters with IPv4 in mode ByCloud.
	VSwitch VSwitch
	// Tunnels connect nodes without a route, in families in mode ByCloud, or all nodes.
	Tunnels TunnelSettings
}

// Situation is the complete input of a decision.
type Situation struct {
	Settings
	// Nodes are all Nodes of the cluster, including this machine's.
	Nodes []*kube.Node
	// Targets has the own Node's annotations of pods that load balancers may reach, by key.
	Targets map[string]string
	// Links and Table are the machine's interfaces and routes.
	Links []Link
	Table []Entry
	// Proxies are the addresses that the machine answers ARP for. They may be omitted if there
	// are no VSwitch.Pools and none is ours.
	Proxies []Proxy
	// Unresolved are the addresses of neighbors that don't reply.
	Unresolved map[netip.Addr]bool
	// Devices are the WireGuard devices, if Tunnels are enabled: the current one, and earlier ones
	// with other ports.
	Devices []TunnelState
}

// WantedEntry is a route that should exist in the kernel.
type WantedEntry struct {
	Entry
	// Node is the peer that it routes to; empty if it is not for a single peer.
	Node string
	// Why is a message for users.
	Why string
}

// Decision has the changes to make and the problems to report.
type Decision struct {
	Want []WantedEntry
	Plan Plan
	// Answers are the addresses to answer ARP for.
	Answers []Proxy
	Proxies ProxyPlan
	// Tunnels are the plans of the Situation's Devices.
	Tunnels []TunnelPlan
	// Unconnected means that a Ready node has not shaken hands, and not for handshakeLimit yet.
	Unconnected bool
	// Peers are the unreachable peers with reasons, sorted.
	Peers []Peer
	// Faults keep this node from being ready; each has a remedy.
	Faults []string
	// Warnings don't affect readiness; each has a remedy.
	Warnings []string
	View     View
	// Node is the one that the decision is for, with its interfaces to other nodes.
	Node    *kube.Node
	uplinks []Link
}

// Peer is a node with pods that can't be reached from this one.
type Peer struct{ Node, Problem string }

// View is the input of the other components of a node's network.
type View struct {
	PodCIDRs []netip.Prefix
	// ClusterPods are the podCIDRs of all Nodes, and the pod ranges in which packets of Nodes
	// not yet observed would be masqueraded. InternalIPs and ExternalIPs are those of all
	// Nodes. Sorted.
	ClusterPods              []netip.Prefix
	InternalIPs, ExternalIPs []netip.Addr
	// ServerPrefixes are the machines' /64 prefixes, routed by the provider, that pods use;
	// sorted.
	ServerPrefixes []netip.Prefix
	// Ingress has the connections that load balancers may open to the node's pods: IPv6 only,
	// to public addresses in PodCIDRs.
	Ingress []podingress.Ingress
	// Uplinks are the interfaces between nodes, IPv4Uplinks those with IPv4 InternalIPs or named.
	Uplinks, IPv4Uplinks []string
	// RouterAdvertised are interfaces with IPv6 routes from router advertisements.
	RouterAdvertised []string
	// ProxyARP are interfaces on which the kernel answers ARP for pods.
	ProxyARP []string
	// MTU is the smallest MTU of the interfaces that packets of pods leave through.
	MTU int
	// Tunnels are the names of the WireGuard devices, and TunnelMTU is their MTU.
	Tunnels   []string
	TunnelMTU int
	// TunnelOnly means that packets between pods and other nodes are sent and received by the
	// device only.
	TunnelOnly bool
	// TunnelMixed means that a packet may pass the device in one direction only.
	TunnelMixed bool
}

// ErrNoNode means that no decision about routes is possible: the machine's Node is missing, so
// the list may be incomplete, or that of another cluster.
var ErrNoNode = errors.New("this machine's Node does not exist")

// Decide returns the wanted content of the kernel's table and the differences. Its only error
// is ErrNoNode. The decision then has only Proxies, which end the ARP replies for podCIDRs
// that other Nodes have by now.
func Decide(s Situation) (Decision, error) {
	at := slices.IndexFunc(s.Nodes, func(n *kube.Node) bool { return n.Name == s.Self })
	if at < 0 {
		return Decision{Proxies: diffProxies(nil, s.Proxies, s.unclaimed(nil))},
			fmt.Errorf("deciding on routes among %d Nodes: %s: %w", len(s.Nodes), s.Self, ErrNoNode)
	}
	d := &decider{
		Situation: s, self: s.Nodes[at], lookup: newLookup(s.Table), peers: map[string]string{},
		held: map[netip.Prefix]netip.Addr{}, keyless: map[string]bool{},
	}
	d.plans = make([]TunnelPlan, len(s.Devices))
	d.uplinks = d.findUplinks()
	for _, p := range d.self.PodCIDRs {
		d.add(refusing(p), "", "own podCIDR: addresses without a pod are unreachable here")
	}
	if s.Tunnels.Enabled {
		d.plans[0].Keyless = d.keyless
		d.checkDevice(s.Devices[0])
	}
	encrypted := d.tunnels()
	for _, ipv4 := range []bool{true, false} {
		switch mode := s.Modes.of(ipv4); {
		case mode == ByNodes:
			d.peerRoutes(ipv4, encrypted)
			d.refuseTheRest(ipv4)
		case mode == ByCloud && d.Tunnels.Enabled &&
			(d.self.Reach == kube.NoNetwork || d.Tunnels.Phase == Require):
			d.refuseTheRest(ipv4)
		case mode == ByCloud && ipv4 && d.dedicated():
			d.acrossVSwitch()
		case mode == ByCloud:
			d.aggregates(ipv4)
		}
	}
	// A recreated Node soon gets its podCIDRs again, and its pods are running.
	if len(d.self.PodCIDRs) == 0 {
		d.staying = d.unclaimed(nil)
	}
	if len(d.late) > 0 {
		d.warn("%d nodes are still connected by an earlier WireGuard port, because they don't answer at port %d; open it between all machines: %s",
			len(d.late), s.Tunnels.Port, named(d.late))
	}
	view := d.view()
	view.Ingress = d.ingress()
	d.distrust()
	plan := Diff(d.want, s.Table, d.held)
	for _, r := range plan.Refused {
		if r.Node != "" {
			d.lost(r.Node, r.String())
		} else {
			d.faults = append(d.faults, r.String())
		}
	}
	return Decision{
		Want: d.want, Plan: plan, Answers: d.answers,
		Proxies: diffProxies(d.answers, s.Proxies, d.staying),
		Tunnels: d.plans, Unconnected: d.unconnected,
		Peers: d.sortedPeers(), Faults: d.faults, Warnings: d.warnings, View: view,
		Node: d.self, uplinks: d.uplinks,
	}, nil
}

type decider struct {
	Situation
	self    *kube.Node
	lookup  lookup
	uplinks []Link
	want    []WantedEntry
	// held has destinations with routes of ours to keep, if they are via the address.
	held map[netip.Prefix]netip.Addr
	// answers are the addresses to answer ARP for, on the interfaces in answering. Existing
	// entries are kept if staying reports so; nil keeps none.
	answers   []Proxy
	answering []string
	staying   func(netip.Addr) bool

	plans       []TunnelPlan    // of the Devices
	keyless     map[string]bool // nodes that can't be peers yet
	unconnected bool
	late        []Peer // that don't answer at the port of the first device
	// keyOwners and addressOwners have the only Node with a WireGuard key or an InternalIP.
	keyOwners     map[string]string
	addressOwners map[netip.Addr]string

	peers            map[string]string
	faults, warnings []string
	// doubtful are Nodes with untrusted addresses.
	doubtful []Peer
}

func (d *decider) add(e Entry, node, why string) {
	d.want = append(d.want, WantedEntry{e, node, why})
}

func (d *decider) fault(format string, args ...any) {
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

func (d *decider) warn(format string, args ...any) {
	d.warnings = append(d.warnings, fmt.Sprintf(format, args...))
}

// lost records the first reason a peer is unreachable.
func (d *decider) lost(node, problem string) {
	if _, known := d.peers[node]; !known {
		d.peers[node] = problem
	}
}

func (d *decider) sortedPeers() []Peer {
	peers := make([]Peer, 0, len(d.peers))
	for node, problem := range d.peers {
		peers = append(peers, Peer{node, problem})
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.Node, b.Node) })
	return peers
}

// peerRoutes adds routes to every peer's podCIDR of a family, except for those in encrypted.
func (d *decider) peerRoutes(ipv4 bool, encrypted map[netip.Prefix]bool) {
	planned := make([]routes.Node, 0, len(d.Nodes))
	for _, n := range d.Nodes {
		p := plannedNode(n, ipv4)
		p.Dsts = slices.DeleteFunc(p.Dsts, func(dst netip.Prefix) bool { return encrypted[dst] })
		planned = append(planned, p)
	}
	d.leadTo(planned, fmt.Sprintf("has no %s InternalIP; set the kubelet's --node-ip, or have the cloud controller manager report one", family(ipv4)))
}

// leadTo adds routes to every destination of the peers. lacking is the problem reported for a peer
// without an address. It returns this machine's destinations that overlap those of an older Node.
func (d *decider) leadTo(planned []routes.Node, lacking string) (lost []netip.Prefix) {
	ready := make(map[string]bool, len(planned))
	for _, n := range planned {
		ready[n.Name] = n.Ready
	}
	wanted := routes.Desired(planned, nil)
	d.want = slices.Grow(d.want, len(wanted.Routes))
	for _, peer := range wanted.Routes {
		if peer.Node == d.Self {
			continue
		}
		link, problem := d.neighbor(peer.Via)
		if problem != "" {
			d.lost(peer.Node, problem)
			d.held[peer.Dst] = peer.Via
			continue
		}
		d.add(toward(peer.Dst, peer.Via, link.Index), peer.Node,
			"its InternalIP is a neighbor on "+link.Name)
		// A machine that is down never replies, and its Node shows that already.
		if d.Unresolved[peer.Via] && ready[peer.Node] {
			d.lost(peer.Node,
				fmt.Sprintf("InternalIP %s does not reply on %s; check that both machines share that segment",
					peer.Via, link.Name))
		}
	}
	for _, n := range planned {
		if n.Name == d.Self || len(n.Dsts) == 0 || n.Via.IsValid() {
			continue
		}
		d.lost(n.Name, lacking)
		for _, dst := range n.Dsts {
			d.held[dst] = netip.Addr{}
		}
	}
	for _, dup := range wanted.Duplicates {
		if dup.Node == d.Self { // no other node has a route to this one then
			d.faults = append(d.faults, dup.String())
			lost = append(lost, dup.Dst)
			continue
		}
		d.lost(dup.Node, dup.String())
	}
	return lost
}

// refuseTheRest makes packets for podCIDRs without a node unreachable: they would leave through
// the default route. The routes to peers have longer prefixes or, if a peer has a whole pool, a
// smaller metric. For a family routed by the cloud's table the gateway handles such packets, and a
// machine may reach pods by the network's own route, which has a shorter prefix than a pool.
func (d *decider) refuseTheRest(ipv4 bool) {
	for _, p := range d.PodRanges {
		if p.Addr().Is4() == ipv4 && !slices.Contains(d.self.PodCIDRs, p) {
			d.add(refusing(p), "", "pods' range: addresses of no node are unreachable here")
		}
	}
}

// neighbor returns the uplink on which the address is a neighbor, or why it is none.
func (d *decider) neighbor(addr netip.Addr) (Link, string) {
	e, ok := d.lookup.route(addr, addr.BitLen())
	if !ok || e.Kind != Unicast {
		return Link{},
			fmt.Sprintf("InternalIP %s has no route; check the uplinks %s", addr, d.uplinkNames())
	}
	at := slices.IndexFunc(d.uplinks, func(l Link) bool { return l.Index == e.Link })
	switch {
	case e.Via.IsValid():
		return Link{}, fmt.Sprintf("InternalIP %s is no neighbor, it is reached through %s; kernel routes need a shared segment, use families cloud or native otherwise", addr, e.Via)
	case at < 0:
		return Link{}, fmt.Sprintf("InternalIP %s is a neighbor on %s, which is no uplink; add it with --uplink if nodes talk over it", addr, d.linkName(e.Link))
	case !d.trusted(&kube.Node{}, addr):
		return Link{}, fmt.Sprintf("InternalIP %s is on no segment of the nodes; add it to the configuration's inventory if it is the machine's", addr)
	}
	return d.uplinks[at], ""
}

func (d *decider) linkName(index int) string {
	for _, l := range d.Links {
		if l.Index == index {
			return l.Name
		}
	}
	return fmt.Sprintf("interface %d", index)
}

func (d *decider) uplinkNames() string {
	names := make([]string, len(d.uplinks))
	for i, l := range d.uplinks {
		names[i] = l.Name
	}
	return cmp.Or(strings.Join(names, ", "), "(none found)")
}

func family(ipv4 bool) string {
	if ipv4 {
		return "IPv4"
	}
	return "IPv6"
}

func (d *Decision) nameUnreachable(node, problem string) {
	at, found := slices.BinarySearchFunc(d.Peers, node, func(p Peer, name string) int {
		return cmp.Compare(p.Node, name)
	})
	if !found {
		d.Peers = slices.Insert(d.Peers, at, Peer{node, problem})
	}
}
