package agent

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/podingress"
	"github.com/underlay-ccm/underlay/routes"
)

// Settings are what a decision rests on and that doesn't change while an agent runs.
type Settings struct {
	// Self is the name of this machine's Node.
	Self  string
	Modes Modes
	// Pools are the prefixes that podCIDRs are carved from.
	Pools []netip.Prefix
	// PodRanges hold nothing but pods: the Pools without what is excluded of them.
	PodRanges []netip.Prefix
	// Gateway is the cloud network's; the zero Addr: found in the table.
	Gateway netip.Addr
	// Uplinks are names of interfaces; none: those with the Node's InternalIPs.
	Uplinks []string
	// Untrusting: there is no cloud, and people are told of all addresses of Nodes that
	// don't count. One counts only if it is in Inventory, if the machine reaches it over
	// an uplink by a route of its own that isn't the default route, or if it is in what
	// the provider routes to the Node's machine.
	Untrusting bool
	Inventory  []netip.Addr
	// VSwitch is where dedicated servers are, in clusters of which IPv4 is ByCloud.
	VSwitch VSwitch
}

// Situation is everything that a decision rests on.
type Situation struct {
	Settings
	// Nodes are all of the cluster's, this machine's among them.
	Nodes []*kube.Node
	// Targets are the annotations of the machine's own Node that say which pods load
	// balancers may reach, by their keys.
	Targets map[string]string
	// Links and Table are the machine's.
	Links []Link
	Table []Entry
	// Proxies are the addresses that the machine answers ARP for. Where there are no
	// VSwitch.Pools they may be left out if none is ours.
	Proxies []Proxy
	// Unresolved are the addresses of neighbors that don't answer.
	Unresolved map[netip.Addr]bool
}

// WantedEntry is a route that should stand in the kernel.
type WantedEntry struct {
	Entry
	// Node is the peer that it leads to; empty where it leads to no single one.
	Node string
	// Why is for people.
	Why string
}

// Decision is what should be done, and what people should know.
type Decision struct {
	Want []WantedEntry
	Plan Plan
	// Answers are the addresses that ARP is to be answered for.
	Answers []Proxy
	Proxies ProxyPlan
	// Peers are those that can't be reached, each with a reason, sorted.
	Peers []Peer
	// Faults keep this node itself from being ready; each with a remedy.
	Faults []string
	// Warnings don't; each with a remedy.
	Warnings []string
	View     View
	// UID is that of the Node that was decided for.
	UID types.UID
}

// Peer is a node whose pods can't be reached from here.
type Peer struct{ Node, Problem string }

// View is what the rest of a node's network needs to know.
type View struct {
	PodCIDRs []netip.Prefix
	// ClusterPods are the podCIDRs of all Nodes, and the ranges in which those of
	// Nodes lie that nobody here has heard of yet, as far as their packets would be
	// masqueraded. InternalIPs and ExternalIPs are those of all Nodes. Sorted.
	ClusterPods              []netip.Prefix
	InternalIPs, ExternalIPs []netip.Addr
	// ServerPrefixes are the /64 that the provider routes to each node's machine,
	// where pods have a part of it; sorted.
	ServerPrefixes []netip.Prefix
	// Ingress are the connections that load balancers may open to the node's pods: of
	// IPv6, to addresses that are in PodCIDRs and public.
	Ingress []podingress.Ingress
	// Uplinks are the interfaces over which nodes talk to each other; IPv4Uplinks those of them
	// that have an IPv4 InternalIP, or were named.
	Uplinks, IPv4Uplinks []string
	// RouterAdvertised are interfaces with IPv6 routes from router
	// advertisements.
	RouterAdvertised []string
	// ProxyARP are interfaces on which the kernel answers ARP for pods.
	ProxyARP []string
	// MTU is the smallest of the interfaces that packets of pods leave through.
	MTU int
}

// ErrNoNode means that nothing may be decided about routes: the machine's Node isn't
// there, so perhaps this is not the whole cluster, or another.
var ErrNoNode = errors.New("this machine's Node does not exist")

