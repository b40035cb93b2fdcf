package hcloudsim

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

func (c *call) loadBalancer() (*loadBalancer, error) {
	return found(c, &c.loadBalancers, kindLoadBalancer)
}

func (c *call) listLoadBalancers() (reply, error) {
	chosen, err := selected(c, &c.loadBalancers)
	if err != nil {
		return reply{}, err
	}
	return list(c, "load_balancers", chosen, byBase[*loadBalancer](), c.loadBalancerBody)
}

func (c *call) getLoadBalancer() (reply, error) {
	lb, err := c.loadBalancer()
	if err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindLoadBalancer, c.loadBalancerBody(lb))
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
		if networks, err = c.networksOf([]int64{*req.Network}); err != nil {
			return reply{}, err
		}
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
	if err := p.checkLoadBalancerName(req.Name, 0); err != nil {
		return nil, err
	}
	size, known := lookup(p.catalog.loadBalancerTypes, req.LoadBalancerType, loadBalancerTypeKey)
	if !known {
		return nil, errInvalid("load_balancer_type", "load balancer type does not exist")
	}
	var named addressPair
	if net := req.PublicNet; net != nil {
		var err error
		if named, err = p.namedPrimaryIPs(net.IPv4, net.IPv6); err != nil {
			return nil, err
		}
	}
	location, err := p.loadBalancerLocation(req, named)
	if err != nil {
		return nil, err
	}
	labels, err := newLabels(req.Labels)
	if err != nil {
		return nil, err
	}
	lb := &loadBalancer{
		base: base{name: req.Name, labels: labels},
		size: size, location: location, algorithm: algorithmRoundRobin,
		public: true, addresses: named, health: map[healthKey]Finding{},
	}
	if req.Algorithm != nil {
		lb.algorithm = req.Algorithm.Type
	}
	return lb, checkAlgorithm(lb.algorithm)
}

func (p *project) checkLoadBalancerName(name string, self int64) error {
	if name == "" || len(name) > nameMost || strings.TrimSpace(name) != name {
		return errInvalid("name", "must have 1 to %d characters, the first and last no spaces", nameMost)
	}
	return p.loadBalancers.nameFree(name, self)
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

func (c *call) updateLoadBalancer() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerUpdateRequest](c)
	if err != nil {
		return reply{}, err
	}
	var name string
	if req.Name != nil {
		name = *req.Name
		if err := c.checkLoadBalancerName(name, lb.id); err != nil {
			return reply{}, err
		}
	}
	if err := lb.update(name, req.Labels); err != nil {
		return reply{}, err
	}
	return ok(http.StatusOK, kindLoadBalancer, c.loadBalancerBody(lb))
}

// deleteLoadBalancer starts an action that deletes the load balancer when it ends. The
// description still documents 204 without an action; hcloud-go expects the action.
func (c *call) deleteLoadBalancer() (reply, error) {
	lb, err := c.loadBalancer()
	if err != nil {
		return reply{}, err
	}
	if lb.protected {
		return reply{}, errProtected(kindLoadBalancer)
	}
	if err := c.idle(lb.ref()); err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{
		command: "delete_load_balancer",
		about:   []ref{lb.ref()},
		holds:   append(lb.addresses.refs(), lb.ref()),
		finish:  func() { c.removeLoadBalancer(lb) },
	}))
}
