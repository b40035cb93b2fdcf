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

func (c *call) addService(lb *loadBalancer, req serviceRequest) (change, error) {
	s, err := c.placeService(lb, req)
	if err != nil {
		return change{}, err
	}
	s.pending = true
	return change{
		command: "add_service",
		finish:  func() { s.pending, s.since = false, c.now },
		undo:    func() { lb.dropService(s) },
	}, nil
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
	return errMissing("the load balancer has no service with this listen port")
}

func (c *call) updateService(lb *loadBalancer, req serviceRequest) (change, error) {
	if req.ListenPort == nil {
		return change{}, errInvalid("listen_port", "is required")
	}
	old := lb.serviceOn(*req.ListenPort)
	if old == nil {
		return change{}, errNoService()
	}
	changed := old.with(req)
	if err := changed.check(); err != nil {
		return change{}, err
	}
	if err := lb.checkPorts(changed, old, http.StatusUnprocessableEntity); err != nil {
		return change{}, err
	}
	if err := c.checkCertificates(lb, changed, old); err != nil {
		return change{}, err
	}
	return change{command: "update_service", finish: func() {
		changed.since = c.now
		*old = *changed
	}}, nil
}

func (c *call) deleteService(
	lb *loadBalancer, req schema.LoadBalancerDeleteServiceRequest,
) (change, error) {
	s := lb.serviceOn(req.ListenPort)
	if s == nil {
		return change{}, errNoService()
	}
	return change{command: "delete_service", finish: func() { lb.dropService(s) }}, nil
}

func (c *call) addTarget(lb *loadBalancer, req targetRequest) (change, error) {
	t, err := c.placeTarget(lb, req)
	if err != nil {
		return change{}, err
	}
	t.pending = true
	return change{
		command: "add_target",
		finish:  func() { t.pending, t.since = false, c.now },
		undo:    func() { lb.drop(t) },
	}, nil
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

func (c *call) removeTarget(lb *loadBalancer, req targetRequest) (change, error) {
	asked, err := req.parse()
	if err != nil {
		return change{}, err
	}
	c.normalize(asked)
	for _, t := range lb.targets {
		if t.same(asked) {
			return change{command: "remove_target", finish: func() { lb.drop(t) }}, nil
		}
	}
	return change{}, errMissing("the load balancer has no such target")
}

func (c *call) changeAlgorithm(
	lb *loadBalancer, req schema.LoadBalancerActionChangeAlgorithmRequest,
) (change, error) {
	if err := checkAlgorithm(req.Type); err != nil {
		return change{}, err
	}
	return change{command: "change_algorithm", finish: func() { lb.algorithm = req.Type }}, nil
}

func (c *call) changeType(
	lb *loadBalancer, req schema.LoadBalancerActionChangeTypeRequest,
) (change, error) {
	size, known := lookup(c.catalog.loadBalancerTypes, req.LoadBalancerType, loadBalancerTypeKey)
	if !known {
		return change{}, errInvalid("load_balancer_type", "load balancer type does not exist")
	}
	used := 0
	for _, t := range lb.targets {
		used += c.weight(t)
	}
	if len(lb.services) > size.MaxServices || used > size.MaxTargets || len(lb.certificates(nil)) > size.MaxAssignedCertificates {
		return change{}, errRefused("invalid_load_balancer_type",
			"the load balancer has more services, targets or certificates than %s allows",
			size.Name)
	}
	return change{command: "change_load_balancer_type", finish: func() { lb.size = size }}, nil
}