// Decide says what the kernel's table should hold and what differs. It returns
// ErrNoNode, and nothing else, as an error. The decision then has Proxies alone, which
// end the answers for podCIDRs that other Nodes have by now.
func Decide(s Situation) (Decision, error) {
	at := slices.IndexFunc(s.Nodes, func(n *kube.Node) bool { return n.Name == s.Self })
	if at < 0 {
		return Decision{Proxies: diffProxies(nil, s.Proxies, s.unclaimed(nil))}, fmt.Errorf("deciding on routes among %d Nodes: %s: %w", len(s.Nodes), s.Self, ErrNoNode)
	}
	d := &decider{Situation: s, self: s.Nodes[at], lookup: newLookup(s.Table), peers: map[string]string{}, held: map[netip.Prefix]netip.Addr{}}
	d.uplinks = d.findUplinks()
	for _, p := range d.self.PodCIDRs {
		d.want = append(d.want, WantedEntry{refusing(p), "", "own podCIDR: what has no pod is refused here"})
	}
	for _, ipv4 := range []bool{true, false} {
		switch mode := s.Modes.of(ipv4); {
		case mode == ByNodes:
			d.peerRoutes(ipv4)
			d.refuseTheRest(ipv4)
		case mode == ByCloud && ipv4 && d.dedicated():
			d.acrossVSwitch()
		case mode == ByCloud:
			d.aggregates(ipv4)
		}
	}
	// A Node that was made anew gets its podCIDRs again in a moment, and its pods run.
	if len(d.self.PodCIDRs) == 0 {
		d.staying = d.unclaimed(nil)
	}
	view := d.view()
	view.Ingress = d.ingress()
	plan := Diff(d.want, s.Table, d.held)
	for _, r := range plan.Refused {
		if r.Node != "" {
			d.lost(r.Node, r.String())
		} else {
			d.faults = append(d.faults, r.String())
		}
	}
	return Decision{
		Want: d.want, Plan: plan, Answers: d.answers, Proxies: diffProxies(d.answers, s.Proxies, d.staying),
		Peers: d.sortedPeers(), Faults: d.faults, Warnings: append(d.warnings, d.distrust()...), View: view, UID: d.self.UID,
	}, nil
}

type decider struct {
	Situation
	self    *kube.Node
	lookup  lookup
	uplinks []Link
	want    []WantedEntry
	// held are destinations to which a route of ours via that address is left standing.
	held map[netip.Prefix]netip.Addr
	// answers are what ARP is to be answered for, on the interfaces answering; what
	// is answered for now stays so where staying says it; nil: nowhere.
	answers   []Proxy
	answering []string
	staying   func(netip.Addr) bool
	peers     map[string]string
	faults    []string
	warnings  []string
	// doubtful are Nodes with an address that is not trusted.
	doubtful []Peer
}

// lost notes why a peer can't be reached; the first reason stays.
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

// peerRoutes wants a route to every peer's podCIDR of a family.
func (d *decider) peerRoutes(ipv4 bool) {
	planned := make([]routes.Node, 0, len(d.Nodes))
	for _, n := range d.Nodes {
		planned = append(planned, plannedNode(n, ipv4))
	}
	d.leadTo(planned, fmt.Sprintf("has no %s InternalIP; set the kubelet's --node-ip, or have the cloud controller manager report one", family(ipv4)))
}

// leadTo wants a route to every destination of the peers. lacking is what to say of
// one without an address. It returns the destinations of this machine that an older
// Node has.
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
		d.want = append(d.want, WantedEntry{toward(peer.Dst, peer.Via, link.Index), peer.Node, "its InternalIP is a neighbor on " + link.Name})
		// A machine that is down answers nobody, and everybody knows already.
		if d.Unresolved[peer.Via] && ready[peer.Node] {
			d.lost(peer.Node, fmt.Sprintf("InternalIP %s does not answer on %s; check that both machines share that segment", peer.Via, link.Name))
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
		if dup.Node == d.Self { // and so no other node has a route here
			d.faults = append(d.faults, dup.String())
			lost = append(lost, dup.Dst)
			continue
		}
		d.lost(dup.Node, dup.String())
	}
	return lost
}

// refuseTheRest wants packets for podCIDRs that no node has refused here: else they
// would leave through the default route. The routes to peers are longer or, where
// one peer has a whole pool, better. Where the cloud's table routes a family, its
// gateway has the packets, and a machine may reach pods by the network's own route,
// which is shorter than a pool.
func (d *decider) refuseTheRest(ipv4 bool) {
	for _, p := range d.PodRanges {
		if p.Addr().Is4() == ipv4 && !slices.Contains(d.self.PodCIDRs, p) {
			d.want = append(d.want, WantedEntry{refusing(p), "", "pods' range: what no node has is refused here"})
		}
	}
}

// neighbor returns the uplink on which the address is a neighbor, or why it is
// not one.
func (d *decider) neighbor(addr netip.Addr) (Link, string) {
	e, ok := d.lookup.route(addr, addr.BitLen())
	if !ok || e.Kind != Unicast {
		return Link{}, fmt.Sprintf("InternalIP %s has no route; check the uplinks %s", addr, d.uplinkNames())
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
	if len(d.uplinks) == 0 {
		return "(none found)"
	}
	names := make([]string, len(d.uplinks))
	for i, l := range d.uplinks {
		names[i] = l.Name
	}
	return strings.Join(names, ", ")
}

func family(ipv4 bool) string {
	if ipv4 {
		return "IPv4"
	}
	return "IPv6"
}

// nameUnreachable adds a peer unless it is named already.
func (d *Decision) nameUnreachable(node, problem string) {
	at, found := slices.BinarySearchFunc(d.Peers, node, func(p Peer, name string) int { return cmp.Compare(p.Node, name) })
	if !found {
		d.Peers = slices.Insert(d.Peers, at, Peer{node, problem})
	}
}
