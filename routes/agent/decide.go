package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
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
	Modes routes.Modes
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
	// VSwitch connects dedicated servers, in clusters with IPv4 in mode routes.ByCloud.
	VSwitch VSwitch
	// Tunnels connect nodes without a route, in families in mode routes.ByCloud, or all nodes.
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
	// Proxies are the addresses that the machine answers ARP for.
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
	// Node is the one that the decision is for, with its interfaces to other nodes.
	Node    *kube.Node
	uplinks []Link

	Want []WantedEntry
	Plan Plan
	// Answers are the addresses to answer ARP for, and Changes those of proxy neighbor entries.
	Answers []Proxy
	Changes ProxyPlan
	// TunnelPlans are those of the Situation's Devices.
	TunnelPlans []TunnelPlan
	// Unconnected means that a Ready node has not shaken hands, and not for handshakeLimit yet.
	Unconnected bool

	unreachable map[string]string // the first problem of each peer
	// Faults keep this node from being ready; each has a remedy.
	Faults []string
	// Warnings don't affect readiness; each has a remedy.
	Warnings []string
	View     View
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
	// IPv4Uplinks are the interfaces between nodes with IPv4 InternalIPs, or those that are named.
	IPv4Uplinks []string
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
// is ErrNoNode. The decision then has only Changes, which end the ARP replies for podCIDRs
// that other Nodes have by now.
func Decide(s Situation) (Decision, error) {
	at := slices.IndexFunc(s.Nodes, func(n *kube.Node) bool { return n.Name == s.Self })
	if at < 0 {
		return Decision{Changes: diffProxies(nil, s.Proxies, s.unclaimed(nil))},
			fmt.Errorf("deciding on routes among %d Nodes: %s: %w", len(s.Nodes), s.Self, ErrNoNode)
	}
	d := &decider{
		Situation: s, lookup: newLookup(s.Table), held: map[netip.Prefix]netip.Addr{},
		Decision: Decision{
			Node: s.Nodes[at], unreachable: map[string]string{},
			TunnelPlans: make([]TunnelPlan, len(s.Devices)),
		},
	}
	d.findUplinks()
	for _, p := range d.Node.PodCIDRs {
		d.add(refusing(p), "", "own podCIDR: addresses without a pod are unreachable here")
	}
	if s.Tunnels.Enabled {
		d.checkDevice(s.Devices[0])
	}
	encrypted := d.tunnels()
	for _, ipv4 := range []bool{true, false} {
		switch mode := s.Modes.Of(ipv4); {
		case mode == routes.ByNodes:
			d.peerRoutes(ipv4, encrypted)
			d.refuseTheRest(ipv4)
		case mode == routes.ByCloud && d.Tunnels.Enabled &&
			(d.Node.Reach == routes.NoNetwork || d.Tunnels.Phase == routes.RequireTunnels):
			d.refuseTheRest(ipv4)
		case mode == routes.ByCloud && ipv4 && d.dedicated():
			d.acrossVSwitch()
		case mode == routes.ByCloud:
			d.aggregates(ipv4)
		}
	}
	// A recreated Node soon gets its podCIDRs again, and its pods are running.
	if len(d.Node.PodCIDRs) == 0 {
		d.staying = d.unclaimed(nil)
	}
	if len(d.late) > 0 {
		d.warn("%d nodes are still connected by an earlier WireGuard port, because they don't answer at port %d; open it between all machines: %s",
			len(d.late), s.Tunnels.Port, named(d.late))
	}
	d.fillView()
	d.View.Ingress = d.ingress()
	d.distrust()
	d.Plan = Diff(d.Want, s.Table, d.held)
	for _, c := range d.Plan.Refused {
		if c.Node != "" {
			d.lost(c.Node, c.refusal())
		} else {
			d.Faults = append(d.Faults, c.refusal())
		}
	}
	d.Changes = diffProxies(d.Answers, s.Proxies, d.staying)
	return d.Decision, nil
}

type decider struct {
	Situation
	Decision
	lookup lookup
	// held has destinations with routes of ours to keep, if they are via the address.
	held map[netip.Prefix]netip.Addr
	// staying reports whether an existing proxy neighbor entry is kept; nil keeps none.
	staying func(netip.Addr) bool
	// keyOwners and addressOwners have the only Node with a WireGuard key or an InternalIP.
	keyOwners     map[string]string
	addressOwners map[netip.Addr]string
	late          []Peer // that don't answer at the port of the first device
	doubtful      []Peer // Nodes with untrusted addresses
}

func (d *Decision) add(e Entry, node, why string) {
	d.Want = append(d.Want, WantedEntry{e, node, why})
}

func (d *Decision) fault(format string, args ...any) {
	d.Faults = append(d.Faults, fmt.Sprintf(format, args...))
}

func (d *Decision) warn(format string, args ...any) {
	d.Warnings = append(d.Warnings, fmt.Sprintf(format, args...))
}

// lost records the first reason a peer is unreachable.
func (d *Decision) lost(node, problem string) {
	if _, known := d.unreachable[node]; !known {
		d.unreachable[node] = problem
	}
}

// Peers returns the unreachable peers, sorted.
func (d *Decision) Peers() []Peer {
	peers := make([]Peer, 0, len(d.unreachable))
	for _, node := range slices.Sorted(maps.Keys(d.unreachable)) {
		peers = append(peers, Peer{node, d.unreachable[node]})
	}
	return peers
}

// peerRoutes adds routes to every peer's podCIDR of a family, except for those in encrypted.
func (d *decider) peerRoutes(ipv4 bool, encrypted map[netip.Prefix]bool) {
	planned := d.planned(ipv4, func(_ *kube.Node, p *routes.Node) {
		p.Dsts = slices.DeleteFunc(p.Dsts, func(dst netip.Prefix) bool { return encrypted[dst] })
	})
	family := map[bool]string{true: "IPv4", false: "IPv6"}[ipv4]
	d.leadTo(planned, fmt.Sprintf("has no %s InternalIP; set the kubelet's --node-ip, or have the cloud controller manager report one", family))
}

// leadTo adds routes to every destination of the peers. lacking is the problem reported for a peer
// without an address. It returns this machine's destinations that overlap those of an older Node.
func (d *decider) leadTo(planned []routes.Node, lacking string) (lost []netip.Prefix) {
	ready := make(map[string]bool, len(planned))
	for _, n := range planned {
		ready[n.Name] = n.Ready
	}
	wanted := routes.Desired(planned, nil)
	d.Want = slices.Grow(d.Want, len(wanted.Routes))
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
			d.Faults = append(d.Faults, dup.String())
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
		if p.Addr().Is4() == ipv4 && !slices.Contains(d.Node.PodCIDRs, p) {
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

func (d *Decision) uplinkNames() string {
	names := make([]string, len(d.uplinks))
	for i, l := range d.uplinks {
		names[i] = l.Name
	}
	return cmp.Or(strings.Join(names, ", "), "(none found)")
}
