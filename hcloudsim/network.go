package hcloudsim

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindNetwork = "network"

// network is a private IPv4 network. Its first address is the gateway.
type network struct {
	base
	ipRange netip.Prefix
	subnets []*subnet
	routes  []*route
	// exposeRoutes exposes the routes to the vSwitch. Only the data plane uses it.
	exposeRoutes bool
}

type subnet struct {
	kind    string // cloud, server (legacy name) or vswitch
	ipRange netip.Prefix
	zone    string
	vSwitch int64
}

type route = RouteSeed

func (n *network) ref() ref            { return ref{kindNetwork, n.id} }
func (n *network) gateway() netip.Addr { return n.ipRange.Addr().Next() }

func (s *subnet) isVSwitch() bool { return s.kind == subnetVSwitch }

// gateway returns the network's gateway; a vSwitch subnet, which is layer 2, has its own.
func (s *subnet) gateway(n *network) netip.Addr {
	if s.isVSwitch() {
		return s.ipRange.Addr().Next()
	}
	return n.gateway()
}

// subnetOf returns the subnet that contains an address, or nil.
func (n *network) subnetOf(ip netip.Addr) *subnet {
	return first(n.subnets, func(s *subnet) bool { return s.ipRange.Contains(ip) })
}

// networkSubnet is the schema's type with vswitch_id, which may be null but not absent.
type networkSubnet struct {
	schema.NetworkSubnet
	VSwitchID *int64 `json:"vswitch_id"`
}

type networkBody struct {
	schema.Network
	Subnets []networkSubnet `json:"subnets"`
}

func (p *project) renderNetwork(n *network) schema.Network {
	out := schema.Network{
		ID: n.id, Name: n.name, Created: n.created, Labels: cloneLabels(n.labels),
		IPRange: n.ipRange.String(), Servers: []int64{}, LoadBalancers: []int64{},
		Protection:            schema.NetworkProtection{Delete: n.protected},
		ExposeRoutesToVSwitch: n.exposeRoutes,
		Subnets: rendered(shown(p, n.subnets), func(s *subnet) schema.NetworkSubnet {
			return schema.NetworkSubnet{
				Type: s.kind, IPRange: s.ipRange.String(), NetworkZone: s.zone,
				Gateway: s.gateway(n).String(), VSwitchID: s.vSwitch,
			}
		}),
		Routes: rendered(shown(p, n.routes), func(r *route) schema.NetworkRoute {
			return r.request()
		}),
	}
	for m := range p.members(n.id) {
		switch {
		case p.creating[m.attachment]:
		case m.kind == kindServer:
			out.Servers = append(out.Servers, m.id)
		default:
			out.LoadBalancers = append(out.LoadBalancers, m.id)
		}
	}
	return out
}

func (p *project) networkBody(n *network) networkBody {
	out := networkBody{Network: p.renderNetwork(n)}
	out.Subnets = rendered(out.Network.Subnets, func(s schema.NetworkSubnet) networkSubnet {
		body := networkSubnet{NetworkSubnet: s}
		if s.VSwitchID != 0 {
			body.VSwitchID = &s.VSwitchID
		}
		return body
	})
	return out
}

func networkOperations() []operation {
	k := networkKind()
	add := func(c *call, req schema.NetworkCreateRequest) (*network, map[string]any, error) {
		n, err := c.addNetwork(req)
		return n, nil, err // the API has no action for it
	}
	return append(k.operations(create(k, add),
		on(k, "add_route", (*call).addRoute),
		on(k, "delete_route", (*call).deleteRoute),
		on(k, "add_subnet", (*call).addSubnet),
		on(k, "delete_subnet", (*call).deleteSubnet),
		on(k, "change_ip_range", (*call).changeIPRange),
		k.protection(),
	), k.view("/members", (*call).listMembers))
}

