package hcloudsim

import (
	"net/netip"
	"slices"
	"time"

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
	pending bool       // a running action is creating it
	picked  netip.Addr // last address allocated to a member, see [Options.AddressesInTurn]
}

type route struct {
	destination netip.Prefix
	gateway     netip.Addr
	pending     bool
	// ends is when the adding action ends; zero if it fails, or for a seeded route.
	ends time.Time
}

func (n *network) ref() ref            { return ref{kindNetwork, n.id} }
func (n *network) gateway() netip.Addr { return n.ipRange.Addr().Next() }

// gateway returns the network's gateway; a vSwitch subnet, which is layer 2, has its own.
func (s *subnet) gateway(n *network) netip.Addr {
	if s.kind == subnetVSwitch {
		return s.ipRange.Addr().Next()
	}
	return n.gateway()
}

func (n *network) drop(r *route) {
	n.routes = slices.DeleteFunc(n.routes, func(other *route) bool { return other == r })
}

func (n *network) dropSubnet(s *subnet) {
	n.subnets = slices.DeleteFunc(n.subnets, func(other *subnet) bool { return other == s })
}

// subnetOf returns the subnet that contains an address, or nil.
func (n *network) subnetOf(ip netip.Addr) *subnet {
	for _, s := range n.subnets {
		if s.ipRange.Contains(ip) {
			return s
		}
	}
	return nil
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
		ID: n.id, Name: n.name, Created: n.created, IPRange: n.ipRange.String(),
		Subnets: []schema.NetworkSubnet{}, Routes: []schema.NetworkRoute{},
		Servers: []int64{}, LoadBalancers: []int64{},
		Protection: schema.NetworkProtection{Delete: n.protected},
		Labels:     cloneLabels(n.labels), ExposeRoutesToVSwitch: n.exposeRoutes,
	}
	for _, s := range n.subnets {
		if !s.pending {
			out.Subnets = append(out.Subnets, schema.NetworkSubnet{
				Type: s.kind, IPRange: s.ipRange.String(), NetworkZone: s.zone,
				Gateway: s.gateway(n).String(), VSwitchID: s.vSwitch,
			})
		}
	}
	for _, r := range n.routes {
		if !r.pending {
			out.Routes = append(out.Routes, schema.NetworkRoute{Destination: r.destination.String(), Gateway: r.gateway.String()})
		}
	}
	for m := range p.members(n.id) {
		if m.attachment.pending {
			continue
		}
		switch m.kind {
		case kindServer:
			out.Servers = append(out.Servers, m.id)
		case kindLoadBalancer:
			out.LoadBalancers = append(out.LoadBalancers, m.id)
		}
	}
	return out
}

func (p *project) networkBody(n *network) networkBody {
	out := networkBody{Network: p.renderNetwork(n), Subnets: []networkSubnet{}}
	for _, s := range out.Network.Subnets {
		body := networkSubnet{NetworkSubnet: s}
		if s.VSwitchID != 0 {
			body.VSwitchID = &s.VSwitchID
		}
		out.Subnets = append(out.Subnets, body)
	}
	return out
}
