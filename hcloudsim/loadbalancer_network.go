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

func (c *call) attachLoadBalancerToNetwork(
	lb *loadBalancer, req schema.LoadBalancerActionAttachToNetworkRequest,
) (change, error) {
	n, err := c.idleNetwork(req.Network)
	if err != nil {
		return change{}, err
	}
	if err := c.attachLoadBalancer(lb, n, place{ip: req.IP, ipRange: req.IPRange}); err != nil {
		return change{}, err
	}
	a := lb.private
	a.pending = true
	return change{
		command: "attach_to_network",
		about:   []ref{lb.ref(), n.ref()},
		finish:  func() { a.pending = false },
		undo:    func() { lb.detach(n.id) },
	}, nil
}

// detachLoadBalancerFromNetwork also removes the targets reached through the network.
func (c *call) detachLoadBalancerFromNetwork(
	lb *loadBalancer, req schema.LoadBalancerActionDetachFromNetworkRequest,
) (change, error) {
	n, err := c.idleNetwork(req.Network)
	if err != nil {
		return change{}, err
	}
	if lb.private == nil || lb.private.network != n.id {
		return change{}, errRefused("load_balancer_not_attached_to_network",
			"the load balancer is not attached to network %d", n.id)
	}
	return change{
		command: "detach_from_network",
		about:   []ref{lb.ref(), n.ref()},
		finish:  func() { lb.detach(n.id) },
	}, nil
}

// publicInterface returns an action that enables or disables the public interface.
func publicInterface(
	command string, enabled bool,
) func(*call, *loadBalancer, struct{}) (change, error) {
	return func(_ *call, lb *loadBalancer, _ struct{}) (change, error) {
		if !enabled && lb.private == nil {
			return change{}, errRefused("load_balancer_not_attached_to_network",
				"the load balancer is not attached to a network")
		}
		for _, t := range lb.targets {
			if !enabled && !t.isPrivate() {
				return change{}, errRefused("targets_without_use_private_ip",
					"the load balancer has targets that use the public IP")
			}
		}
		return change{command: command, finish: func() { lb.public = enabled }}, nil
	}
}
