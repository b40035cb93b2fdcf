package survey

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/vswitch"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/routes"
	"github.com/underlay-ccm/underlay/routes/agent"
)

// NodesView lists the podCIDRs of Nodes and their routes.
type NodesView struct {
	Nodes []NodeRow `json:"nodes"`
	// Gone are deleted Nodes with podCIDRs in quarantine.
	Gone    []GoneRow `json:"gone,omitempty"`
	NotSeen []string  `json:"notSeen,omitempty"`
}

// GoneRow is a deleted Node.
type GoneRow struct {
	Name     string         `json:"name"`
	UID      string         `json:"uid"`
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	Released time.Time      `json:"released"`
	// Free is the earliest time at which its podCIDRs can be allocated again.
	Free time.Time `json:"free,omitzero"`
}

// NodeRow is an existing Node.
type NodeRow struct {
	Name     string         `json:"name"`
	PodCIDRs []netip.Prefix `json:"podCIDRs"`
	Route    RouteState     `json:"route"`
	// Families maps IPv4 and IPv6 to their routing: cloud, native, node, vswitch or none.
	Families map[string]string `json:"families"`
	// The conditions; nil if the Node lacks them.
	Ready              *ConditionRow `json:"ready,omitempty"`
	NetworkUnavailable *ConditionRow `json:"networkUnavailable,omitempty"`
	PodCIDRsAllocated  *ConditionRow `json:"podCIDRsAllocated,omitempty"`
	PeersReachable     *ConditionRow `json:"peersReachable,omitempty"`
	// Why lists the problems of the Node with their remedies.
	Why []string `json:"why,omitempty"`

	// WireGuardPorts are those of its devices. After the first follow those being replaced.
	WireGuardPorts []int `json:"wireGuardPorts,omitempty"`

	ProviderID string `json:"providerID,omitempty"`
	// Server is the server's name and status, or that it doesn't exist; empty if unknown.
	Server  string        `json:"server,omitempty"`
	Created time.Time     `json:"created"`
	Age     time.Duration `json:"-"`
}

// RouteState is a Node's route in the cloud's network.
type RouteState struct {
	Via   netip.Addr `json:"via,omitzero"`
	State string     `json:"state"`
	// Reach is why tunnels connect the Node; empty if they connect all Nodes.
	Reach kube.Reach `json:"reach,omitempty"`
}

func (r RouteState) String() string {
	if r.Reach != "" {
		return r.State + ": " + string(r.Reach)
	}
	return r.State
}

// The states of a Node's route.
const (
	RouteStands    = "stands"
	RouteMissing   = "missing"
	RouteStale     = "stale" // its gateway is not the Node's, which has no server
	RouteTunnel    = "tunnel"
	RouteNotNeeded = "not needed"
	RouteNotSeen   = "not seen"
	RouteNoPodCIDR = "no podCIDR yet"
)

