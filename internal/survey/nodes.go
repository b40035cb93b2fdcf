package survey

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/table"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// The states of a Node's route in the cloud's network.
const (
	RouteStands    = "stands"
	RouteMissing   = "missing"
	RouteStale     = "stale" // its gateway is not the Node's
	RouteTunnel    = "tunnel"
	RouteNotNeeded = "not needed"
	RouteNotSeen   = "not seen"
	RouteNoPodCIDR = "no podCIDR yet"
)

// NodesParts are the parts of NodesOf, of which only PartNodes is required.
const NodesParts = PartConfig | PartNodes | PartLedger | PartRouteRecord | PartServiceCIDRs |
	PartNetwork | PartServers

// NodesOf shows the podCIDRs of Nodes, their routes and their conditions, and deleted Nodes with
// podCIDRs in quarantine.
func NodesOf(s *Snapshot) (table.Page, error) {
	if err := s.Require(PartNodes); err != nil {
		return table.Page{}, err
	}
	out := table.Page{NotSeen: s.NotSeen()}
	k := knowledgeOf(s)
	if k.err != nil {
		out.NotSeen = append(out.NotSeen, serversUnknown+k.err.Error())
	}
	nodes := table.New("nodes", "", "NODE", "PODCIDRS", "ROUTE", "VIA", "FAMILIES", "+READY",
		"NETWORKUNAVAILABLE", "PODCIDRSALLOCATED", "PEERSREACHABLE", "+CREATED", "+PROVIDER ID",
		"+SERVER", "+WIREGUARD PORTS", "WHY")
	for _, n := range s.Nodes {
		k.add(&nodes, n)
	}
	if len(s.Nodes) == 0 {
		out.Lines = []string{"The cluster has no Nodes."}
	}
	gone := table.New("gone", "Gone, podCIDRs in quarantine",
		"NODE", "PODCIDRS", "RELEASED", "FREE AGAIN", "+UID")
	holdings, _ := s.Holdings() // doctor reports damage
	for _, h := range holdings {
		if h.Released.IsZero() {
			continue
		}
		free := any(table.None)
		if s.Saw(PartConfig) {
			free = h.Released.Add(s.Config.IPAM.Quarantine)
		}
		gone.Add(h.Node.Name, slices.Concat(h.Prefixes, h.Abandoned), h.Released, free,
			h.Node.UID).About = "Node/" + h.Node.Name
	}
	out.Tables = []table.Table{nodes, gone}
	return out, nil
}

// serversUnknown is the prefix of an error that prevents matching Nodes and servers.
const serversUnknown = "servers of the Nodes: "

// knowledge is the input from which rows are derived.
type knowledge struct {
	s        *Snapshot
	warnings map[string][]string // warnings of the Book, by UID
	routing  *routes.Decision    // nil if unknown or nothing is routed
	err      error               // why routing or absent is unknown
	stands   map[netip.Prefix]routes.Route
	absent   map[string]Absence // Nodes without a server, by name
	statuses map[string]routes.NodeStatus
	servers  map[string]*cloud.Machine // by provider ID
}

func knowledgeOf(s *Snapshot) *knowledge {
	k := &knowledge{
		s: s, warnings: map[string][]string{}, stands: map[netip.Prefix]routes.Route{},
		servers: make(map[string]*cloud.Machine, len(s.Servers)),
	}
	if s.Saw(PartConfig) && len(s.Config.IPAM.Pools) > 0 {
		if book, err := s.Book(); err == nil {
			for _, w := range book.Warnings {
				k.warnings[w.Node.UID] = append(k.warnings[w.Node.UID], w.String())
			}
		}
	}
	for i := range s.Servers {
		k.servers[s.Servers[i].ProviderID()] = &s.Servers[i]
	}
	if s.Saw(PartServers) {
		if k.absent, k.err = s.Absences(); k.err != nil {
			return k
		}
	}
	if !s.RoutesOn() || !s.Saw(PartNetwork|PartServers) {
		return k
	}
	r, err := s.Routing()
	if err != nil {
		k.err = err
		return k
	}
	k.routing, k.statuses = &r, r.NodeStatuses()
	for _, route := range s.Network.Routes {
		k.stands[route.Dst] = route
	}
	return k
}

func (k *knowledge) add(t *table.Table, n *corev1.Node) {
	prefixes, unreadable := kube.PodCIDRs(n)
	server := table.None
	if found := k.server(n); found != nil {
		server = found.Name + " (" + found.Status + ")"
	} else if _, absent := k.absent[n.Name]; absent {
		server = "does not exist"
	}
	var ports []int // after the first follow those being replaced
	if w := kube.WireGuardOf(n); w != nil {
		for _, key := range w.Keys {
			ports = append(ports, key.Port)
		}
	}
	why := k.why(n, len(prefixes) > 0)
	if unreadable != nil {
		why = slices.Insert(why, 0, unreadable.Error())
	}
	route, via := k.route(n, prefixes)
	t.Add(n.Name, prefixes, route, via, table.OrNone(k.families(prefixes)),
		conditionCell(n, corev1.NodeReady, corev1.ConditionTrue),
		conditionCell(n, corev1.NodeNetworkUnavailable, corev1.ConditionFalse),
		conditionCell(n, ipamcontroller.PodCIDRsAllocated, corev1.ConditionTrue),
		conditionCell(n, agent.PeersReachable, corev1.ConditionTrue),
		n.CreationTimestamp.Time, table.OrNone(n.Spec.ProviderID), server, ports,
		table.Warn.Cell(strings.Join(why, "; "))).About = "Node/" + n.Name
}

