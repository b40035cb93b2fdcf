package hcloudsim

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func loadBalancerOperations() []operation {
	k := kind[*loadBalancer]{
		name: kindLoadBalancer, plural: "load_balancers",
		rows:     func(p *project) *table[*loadBalancer] { return &p.loadBalancers },
		body:     func(p *project, lb *loadBalancer) any { return p.loadBalancerBody(lb) },
		nameRule: checkLoadBalancerName,
		remove:   (*call).deleteLoadBalancer,
	}
	return append(k.operations((*call).createLoadBalancer,
		on(k, "add_service", (*call).addService),
		on(k, "update_service", (*call).updateService),
		on(k, "delete_service", (*call).deleteService),
		on(k, "add_target", (*call).addTarget),
		on(k, "remove_target", (*call).removeTarget),
		on(k, "change_algorithm", (*call).changeAlgorithm),
		on(k, "change_type", (*call).changeType),
		on(k, "attach_to_network", (*call).attachLoadBalancerToNetwork),
		on(k, "detach_from_network", (*call).detachLoadBalancerFromNetwork),
		on(k, "enable_public_interface", publicInterface("enable_public_interface", true)),
		on(k, "disable_public_interface", publicInterface("disable_public_interface", false)),
		on(k, "change_dns_ptr", (*call).changeLoadBalancerPointer),
		k.protection(),
	), k.view("metrics", metrics[*loadBalancer](map[string][]string{
		"open_connections":       {"open_connections"},
		"connections_per_second": {"connections_per_second"},
		"requests_per_second":    {"requests_per_second"},
		"bandwidth":              {"bandwidth.in", "bandwidth.out"},
	})))
}

type loadBalancerRequest struct {
	Name             string                                     `json:"name"`
	LoadBalancerType schema.IDOrName                            `json:"load_balancer_type"`
	Algorithm        *schema.LoadBalancerCreateRequestAlgorithm `json:"algorithm"`
	Location         *string                                    `json:"location"`
	NetworkZone      *string                                    `json:"network_zone"`
	Labels           *map[string]string                         `json:"labels"`
	Targets          []targetRequest                            `json:"targets"`
	Services         []serviceRequest                           `json:"services"`
	PublicInterface  *bool                                      `json:"public_interface"`
	PublicNet        *schema.LoadBalancerCreateRequestPublicNet `json:"public_net"`
	Network          *int64                                     `json:"network"`
}

// createLoadBalancer creates everything in one request with one action. Everything except the
// attachment to the network is visible at once.
func (c *call) createLoadBalancer() (reply, error) {
	req, err := decode[loadBalancerRequest](c)
	if err != nil {
		return reply{}, err
	}
	var networks []*network
	if req.Network != nil {
		n, err := c.idleNetwork(*req.Network)
		if err != nil {
			return reply{}, err
		}
		networks = append(networks, n)
	}
	lb, err := c.newLoadBalancer(req)
	if err != nil {
		return reply{}, err
	}
	for _, n := range networks {
		if err := c.attachLoadBalancer(lb, n, place{}); err != nil {
			return reply{}, err
		}
	}
	if err := c.furnish(lb, req); err != nil {
		return reply{}, err
	}
	named := lb.addresses
	lb.base = c.newBase(lb.name, lb.labels)
	c.loadBalancers.add(lb)
	fresh := c.newAddresses()
	lb.addresses.ipv4, lb.addresses.ipv6 = cmp.Or(named.ipv4, fresh.ipv4), cmp.Or(named.ipv6, fresh.ipv6)
	c.hold(lb.addresses, lb.ref(), lb.location)
	lb.ipv4, lb.ipv6 = lb.addresses.ipv4.address(), lb.addresses.ipv6.address()
	action := c.beginBalancing(lb, named, networks)
	return reply{status: http.StatusCreated, body: map[string]any{
		kindLoadBalancer: c.loadBalancerBody(lb), "action": c.renderAction(action),
	}}, nil
}