// ConditionRow is a condition of a Node or a Service.
type ConditionRow struct {
	Status  string    `json:"status"`
	Reason  string    `json:"reason,omitempty"`
	Message string    `json:"message,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

func (c *ConditionRow) String() string {
	return strings.TrimSpace(c.Status + " " + c.Reason)
}

// NodesParts are the parts of NodesOf, of which only PartNodes is required.
const NodesParts = PartConfig | PartNodes | PartLedger | PartRouteRecord | PartServiceCIDRs | PartNetwork | PartServers

// NodesOf returns the state of every Node.
func NodesOf(s *Snapshot) (NodesView, error) {
	if err := s.Require(PartNodes); err != nil {
		return NodesView{}, err
	}
	v := NodesView{Nodes: make([]NodeRow, 0, len(s.Nodes)), NotSeen: s.NotSeen()}
	k := knowledge{s: s, warnings: map[string][]string{}}
	if s.Saw(PartConfig) && len(s.Config.IPAM.Pools) > 0 {
		if book, err := s.Book(); err == nil {
			for _, w := range book.Warnings {
				k.warnings[w.Node.UID] = append(k.warnings[w.Node.UID], w.String())
			}
		}
	}
	k.look()
	if k.err != nil {
		v.NotSeen = append(v.NotSeen, serversUnknown+k.err.Error())
	}
	for _, n := range s.Nodes {
		v.Nodes = append(v.Nodes, k.row(n))
	}
	holdings, _ := s.Holdings() // doctor reports damage
	for _, h := range holdings {
		if h.Released.IsZero() {
			continue
		}
		row := GoneRow{Name: h.Node.Name, UID: h.Node.UID, PodCIDRs: slices.Concat(h.Prefixes, h.Abandoned), Released: h.Released}
		if s.Saw(PartConfig) {
			row.Free = h.Released.Add(s.Config.IPAM.Quarantine)
		}
		v.Gone = append(v.Gone, row)
	}
	return v, nil
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
	stale    map[netip.Prefix]bool // destinations whose gateway is not the Node's
	absent   map[string]Absence    // Nodes without a server, by name
	statuses map[string]routes.NodeStatus
	servers  map[string]*cloud.Machine // by provider ID
}

func (k *knowledge) look() {
	s := k.s
	k.servers = make(map[string]*cloud.Machine, len(s.Servers))
	for i := range s.Servers {
		k.servers[s.Servers[i].ProviderID()] = &s.Servers[i]
	}
	if s.Saw(PartServers) {
		if k.absent, k.err = s.Absences(); k.err != nil {
			return
		}
	}
	if !s.RoutesOn() || !s.Saw(PartNetwork|PartServers) {
		return
	}
	r, err := s.Routing()
	if err != nil {
		k.err = err
		return
	}
	k.routing, k.statuses, k.stands, k.stale = &r, r.NodeStatuses(), make(map[netip.Prefix]routes.Route, len(s.Network.Routes)), map[netip.Prefix]bool{}
	for _, route := range s.Network.Routes {
		k.stands[route.Dst] = route
	}
	for _, d := range s.astray(r, k.absent) {
		k.stale[d.Destination] = true
	}
}

func (k *knowledge) row(n *corev1.Node) NodeRow {
	prefixes, unreadable := kube.PodCIDRs(n)
	row := NodeRow{
		Name: n.Name, PodCIDRs: slices.Concat([]netip.Prefix{}, prefixes), Families: k.families(prefixes), Route: k.route(n, prefixes),
		Ready:              condition(n, corev1.NodeReady),
		NetworkUnavailable: condition(n, corev1.NodeNetworkUnavailable),
		PodCIDRsAllocated:  condition(n, ipamcontroller.PodCIDRsAllocated),
		PeersReachable:     condition(n, agent.PeersReachable),
		ProviderID:         n.Spec.ProviderID, Created: n.CreationTimestamp.Time, Age: k.s.Taken.Sub(n.CreationTimestamp.Time),
	}
	if server := k.server(n); server != nil {
		row.Server = server.Name + " (" + server.Status + ")"
	} else if _, absent := k.absent[n.Name]; absent {
		row.Server = "does not exist"
	}
	if w := kube.WireGuardOf(n); w != nil {
		for _, key := range w.Keys {
			row.WireGuardPorts = append(row.WireGuardPorts, key.Port)
		}
	}
	if unreadable != nil {
		row.Why = append(row.Why, unreadable.Error())
	}
	row.Why = append(row.Why, k.why(n, row)...)
	return row
}

func (k *knowledge) server(n *corev1.Node) *cloud.Machine {
	if k.routing != nil {
		return k.servers[k.routing.Gateways.IDs[n.Name]]
	}
	return k.servers[n.Spec.ProviderID]
}

func condition(n *corev1.Node, kind corev1.NodeConditionType) *ConditionRow {
	c := kube.Condition(n, kind)
	if c == nil {
		return nil
	}
	return &ConditionRow{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time}
}

func (k *knowledge) families(prefixes []netip.Prefix) map[string]string {
	out := map[string]string{}
	if !k.s.Saw(PartConfig) {
		return out
	}
	c := k.s.Config
	for _, p := range prefixes {
		if !p.Addr().Is4() {
			out["IPv6"] = string(c.Families.IPv6)
			continue
		}
		out["IPv4"] = string(c.Families.IPv4)
		switch {
		case k.s.VSwitch().Holds(p):
			out["IPv4"] = sourceVSwitch
		case c.Families.IPv4 == config.RoutedByCloud && !c.Routes.Enabled:
			out["IPv4"] = string(config.Unrouted)
		}
	}
	return out
}

// route returns the state of the Node's IPv4 podCIDR; networks carry no IPv6.
func (k *knowledge) route(n *corev1.Node, prefixes []netip.Prefix) RouteState {
	s := k.s
	vSwitch := s.VSwitch()
	routed := slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Addr().Is4() && !vSwitch.Holds(p) })
	switch {
	case !s.Saw(PartConfig):
		return RouteState{State: RouteNotSeen}
	case !s.Config.Routes.Enabled:
		return RouteState{State: RouteNotNeeded}
	case len(prefixes) == 0:
		return RouteState{State: RouteNoPodCIDR}
	case !routed:
		return RouteState{State: RouteNotNeeded}
	case k.routing == nil:
		return RouteState{State: RouteNotSeen}
	}
	switch k.statuses[n.Name].Reason {
	case routes.TunnelCreated, routes.NoTunnel:
		return RouteState{State: RouteTunnel, Reach: kube.ReachOf(n)}
	}
	via := k.routing.Gateways.Of[n.Name]
	for _, p := range prefixes {
		needed := routes.NodeRoute{Route: routes.Route{Dst: p, Via: via}, Aliases: k.routing.Gateways.Aliases[n.Name]}
		if r, ok := k.stands[p]; ok && needed.MetBy(r) {
			return RouteState{Via: r.Via, State: RouteStands}
		}
		if k.stale[p] {
			return RouteState{Via: k.stands[p].Via, State: RouteStale}
		}
	}
	return RouteState{Via: via, State: RouteMissing}
}

// why returns the problems of the Node, the root cause first.
func (k *knowledge) why(n *corev1.Node, row NodeRow) []string {
	var out []string
	add := func(text string) {
		if text != "" && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if c := row.PodCIDRsAllocated; c != nil && c.Status == string(corev1.ConditionFalse) {
		add(c.Message)
	}
	absence, absent := k.absent[n.Name]
	if absent {
		add(absence.Text)
	}
	if k.routing != nil {
		if v := k.statuses[n.Name]; !absent && !v.Reachable && !(len(row.PodCIDRs) == 0 && len(out) > 0) {
			add(v.Message)
		}
	} else if c := row.NetworkUnavailable; c != nil && c.Status != string(corev1.ConditionFalse) {
		add(c.Message)
	}
	if c := row.PeersReachable; c != nil && c.Status != string(corev1.ConditionTrue) {
		add(c.Message)
	}
	if c := condition(n, vswitch.MemberCondition); c != nil && c.Status == string(corev1.ConditionFalse) {
		add(c.Message)
	}
	for _, text := range k.warnings[string(n.UID)] {
		add(text)
	}
	return out
}