func (k *knowledge) server(n *corev1.Node) *cloud.Machine {
	if k.routing != nil {
		return k.servers[k.routing.Gateways.IDs[n.Name]]
	}
	return k.servers[n.Spec.ProviderID]
}

// conditionCell is Good if the condition has the wanted status.
func conditionCell(
	n *corev1.Node, kind corev1.NodeConditionType, wanted corev1.ConditionStatus,
) table.Cell {
	c := kube.Condition(n, kind)
	if c == nil {
		return table.Faint.Cell(table.None)
	}
	text := strings.TrimSpace(string(c.Status) + " " + c.Reason)
	return table.Toned(table.Good.Cell(text), table.Bad, c.Status != wanted)
}

// families returns how podCIDRs are routed, such as "IPv4 cloud, IPv6 native".
func (k *knowledge) families(prefixes []netip.Prefix) string {
	c := k.s.Config
	routing := map[bool]string{} // by whether the family is IPv6
	for _, p := range prefixes {
		switch {
		case !k.s.Saw(PartConfig):
		case p.Addr().Is6():
			routing[true] = ", IPv6 " + string(c.Families.IPv6)
		case k.s.VSwitch().Holds(p):
			routing[false] = ", IPv4 " + sourceVSwitch
		case c.Families.IPv4 == routes.ByCloud && !c.Routes.Enabled:
			routing[false] = ", IPv4 " + string(routes.Unrouted)
		default:
			routing[false] = ", IPv4 " + string(c.Families.IPv4)
		}
	}
	return strings.TrimPrefix(routing[false]+routing[true], ", ")
}

// route returns the state and the gateway of the Node's IPv4 podCIDR; networks carry no IPv6.
func (k *knowledge) route(
	n *corev1.Node, prefixes []netip.Prefix,
) (state table.Cell, via netip.Addr) {
	s := k.s
	vSwitch := s.VSwitch()
	routed := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool {
		return p.Addr().Is4() && !vSwitch.Holds(p)
	})
	switch {
	case !s.Saw(PartConfig):
		return table.Faint.Cell(RouteNotSeen), via
	case !s.Config.Routes.Enabled:
		return table.Faint.Cell(RouteNotNeeded), via
	case len(prefixes) == 0:
		return table.Bad.Cell(RouteNoPodCIDR), via
	case !routed:
		return table.Faint.Cell(RouteNotNeeded), via
	case k.routing == nil:
		return table.Faint.Cell(RouteNotSeen), via
	}
	switch k.statuses[n.Name].Reason {
	case routes.TunnelCreated, routes.NoTunnel:
		text := RouteTunnel
		if reach := kube.ReachOf(n); reach != "" { // else tunnels connect all Nodes
			text += ": " + string(reach)
		}
		return table.Good.Cell(text), via
	}
	via = k.routing.Gateways.Of[n.Name]
	for _, p := range prefixes {
		needed := routes.NodeRoute{
			Route: routes.Route{Dst: p, Via: via}, Aliases: k.routing.Gateways.Aliases[n.Name],
		}
		if r, ok := k.stands[p]; ok && needed.MetBy(r) {
			return table.Good.Cell(RouteStands), r.Via
		} else if ok {
			return table.Bad.Cell(RouteStale), r.Via
		}
	}
	return table.Bad.Cell(RouteMissing), via
}

// why returns the problems of the Node, the root cause first.
func (k *knowledge) why(n *corev1.Node, hasPodCIDRs bool) []string {
	var out []string
	add := func(text string) {
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	condition := func(kind corev1.NodeConditionType, bad ...corev1.ConditionStatus) {
		if c := kube.Condition(n, kind); c != nil && slices.Contains(bad, c.Status) {
			add(c.Message)
		}
	}
	condition(ipamcontroller.PodCIDRsAllocated, corev1.ConditionFalse)
	absence, absent := k.absent[n.Name]
	if absent {
		add(absence.Text)
	}
	if k.routing == nil {
		condition(corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.ConditionUnknown)
	} else if v := k.statuses[n.Name]; !absent && !v.Reachable && (hasPodCIDRs || len(out) == 0) {
		add(v.Message)
	}
	condition(agent.PeersReachable, corev1.ConditionFalse, corev1.ConditionUnknown)
	condition(vswitch.MemberCondition, corev1.ConditionFalse)
	for _, text := range k.warnings[string(n.UID)] {
		add(text)
	}
	return out
}

// Join concatenates the texts of values with a separator.
func Join[T fmt.Stringer](values []T, between string) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = v.String()
	}
	return strings.Join(texts, between)
}
