package hcloudsim

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const kindLoadBalancer = "load_balancer"

type loadBalancer struct {
	base
	size       schema.LoadBalancerType
	location   schema.Location
	algorithm  string
	public     bool
	addresses  addressPair
	ipv4, ipv6 netip.Addr // taken from addresses
	services   []*service
	targets    []*target
	private    *attachment
	health     map[healthKey]Finding // set by SetTargetFinding
	checks     map[healthKey]*checks
}

func (lb *loadBalancer) ref() ref { return ref{kindLoadBalancer, lb.id} }

// detach removes the attachment to a network, and the targets reached through it.
func (lb *loadBalancer) detach(network int64) {
	if lb.private != nil && lb.private.network == network {
		lb.private = nil
		lb.targets = slices.DeleteFunc(lb.targets, (*target).isPrivate)
	}
}

func (lb *loadBalancer) dropTargets(of func(*target) bool) {
	for _, t := range lb.targets {
		if of(t) {
			maps.DeleteFunc(lb.checks, func(key healthKey, _ *checks) bool {
				return key.target == TargetID{Server: t.server, IP: t.ip}
			})
		}
	}
	lb.targets = slices.DeleteFunc(lb.targets, of)
}

func (lb *loadBalancer) drop(t *target) {
	lb.dropTargets(func(other *target) bool { return other == t })
}

func (lb *loadBalancer) dropService(s *service) {
	maps.DeleteFunc(lb.checks, func(key healthKey, _ *checks) bool { return key.port == s.ListenPort })
	lb.services = without(lb.services, s)
}

func (lb *loadBalancer) serviceOn(port int) *service {
	return first(lb.services, func(s *service) bool { return s.ListenPort == port })
}

// setAddresses sets the primary IPs and the addresses that the load balancer listens on.
func (lb *loadBalancer) setAddresses(ipv4, ipv6 *primaryIP) {
	lb.addresses = addressPair{ipv4, ipv6}
	lb.ipv4, lb.ipv6 = ipv4.address(), ipv6.address()
}

// loadBalancerBody omits the fields that do not apply to a target or service.
type loadBalancerBody struct {
	schema.LoadBalancer
	Services []serviceBody `json:"services"`
	Targets  []targetBody  `json:"targets"`
}

func (p *project) loadBalancerBody(lb *loadBalancer) loadBalancerBody {
	ipv4, ipv6 := lb.addresses.ipv4, lb.addresses.ipv6
	out := loadBalancerBody{
		LoadBalancer: schema.LoadBalancer{
			ID: lb.id, Name: lb.name, Labels: cloneLabels(lb.labels), Created: lb.created,
			PublicNet: schema.LoadBalancerPublicNet{
				Enabled: lb.public,
				IPv4: schema.LoadBalancerPublicNetIPv4{
					ID: ipv4.id, IP: lb.ipv4.String(), DNSPtr: ipv4.pointer(lb.ipv4),
				},
				IPv6: schema.LoadBalancerPublicNetIPv6{
					ID: ipv6.id, IP: lb.ipv6.String(), DNSPtr: ipv6.pointer(lb.ipv6),
				},
			},
			PrivateNet: []schema.LoadBalancerPrivateNet{},
			Location:   lb.location, LoadBalancerType: lb.size,
			Protection:      schema.LoadBalancerProtection{Delete: lb.protected},
			Algorithm:       schema.LoadBalancerAlgorithm{Type: lb.algorithm},
			IncludedTraffic: 20 << 40, OutgoingTraffic: new(uint64), IngoingTraffic: new(uint64),
		},
		Services: rendered(shown(p, lb.services), newServiceBody),
		Targets: rendered(shown(p, lb.targets), func(t *target) targetBody {
			return p.targetBody(lb, t)
		}),
	}
	if a := lb.private; a != nil && !p.creating[a] {
		net := schema.LoadBalancerPrivateNet{Network: a.network, IP: a.ip.String()}
		out.PrivateNet = append(out.PrivateNet, net)
	}
	return out
}

func (p *project) renderLoadBalancer(lb *loadBalancer) schema.LoadBalancer {
	body := p.loadBalancerBody(lb)
	out := body.LoadBalancer
	out.Services = rendered(body.Services, func(b serviceBody) schema.LoadBalancerService {
		return b.LoadBalancerService
	})
	out.Targets = rendered(body.Targets, targetBody.plain)
	return out
}

func loadBalancerKind() kind[*loadBalancer] {
	return kind[*loadBalancer]{
		name: kindLoadBalancer, plural: "load_balancers",
		rows: func(p *project) *table[*loadBalancer] { return &p.loadBalancers },
		body: func(p *project, lb *loadBalancer) any { return p.loadBalancerBody(lb) },
		nameRule: func(name string) error {
			if name == "" || len(name) > nameMost || strings.TrimSpace(name) != name {
				return errInvalid("name",
					"must have 1 to %d characters, the first and last no spaces", nameMost)
			}
			return nil
		},
		remove: (*call).deleteLoadBalancer,
	}
}

