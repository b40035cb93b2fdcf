package hcloudsim

import (
	"cmp"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (c *call) addRoute(n *network, req schema.NetworkActionAddRouteRequest) (change, error) {
	r, err := c.placeRoute(n, schema.NetworkRoute(req))
	return change{
		command: "add_route",
		adds:    r,
		undo:    func() { n.routes = without(n.routes, r) },
	}, err
}

func (p *project) placeRoute(n *network, req schema.NetworkRoute) (*route, error) {
	r, err := parseRoute(req)
	if err == nil {
		err = n.checkRoute(r)
	}
	if err == nil && exceeds(len(n.routes), p.opts.RouteLimit) {
		err = errLimit("network_route_limit", p.opts.RouteLimit)
	}
	if err != nil {
		return nil, err
	}
	n.routes = append(n.routes, r)
	return r, nil
}

func parseRoute(req schema.NetworkRoute) (*route, error) {
	destination, err := parsePrefix("destination", req.Destination)
	if err != nil {
		return nil, err
	}
	gateway, err := parseAddr("gateway", req.Gateway)
	return &route{destination, gateway}, err
}

func (c *call) deleteRoute(n *network, req schema.NetworkActionDeleteRouteRequest) (change, error) {
	requested, err := parseRoute(schema.NetworkRoute(req))
	if err != nil {
		return change{}, err
	}
	r := first(n.routes, func(r *route) bool { return *r == *requested })
	if r == nil {
		return change{}, errMissing("the network has no such route")
	}
	finish := func() { n.routes = without(n.routes, r) }
	return change{command: "delete_route", finish: finish}, nil
}

func (c *call) addSubnet(n *network, req schema.NetworkActionAddSubnetRequest) (change, error) {
	s, err := c.placeSubnet(n, schema.NetworkSubnet{
		Type: req.Type, IPRange: req.IPRange, NetworkZone: req.NetworkZone, VSwitchID: req.VSwitchID,
	})
	return change{
		command: "add_subnet",
		adds:    s,
		undo:    func() { n.subnets = without(n.subnets, s) },
	}, err
}

// placeSubnet validates a subnet and adds it. Without a range it gets the first free /24.
func (p *project) placeSubnet(n *network, req schema.NetworkSubnet) (*subnet, error) {
	if exceeds(len(n.subnets), p.opts.SubnetLimit) {
		return nil, errLimit("network_subnet_limit", p.opts.SubnetLimit)
	}
	s := &subnet{kind: req.Type, zone: req.NetworkZone, vSwitch: req.VSwitchID}
	var err error
	if req.IPRange == "" {
		s.ipRange, err = n.freeSubnet()
	} else {
		s.ipRange, err = parsePrefix("ip_range", req.IPRange)
	}
	if err := cmp.Or(err, n.checkSubnet(s, p.catalog)); err != nil {
		return nil, err
	}
	for _, other := range p.networks.rows {
		used := func(theirs *subnet) bool { return s.vSwitch != 0 && theirs.vSwitch == s.vSwitch }
		if other != n && slices.ContainsFunc(other.subnets, used) {
			return nil, errRefused("vswitch_id_already_used",
				"vSwitch %d is already in network %d", s.vSwitch, other.id)
		}
	}
	n.subnets = append(n.subnets, s)
	return s, nil
}

func (c *call) deleteSubnet(
	n *network, req schema.NetworkActionDeleteSubnetRequest,
) (change, error) {
	ipRange, err := parsePrefix("ip_range", req.IPRange)
	if err != nil {
		return change{}, err
	}
	s := first(n.subnets, func(s *subnet) bool { return s.ipRange == ipRange })
	if s == nil {
		return change{}, errMissing("the network has no such subnet")
	}
	// "Subnets containing attached resources can not be deleted, they must be detached beforehand"
	// (DELETE of a subnet in the API's description). Users report that this includes load
	// balancers. Terraform's provider matches the code and both messages
	// (hetznercloud/terraform-provider-hcloud#412 and #1523). That the second message is for load
	// balancers is a guess.
	for m := range c.members(n.id) {
		switch {
		case !m.attachment.isIn(s.ipRange):
		case m.kind == kindServer:
			return change{}, errRefused("service_error",
				"cannot remove subnet because servers are attached to it")
		default:
			return change{}, errRefused("service_error", "network has attached resources")
		}
	}
	finish := func() { n.subnets = without(n.subnets, s) }
	return change{command: "delete_subnet", finish: finish}, nil
}

func (c *call) changeIPRange(
	n *network, req schema.NetworkActionChangeIPRangeRequest,
) (change, error) {
	to, err := parsePrefix("ip_range", req.IPRange)
	extends := to.Addr() == n.ipRange.Addr() && to.Bits() <= n.ipRange.Bits()
	if err = cmp.Or(err, checkNetworkRange(to)); err == nil && !extends {
		err = errInvalid("ip_range", "must extend %s with the same first address", n.ipRange)
	}
	return change{command: "change_ip_range", finish: func() { n.ipRange = to }}, err
}
