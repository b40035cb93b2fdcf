package hcloudsim

import (
	"net/http"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	algorithmRoundRobin       = "round_robin"
	algorithmLeastConnections = "least_connections"
)

func checkAlgorithm(name string) error {
	if name != algorithmRoundRobin && name != algorithmLeastConnections {
		return errInvalid("algorithm.type", "must be one of %s, %s", algorithmRoundRobin, algorithmLeastConnections)
	}
	return nil
}

// balancing parses a request to change the load balancer in the path, which must be idle.
func balancing[T any](c *call) (lb *loadBalancer, req T, err error) {
	if lb, err = c.loadBalancer(); err != nil {
		return lb, req, err
	}
	if req, err = decode[T](c); err != nil {
		return lb, req, err
	}
	return lb, req, c.idle(lb.ref())
}

func (c *call) rebalance(lb *loadBalancer, command string, finish, undo func()) (reply, error) {
	return c.started(c.begin(change{command: command, about: []ref{lb.ref()}, finish: finish, undo: undo}))
}

func (c *call) addService() (reply, error) {
	lb, req, err := balancing[serviceRequest](c)
	if err != nil {
		return reply{}, err
	}
	s, err := c.placeService(lb, req)
	if err != nil {
		return reply{}, err
	}
	s.pending = true
	return c.rebalance(lb, "add_service",
		func() { s.pending, s.since = false, c.now },
		func() { lb.dropService(s) })
}

// placeService validates a service and adds it.
func (p *project) placeService(lb *loadBalancer, req serviceRequest) (*service, error) {
	s := (&service{}).with(req)
	s.since = p.now
	if err := s.check(); err != nil {
		return nil, err
	}
	if err := lb.checkPorts(s, nil, http.StatusPreconditionFailed); err != nil {
		return nil, err
	}
	if err := p.checkCertificates(lb, s, nil); err != nil {
		return nil, err
	}
	if exceeds(len(lb.services), lb.size.MaxServices) {
		return nil, errLimit("load_balancer_service_limit", lb.size.MaxServices)
	}
	lb.services = append(lb.services, s)
	return s, nil
}

func errNoService() error {
	return &Error{Status: http.StatusNotFound, Code: "not_found", Message: "the load balancer has no service with this listen port"}
}

func (c *call) updateService() (reply, error) {
	lb, req, err := balancing[serviceRequest](c)
	if err != nil {
		return reply{}, err
	}
	if req.ListenPort == nil {
		return reply{}, errInvalid("listen_port", "is required")
	}
	old := lb.serviceOn(*req.ListenPort)
	if old == nil {
		return reply{}, errNoService()
	}
	changed := old.with(req)
	if err := changed.check(); err != nil {
		return reply{}, err
	}
	if err := lb.checkPorts(changed, old, http.StatusUnprocessableEntity); err != nil {
		return reply{}, err
	}
	if err := c.checkCertificates(lb, changed, old); err != nil {
		return reply{}, err
	}
	return c.rebalance(lb, "update_service", func() {
		changed.since = c.now
		*old = *changed
	}, nil)
}

func (c *call) deleteService() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerDeleteServiceRequest](c)
	if err != nil {
		return reply{}, err
	}
	s := lb.serviceOn(req.ListenPort)
	if s == nil {
		return reply{}, errNoService()
	}
	return c.rebalance(lb, "delete_service", func() { lb.dropService(s) }, nil)
}

func (c *call) addTarget() (reply, error) {
	lb, req, err := balancing[targetRequest](c)
	if err != nil {
		return reply{}, err
	}
	t, err := c.placeTarget(lb, req)
	if err != nil {
		return reply{}, err
	}
	t.pending = true
	return c.rebalance(lb, "add_target",
		func() { t.pending, t.since = false, c.now },
		func() { lb.drop(t) })
}

// placeTarget validates a target and adds it.
func (p *project) placeTarget(lb *loadBalancer, req targetRequest) (*target, error) {
	t, err := req.parse()
	if err != nil {
		return nil, err
	}
	p.normalize(t)
	if err := p.checkTarget(lb, t); err != nil {
		return nil, err
	}
	t.since = p.now
	lb.targets = append(lb.targets, t)
	return t, nil
}

func (c *call) removeTarget() (reply, error) {
	lb, req, err := balancing[targetRequest](c)
	if err != nil {
		return reply{}, err
	}
	asked, err := req.parse()
	if err != nil {
		return reply{}, err
	}
	c.normalize(asked)
	for _, t := range lb.targets {
		if t.same(asked) {
			return c.rebalance(lb, "remove_target", func() { lb.drop(t) }, nil)
		}
	}
	return reply{}, &Error{Status: http.StatusNotFound, Code: "not_found", Message: "the load balancer has no such target"}
}

func (c *call) changeAlgorithm() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerActionChangeAlgorithmRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := checkAlgorithm(req.Type); err != nil {
		return reply{}, err
	}
	return c.rebalance(lb, "change_algorithm", func() { lb.algorithm = req.Type }, nil)
}

func (c *call) changeType() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerActionChangeTypeRequest](c)
	if err != nil {
		return reply{}, err
	}
	size, known := lookup(c.catalog.loadBalancerTypes, req.LoadBalancerType, loadBalancerTypeKey)
	if !known {
		return reply{}, errInvalid("load_balancer_type", "load balancer type does not exist")
	}
	used := 0
	for _, t := range lb.targets {
		used += c.weight(t)
	}
	if len(lb.services) > size.MaxServices || used > size.MaxTargets || len(lb.certificates(nil)) > size.MaxAssignedCertificates {
		return reply{}, errRefused("invalid_load_balancer_type", "the load balancer has more services, targets or certificates than %s allows", size.Name)
	}
	return c.rebalance(lb, "change_load_balancer_type", func() { lb.size = size }, nil)
}

func (c *call) protectLoadBalancer() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerActionChangeProtectionRequest](c)
	if err != nil {
		return reply{}, err
	}
	return c.rebalance(lb, "change_protection", func() { set(&lb.protected, req.Delete) }, nil)
}