// beginBalancing starts the creation, which also holds the networks and the primary IPs named in
// the request. These primary IPs remain if it fails.
func (c *call) beginBalancing(lb *loadBalancer, named addressPair, networks []*network) *action {
	creation := change{
		command: "create_load_balancer",
		about:   []ref{lb.ref()},
		holds:   append(named.refs(), lb.ref()),
		finish:  func() {},
		undo: func() {
			for _, k := range named.all() {
				k.holder = ref{}
			}
			c.removeLoadBalancer(lb)
		},
	}
	for _, n := range networks {
		a := lb.private
		a.pending = true
		creation.holds = append(creation.holds, n.ref())
		creation.finish = func() { a.pending = false }
	}
	return c.begin(creation)
}

// newLoadBalancer validates the properties of a load balancer other than services and targets.
func (p *project) newLoadBalancer(req loadBalancerRequest) (*loadBalancer, error) {
	if exceeds(len(p.loadBalancers.rows), p.opts.LoadBalancerLimit) {
		return nil, errLimit("load_balancer_limit", p.opts.LoadBalancerLimit)
	}
	b, err := newNamed(&p.loadBalancers, checkLoadBalancerName, req.Name, req.Labels)
	if err != nil {
		return nil, err
	}
	size, known := lookup(p.catalog.loadBalancerTypes, req.LoadBalancerType, loadBalancerTypeKey)
	if !known {
		return nil, errInvalid("load_balancer_type", "load balancer type does not exist")
	}
	var named addressPair
	if net := req.PublicNet; net != nil {
		if named, err = p.namedPrimaryIPs(net.IPv4, net.IPv6); err != nil {
			return nil, err
		}
	}
	location, err := p.loadBalancerLocation(req, named)
	if err != nil {
		return nil, err
	}
	lb := &loadBalancer{
		base: b, size: size, location: location, algorithm: algorithmRoundRobin,
		public: true, addresses: named, health: map[healthKey]Finding{},
	}
	if req.Algorithm != nil {
		lb.algorithm = req.Algorithm.Type
	}
	return lb, checkAlgorithm(lb.algorithm)
}

func checkLoadBalancerName(name string) error {
	if name == "" || len(name) > nameMost || strings.TrimSpace(name) != name {
		return errInvalid("name", "must have 1 to %d characters, the first and last no spaces", nameMost)
	}
	return nil
}

// loadBalancerLocation returns the request's location. For a network_zone it is the location of
// the primary IPs, unless Options.ZoneIgnoresPrimaryIPs is set.
func (p *project) loadBalancerLocation(req loadBalancerRequest, named addressPair) (schema.Location, error) {
	switch {
	case (req.Location == nil) == (req.NetworkZone == nil):
		return schema.Location{}, errInvalid("location", "exactly one of location and network_zone is required")
	case req.Location != nil:
		location, err := p.catalog.location(*req.Location)
		if err != nil {
			return location, err
		}
		return location, named.in(location)
	}
	candidates := p.catalog.locations
	if all := named.all(); len(all) > 0 && !p.opts.ZoneIgnoresPrimaryIPs {
		candidates = append([]schema.Location{all[0].location}, candidates...)
	}
	for _, l := range candidates {
		if l.NetworkZone == *req.NetworkZone {
			return l, named.in(l)
		}
	}
	return schema.Location{}, errInvalid("network_zone", "network zone '%s' does not exist", *req.NetworkZone)
}

// furnish adds services and targets to a new load balancer.
func (p *project) furnish(lb *loadBalancer, req loadBalancerRequest) error {
	if req.PublicInterface != nil && !*req.PublicInterface {
		if lb.private == nil {
			return errRefused("load_balancer_not_attached_to_network", "without a public interface, the load balancer needs a network")
		}
		lb.public = false
	}
	for _, s := range req.Services {
		if _, err := p.placeService(lb, s); err != nil {
			return err
		}
	}
	for _, t := range req.Targets {
		if _, err := p.placeTarget(lb, t); err != nil {
			return err
		}
	}
	return nil
}

// deleteLoadBalancer starts an action that deletes the load balancer when it ends. The
// description still documents 204 without an action; hcloud-go expects the action.
func (c *call) deleteLoadBalancer(lb *loadBalancer) (reply, error) {
	return c.started(c.begin(change{
		command: "delete_load_balancer",
		about:   []ref{lb.ref()},
		holds:   append(lb.addresses.refs(), lb.ref()),
		finish:  func() { c.removeLoadBalancer(lb) },
	}))
}
