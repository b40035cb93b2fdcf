package hcloudsim

import "github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

func (p *project) attachLoadBalancer(lb *loadBalancer, n *network, wish place) error {
	if lb.private != nil {
		return errRefused("load_balancer_already_attached", "the load balancer is already attached to network %d", lb.private.network)
	}
	wish.zone = lb.location.NetworkZone
	a, err := p.findPlace(n, wish)
	if err != nil {
		return err
	}
	lb.private = a
	return nil
}

func (c *call) attachLoadBalancerToNetwork() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerActionAttachToNetworkRequest](c)
	if err != nil {
		return reply{}, err
	}
	n, err := must(&c.networks, kindNetwork, req.Network)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(n.ref()); err != nil {
		return reply{}, err
	}
	if err := c.attachLoadBalancer(lb, n, place{ip: req.IP, ipRange: req.IPRange}); err != nil {
		return reply{}, err
	}
	a := lb.private
	a.pending = true
	return c.started(c.begin(change{
		command: "attach_to_network",
		about:   []ref{lb.ref(), n.ref()},
		finish:  func() { a.pending = false },
		undo:    func() { lb.detach(n.id) },
	}))
}

// detachLoadBalancerFromNetwork also removes the targets reached through the network.
func (c *call) detachLoadBalancerFromNetwork() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerActionDetachFromNetworkRequest](c)
	if err != nil {
		return reply{}, err
	}
	n, err := must(&c.networks, kindNetwork, req.Network)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(n.ref()); err != nil {
		return reply{}, err
	}
	if lb.private == nil || lb.private.network != n.id {
		return reply{}, errRefused("load_balancer_not_attached_to_network", "the load balancer is not attached to network %d", n.id)
	}
	return c.started(c.begin(change{
		command: "detach_from_network",
		about:   []ref{lb.ref(), n.ref()},
		finish:  func() { lb.detach(n.id) },
	}))
}

func (c *call) changePublicInterface(enabled bool, command string) (reply, error) {
	lb, err := c.loadBalancer()
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(lb.ref()); err != nil {
		return reply{}, err
	}
	if !enabled && lb.private == nil {
		return reply{}, errRefused("load_balancer_not_attached_to_network", "the load balancer is not attached to a network")
	}
	for _, t := range lb.targets {
		if !enabled && !t.isPrivate() {
			return reply{}, errRefused("targets_without_use_private_ip", "the load balancer has targets that use the public IP")
		}
	}
	return c.rebalance(lb, command, func() { lb.public = enabled }, nil)
}

func (c *call) enablePublicInterface() (reply, error) {
	return c.changePublicInterface(true, "enable_public_interface")
}

func (c *call) disablePublicInterface() (reply, error) {
	return c.changePublicInterface(false, "disable_public_interface")
}