func loadBalancerOperations() []operation {
	k := loadBalancerKind()
	return append(k.operations(create(k, (*call).createLoadBalancer),
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
		on(k, "change_dns_ptr", func(_ *call, lb *loadBalancer, req pointerRequest) (change, error) {
			k := lb.addresses.having(req.IP)
			ip := k.address()
			return k.changePointer(netip.PrefixFrom(ip, ip.BitLen()), req)
		}),
		k.protection(),
	), k.view("/metrics", metrics[*loadBalancer](map[string][]string{
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
	Location         *schema.IDOrName                           `json:"location"`
	NetworkZone      *string                                    `json:"network_zone"`
	Labels           *map[string]string                         `json:"labels"`
	Targets          []targetRequest                            `json:"targets"`
	Services         []serviceRequest                           `json:"services"`
	PublicInterface  *bool                                      `json:"public_interface"`
	PublicNet        *schema.LoadBalancerCreateRequestPublicNet `json:"public_net"`
	Network          *int64                                     `json:"network"`
}

// createLoadBalancer creates everything in one request with one action, which also holds the
// network and the primary IPs named in the request. Everything except the attachment to the
// network is visible at once.
func (c *call) createLoadBalancer(
	req loadBalancerRequest,
) (*loadBalancer, map[string]any, error) {
	creation := change{command: "create_load_balancer"}
	var n *network
	if req.Network != nil {
		var err error
		if n, err = c.idleNetwork(*req.Network); err != nil {
			return nil, nil, err
		}
		creation.holds = []ref{n.ref()}
	}
	lb, err := c.newLoadBalancer(req)
	if err == nil && n != nil {
		err = c.attachLoadBalancer(lb, n, place{})
		creation.adds = lb.private
	}
	if err == nil {
		err = c.addServicesAndTargets(lb, req)
	}
	if err != nil {
		return nil, nil, err
	}
	named := lb.addresses
	lb.base = c.newBase(lb.base)
	c.loadBalancers.add(lb)
	fresh := c.newAddresses()
	lb.setAddresses(cmp.Or(named.ipv4, fresh.ipv4), cmp.Or(named.ipv6, fresh.ipv6))
	c.hold(lb.addresses, lb.ref(), lb.location)
	creation.about = []ref{lb.ref()}
	creation.holds = slices.Concat(creation.holds, named.refs(), creation.about)
	creation.undo = func() {
		for _, k := range named.all() { // these remain, with auto_delete too
			k.holder = ref{}
		}
		c.removeLoadBalancer(lb)
	}
	return lb, map[string]any{"action": c.renderAction(c.begin(creation))}, nil
}

// newLoadBalancer validates the properties of a load balancer other than services and targets.
func (p *project) newLoadBalancer(req loadBalancerRequest) (*loadBalancer, error) {
	b, err := loadBalancerKind().new(p, req.Name, req.Labels)
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
	if err := cmp.Or(err, named.in(location)); err != nil {
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

// loadBalancerLocation returns the request's location. For a network_zone it is the location of
// the primary IPs.
func (p *project) loadBalancerLocation(
	req loadBalancerRequest, named addressPair,
) (schema.Location, error) {
	switch {
	case (req.Location == nil) == (req.NetworkZone == nil):
		return schema.Location{}, errInvalid("location",
			"exactly one of location and network_zone is required")
	case req.Location != nil:
		return p.catalog.location("location", *req.Location)
	}
	candidates := p.catalog.locations
	if all := named.all(); len(all) > 0 {
		candidates = append([]schema.Location{all[0].location}, candidates...)
	}
	for _, l := range candidates {
		if l.NetworkZone == *req.NetworkZone {
			return l, nil
		}
	}
	return schema.Location{}, errInvalid("network_zone",
		"network zone '%s' does not exist", *req.NetworkZone)
}

// addServicesAndTargets adds services and targets to a new load balancer.
func (p *project) addServicesAndTargets(lb *loadBalancer, req loadBalancerRequest) error {
	if off(req.PublicInterface) {
		if lb.private == nil {
			return errNotAttached()
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
	return ok(http.StatusCreated, "action", c.renderAction(c.begin(change{
		command: "delete_load_balancer",
		about:   []ref{lb.ref()},
		holds:   append(lb.addresses.refs(), lb.ref()),
		finish:  func() { c.removeLoadBalancer(lb) },
	})))
}

// removeLoadBalancer removes a load balancer and keeps its primary IPs that have no auto-delete.
func (p *project) removeLoadBalancer(lb *loadBalancer) {
	p.loadBalancers.remove(lb.id)
	p.release(lb.ref())
}
