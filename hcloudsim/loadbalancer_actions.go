package hcloudsim

import (
	"net/http"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const algorithmRoundRobin = "round_robin"

func checkAlgorithm(name string) error {
	if name != algorithmRoundRobin && name != "least_connections" {
		return errInvalid("algorithm.type", "must be one of round_robin, least_connections")
	}
	return nil
}

func (c *call) addService(lb *loadBalancer, req serviceRequest) (change, error) {
	s, err := c.placeService(lb, req)
	return change{
		command: "add_service",
		adds:    s,
		finish:  func() { s.since = c.now },
		undo:    func() { lb.dropService(s) },
	}, err
}

// placeService validates a service and adds it.
func (p *project) placeService(lb *loadBalancer, req serviceRequest) (*service, error) {
	s := (&service{}).with(req)
	s.since = p.now
	err := p.checkService(lb, s, nil, http.StatusPreconditionFailed)
	if err == nil && exceeds(len(lb.services), lb.size.MaxServices) {
		err = errLimit("load_balancer_service_limit", lb.size.MaxServices)
	}
	if err != nil {
		return nil, err
	}
	lb.services = append(lb.services, s)
	return s, nil
}

// checkService validates a new service, or one that replaces another. The status is that of a
// port which is used already.
func (p *project) checkService(lb *loadBalancer, s, replaced *service, status int) error {
	if err := s.check(); err != nil {
		return err
	}
	for _, other := range lb.services {
		for _, port := range other.ports() {
			if other != replaced && slices.Contains(s.ports(), port) {
				return newError(status, "source_port_already_used",
					"source port %d is already in use", port)
			}
		}
	}
	return p.checkCertificates(lb, s, replaced)
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
	return change{command: "update_service", finish: func() {
		changed.since = c.now
		*old = *changed
	}}, c.checkService(lb, changed, old, http.StatusUnprocessableEntity)
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
	return change{
		command: "add_target",
		adds:    t,
		finish:  func() { t.since = c.now },
		undo:    func() { lb.drop(t) },
	}, err
}

// placeTarget validates a target and adds it.
func (p *project) placeTarget(lb *loadBalancer, req targetRequest) (*target, error) {
	t, err := p.parseTarget(req)
	if err == nil {
		err = p.checkTarget(lb, t)
	}
	if err != nil {
		return nil, err
	}
	t.since = p.now
	lb.targets = append(lb.targets, t)
	return t, nil
}

func (c *call) removeTarget(lb *loadBalancer, req targetRequest) (change, error) {
	requested, err := c.parseTarget(req)
	if err != nil {
		return change{}, err
	}
	t := first(lb.targets, requested.same)
	if t == nil {
		return change{}, errMissing("the load balancer has no such target")
	}
	return change{command: "remove_target", finish: func() { lb.drop(t) }}, nil
}

func (c *call) changeAlgorithm(
	lb *loadBalancer, req schema.LoadBalancerActionChangeAlgorithmRequest,
) (change, error) {
	finish := func() { lb.algorithm = req.Type }
	return change{command: "change_algorithm", finish: finish}, checkAlgorithm(req.Type)
}

func (c *call) changeType(
	lb *loadBalancer, req schema.LoadBalancerActionChangeTypeRequest,
) (change, error) {
	size, known := lookup(c.catalog.loadBalancerTypes, req.LoadBalancerType, loadBalancerTypeKey)
	if !known {
		return change{}, errInvalid("load_balancer_type", "load balancer type does not exist")
	}
	if len(lb.services) > size.MaxServices || c.weight(lb.targets...) > size.MaxTargets ||
		len(lb.certificates(nil)) > size.MaxAssignedCertificates {
		return change{}, errRefused("invalid_load_balancer_type",
			"the load balancer has more services, targets or certificates than %s allows",
			size.Name)
	}
	return change{command: "change_load_balancer_type", finish: func() { lb.size = size }}, nil
}

// publicInterface returns an action that enables or disables the public interface.
func publicInterface(
	command string, enabled bool,
) func(*call, *loadBalancer, struct{}) (change, error) {
	return func(_ *call, lb *loadBalancer, _ struct{}) (change, error) {
		isPublic := func(t *target) bool { return !t.isPrivate() }
		switch {
		case !enabled && lb.private == nil:
			return change{}, errNotAttached()
		case !enabled && slices.ContainsFunc(lb.targets, isPublic):
			return change{}, errRefused("targets_without_use_private_ip",
				"the load balancer has targets that use the public IP")
		}
		return change{command: command, finish: func() { lb.public = enabled }}, nil
	}
}
