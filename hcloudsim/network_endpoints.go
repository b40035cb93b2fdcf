package hcloudsim

import (
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (c *call) network() (*network, error) { return found(c, &c.networks, kindNetwork) }

func (c *call) listNetworks() (reply, error) {
	chosen, err := selected(c, &c.networks)
	if err != nil {
		return reply{}, err
	}
	return list(c, "networks", chosen, byBase[*network](), c.networkBody)
}

func (c *call) getNetwork() (reply, error) {
	n, err := c.network()
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindNetwork, c.networkBody(n))
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
	if err := checkName(req.Name); err != nil {
		return nil, err
	}
	if err := p.networks.nameFree(req.Name, 0); err != nil {
		return nil, err
	}
	ipRange, err := parsePrefix("ip_range", req.IPRange)
	if err != nil {
		return nil, err
	}
	if err := checkNetworkRange(ipRange); err != nil {
		return nil, err
	}
	labels, err := newLabels(req.Labels)
	if err != nil {
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
	n.base = p.newBase(req.Name, labels)
	p.networks.add(n)
	return n, nil
}

func (c *call) updateNetwork() (reply, error) {
	n, err := c.network()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.NetworkUpdateRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(n.ref()); err != nil {
		return reply{}, err
	}
	if req.Name != "" {
		if err := checkName(req.Name); err != nil {
			return reply{}, err
		}
		if err := c.networks.nameFree(req.Name, n.id); err != nil {
			return reply{}, err
		}
	}
	if err := n.update(req.Name, req.Labels); err != nil {
		return reply{}, err
	}
	if req.ExposeRoutesToVSwitch != nil {
		n.exposeRoutes = *req.ExposeRoutesToVSwitch
	}
	return ok(http.StatusOK, kindNetwork, c.networkBody(n))
}

// deleteNetwork deletes the network at once and detaches its members.
func (c *call) deleteNetwork() (reply, error) {
	n, err := c.network()
	if err != nil {
		return reply{}, err
	}
	if n.protected {
		return reply{}, errProtected(kindNetwork)
	}
	if err := c.idle(n.ref()); err != nil {
		return reply{}, err
	}
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