func networkKind() kind[*network] {
	return kind[*network]{
		name: kindNetwork, plural: "networks",
		rows: func(p *project) *table[*network] { return &p.networks },
		body: func(p *project, n *network) any { return p.networkBody(n) },
		edit: func(n *network, req updateRequest) error {
			set(&n.exposeRoutes, req.ExposeRoutes)
			return nil
		},
		drop: (*project).removeNetwork,
	}
}

// removeNetwork removes a network and detaches its members.
func (p *project) removeNetwork(n *network) {
	for _, s := range p.servers.rows {
		s.detach(n.id)
	}
	for _, lb := range p.loadBalancers.rows {
		lb.detach(n.id)
	}
	p.networks.remove(n.id)
}

func (p *project) addNetwork(req schema.NetworkCreateRequest) (*network, error) {
	b, err := networkKind().new(p, req.Name, req.Labels)
	if err != nil {
		return nil, err
	}
	ipRange, err := parsePrefix("ip_range", req.IPRange)
	if err := cmp.Or(err, checkNetworkRange(ipRange)); err != nil {
		return nil, err
	}
	n := &network{ipRange: ipRange, exposeRoutes: req.ExposeRoutesToVSwitch}
	for _, s := range req.Subnets {
		if _, err := p.placeSubnet(n, s); err != nil {
			return nil, err
		}
	}
	for _, r := range req.Routes {
		if _, err := p.placeRoute(n, r); err != nil {
			return nil, err
		}
	}
	n.base = p.newBase(b)
	p.networks.add(n)
	return n, nil
}

// idleNetwork returns the network with an ID, unless it is being changed.
func (p *project) idleNetwork(id int64) (*network, error) {
	n, err := must(&p.networks, kindNetwork, id)
	if err != nil {
		return nil, err
	}
	return n, p.idle(n.ref())
}

// listMembers implements GET /networks/{id}/members, which hcloud-go has and the description
// lacks. Unlike the network itself it includes members that are being attached.
func (c *call) listMembers(n *network) (reply, error) {
	query := c.request.URL.Query()
	for _, subnet := range query["subnet"] {
		if _, err := netip.ParsePrefix(subnet); err != nil {
			return reply{}, errInvalid("subnet", "'%s' is not in CIDR notation", subnet)
		}
	}
	if err := oneOf(query, "type", kindServer, kindLoadBalancer); err != nil {
		return reply{}, err
	}
	chosen := []schema.NetworkMember{}
	for m := range c.members(n.id) {
		out := schema.NetworkMember{
			Type: m.kind, ID: m.id, IP: m.attachment.ip.String(), Status: c.memberStatus(m),
			AliasIPs: rendered(m.attachment.aliases, netip.Addr.String),
		}
		if s := n.subnetOf(m.attachment.ip); s != nil {
			out.Subnet = s.ipRange.String()
		}
		if allows(query["type"], out.Type) && allows(query["status"], out.Status) &&
			allows(query["subnet"], out.Subnet) {
			chosen = append(chosen, out)
		}
	}
	by := order[schema.NetworkMember]{
		"id":   func(a, b schema.NetworkMember) int { return int(a.ID - b.ID) },
		"type": func(a, b schema.NetworkMember) int { return strings.Compare(a.Type, b.Type) },
		"ip": func(a, b schema.NetworkMember) int {
			return netip.MustParseAddr(a.IP).Compare(netip.MustParseAddr(b.IP))
		},
	}
	slices.SortStableFunc(chosen, by["id"])
	return list(c, "members", chosen, by,
		func(m schema.NetworkMember) schema.NetworkMember { return m })
}

// memberStatus returns a state of hcloud-go, except error, which can't occur here.
func (p *project) memberStatus(m member) string {
	if p.creating[m.attachment] {
		return "attaching"
	}
	for _, a := range p.actions.running {
		about := slices.Contains(a.about, m.ref) &&
			slices.Contains(a.about, ref{kindNetwork, m.attachment.network})
		switch {
		case about && a.command == "detach_from_network":
			return "detaching"
		case about && a.command == "change_alias_ips":
			return "updating"
		}
	}
	return "ok"
}
