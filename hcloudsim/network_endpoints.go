package hcloudsim

import (
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func networkOperations() []operation {
	k := kind[*network]{
		name: kindNetwork, plural: "networks",
		rows: func(p *project) *table[*network] { return &p.networks },
		body: func(p *project, n *network) any { return p.networkBody(n) },
		edit: func(n *network, req updateRequest) error {
			set(&n.exposeRoutes, req.ExposeRoutes)
			return nil
		},
		remove: (*call).deleteNetwork,
	}
	return append(k.operations((*call).createNetwork,
		on(k, "add_route", (*call).addRoute),
		on(k, "delete_route", (*call).deleteRoute),
		on(k, "add_subnet", (*call).addSubnet),
		on(k, "delete_subnet", (*call).deleteSubnet),
		on(k, "change_ip_range", (*call).changeIPRange),
		k.protection(),
	), k.view("members", (*call).listMembers))
}

func (c *call) createNetwork() (reply, error) {
	req, err := decode[schema.NetworkCreateRequest](c)
	if err != nil {
		return reply{}, err
	}
	n, err := c.project.createNetwork(req)
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusCreated, kindNetwork, c.networkBody(n))
}

// createNetwork creates the network at once: the API has no action for it.
func (p *project) createNetwork(req schema.NetworkCreateRequest) (*network, error) {
	if exceeds(len(p.networks.rows), p.opts.NetworkLimit) {
		return nil, errLimit("network_limit", p.opts.NetworkLimit)
	}
	b, err := newNamed(&p.networks, checkName, req.Name, req.Labels)
	if err != nil {
		return nil, err
	}
	ipRange, err := parsePrefix("ip_range", req.IPRange)
	if err != nil {
		return nil, err
	}
	if err := checkNetworkRange(ipRange); err != nil {
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
	n.base = p.newBase(b.name, b.labels)
	p.networks.add(n)
	return n, nil
}

// deleteNetwork deletes the network at once and detaches its members.
func (c *call) deleteNetwork(n *network) (reply, error) {
	c.removeNetwork(n)
	return reply{status: http.StatusNoContent}, nil
}

func (p *project) removeNetwork(n *network) {
	for _, s := range p.servers.rows {
		s.detach(n.id)
	}
	for _, lb := range p.loadBalancers.rows {
		lb.detach(n.id)
	}
	p.networks.remove(n.id)
}
