package hcloudsim

import (
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (c *call) addRoute(
	n *network, req schema.NetworkActionAddRouteRequest,
) (change, error) {
	r, err := c.placeRoute(n, schema.NetworkRoute(req))
	if err != nil {
		return change{}, err
	}
	r.pending = true
	return change{
		command: "add_route",
		finish:  func() { r.pending = false },
		undo:    func() { n.drop(r) },
		begun: func(a *action) map[string]any {
			if a.failure == nil {
				r.ends = a.ends
			}
			return nil
		},
	}, nil
}

func (p *project) placeRoute(n *network, req schema.NetworkRoute) (*route, error) {
	r, err := parseRoute(req)
	if err != nil {
		return nil, err
	}
	if err := n.checkRoute(r); err != nil {
		return nil, err
	}
	if exceeds(len(n.routes), p.opts.RouteLimit) {
		return nil, errLimit("network_route_limit", p.opts.RouteLimit)
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
	return &route{destination: destination, gateway: gateway}, err
}

func (c *call) deleteRoute(n *network, req schema.NetworkActionDeleteRouteRequest) (change, error) {
	asked, err := parseRoute(schema.NetworkRoute(req))
	if err != nil {
		return change{}, err
	}
	for _, r := range n.routes {
		if r.destination == asked.destination && r.gateway == asked.gateway {
			return change{
				command: "delete_route",
				finish:  func() { n.drop(r) },
			}, nil
		}
	}
	return change{}, errMissing("the network has no such route")
}

func (c *call) addSubnet(n *network, req schema.NetworkActionAddSubnetRequest) (change, error) {
	s, err := c.placeSubnet(n, schema.NetworkSubnet{
		Type: req.Type, IPRange: req.IPRange, NetworkZone: req.NetworkZone, VSwitchID: req.VSwitchID,
	})
	if err != nil {
		return change{}, err
	}
	s.pending = true
	return change{
		command: "add_subnet",
		finish:  func() { s.pending = false },
		undo:    func() { n.dropSubnet(s) },
	}, nil
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
	if err != nil {
		return nil, err
	}
	if err := n.checkSubnet(s, p.catalog); err != nil {
		return nil, err
	}
	coupled := func(other *subnet) bool { return other.kind == subnetVSwitch }
	if p.opts.OneVSwitchSubnet && coupled(s) && slices.ContainsFunc(n.subnets, coupled) {
		return nil, errInvalid("type", "the network has a subnet of type vswitch already")
	}
	for _, other := range p.networks.rows {
		used := func(theirs *subnet) bool { return s.vSwitch != 0 && theirs.vSwitch == s.vSwitch }
		if other != n && slices.ContainsFunc(other.subnets, used) {
			return nil, errRefused("vswitch_id_already_used", "vSwitch %d is already in network %d", s.vSwitch, other.id)
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
	for _, s := range n.subnets {
		if s.ipRange != ipRange {
			continue
		}
		// "Subnets containing attached resources can not be deleted, they must be detached
		// beforehand" (DELETE of a subnet in the API's description). Users report that this
		// includes load balancers. Terraform's provider matches the code and both messages
		// (hetznercloud/terraform-provider-hcloud#412 and #1523). That the second message is for
		// load balancers is a guess.
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
		return change{
			command: "delete_subnet",
			finish:  func() { n.dropSubnet(s) },
		}, nil
	}
	return change{}, errMissing("the network has no such subnet")
}

func (c *call) changeIPRange(
	n *network, req schema.NetworkActionChangeIPRangeRequest,
) (change, error) {
	to, err := parsePrefix("ip_range", req.IPRange)
	if err != nil {
		return change{}, err
	}
	if err := n.checkExtension(to); err != nil {
		return change{}, err
	}
	return change{
		command: "change_ip_range",
		finish:  func() { n.ipRange = to },
	}, nil
}
