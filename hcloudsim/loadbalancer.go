package hcloudsim

import (
	"maps"
	"net/netip"
	"slices"

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
	if lb.private == nil || lb.private.network != network {
		return
	}
	lb.private = nil
	lb.targets = slices.DeleteFunc(lb.targets, (*target).isPrivate)
}

func (lb *loadBalancer) drop(t *target) {
	maps.DeleteFunc(lb.checks, func(key healthKey, _ *checks) bool { return key.target == TargetID{Server: t.server, IP: t.ip} })
	lb.targets = slices.DeleteFunc(lb.targets, func(other *target) bool { return other == t })
}

func (lb *loadBalancer) dropService(s *service) {
	maps.DeleteFunc(lb.checks, func(key healthKey, _ *checks) bool { return key.port == s.ListenPort })
	lb.services = slices.DeleteFunc(lb.services, func(other *service) bool { return other == s })
}

func (lb *loadBalancer) dropServer(id int64) {
	maps.DeleteFunc(lb.checks, func(key healthKey, _ *checks) bool { return key.target.Server == id })
	lb.targets = slices.DeleteFunc(lb.targets, func(t *target) bool { return t.kind == targetServer && t.server == id })
}

func (lb *loadBalancer) serviceOn(port int) *service {
	for _, s := range lb.services {
		if s.ListenPort == port {
			return s
		}
	}
	return nil
}

func (p *project) targetedBy(s *server) []int64 {
	ids := []int64{}
	for _, lb := range p.loadBalancers.rows {
		if slices.ContainsFunc(lb.targets, func(t *target) bool { return !t.pending && t.reaches(s) }) {
			ids = append(ids, lb.id)
		}
	}
	return ids
}

// loadBalancerBody omits the fields that do not apply to a target or service.
type loadBalancerBody struct {
	schema.LoadBalancer
	Services []serviceBody `json:"services"`
	Targets  []targetBody  `json:"targets"`
}

func (p *project) renderLoadBalancer(lb *loadBalancer) schema.LoadBalancer {
	var traffic uint64
	ipv4, ipv6 := lb.addresses.ipv4, lb.addresses.ipv6
	out := schema.LoadBalancer{
		ID: lb.id, Name: lb.name,
		PublicNet: schema.LoadBalancerPublicNet{
			Enabled: lb.public,
			IPv4:    schema.LoadBalancerPublicNetIPv4{ID: ipv4.id, IP: lb.ipv4.String(), DNSPtr: ipv4.pointers.of(lb.ipv4)},
			IPv6:    schema.LoadBalancerPublicNetIPv6{ID: ipv6.id, IP: lb.ipv6.String(), DNSPtr: ipv6.pointers.of(lb.ipv6)},
		},
		PrivateNet: []schema.LoadBalancerPrivateNet{}, Location: lb.location, LoadBalancerType: lb.size,
		Protection: schema.LoadBalancerProtection{Delete: lb.protected},
		Labels:     cloneLabels(lb.labels), Created: lb.created,
		Services:        []schema.LoadBalancerService{},
		Targets:         []schema.LoadBalancerTarget{},
		Algorithm:       schema.LoadBalancerAlgorithm{Type: lb.algorithm},
		IncludedTraffic: 20 << 40, OutgoingTraffic: &traffic, IngoingTraffic: &traffic,
	}
	if a := lb.private; a != nil && !a.pending {
		out.PrivateNet = append(out.PrivateNet, schema.LoadBalancerPrivateNet{Network: a.network, IP: a.ip.String()})
	}
	for _, s := range lb.services {
		if !s.pending {
			out.Services = append(out.Services, s.clone().LoadBalancerService)
		}
	}
	for _, t := range lb.targets {
		if !t.pending {
			out.Targets = append(out.Targets, p.targetBody(lb, t).plain())
		}
	}
	return out
}

func (p *project) loadBalancerBody(lb *loadBalancer) loadBalancerBody {
	out := loadBalancerBody{LoadBalancer: p.renderLoadBalancer(lb), Services: []serviceBody{}, Targets: []targetBody{}}
	for _, s := range out.LoadBalancer.Services {
		out.Services = append(out.Services, newServiceBody(s))
	}
	for _, t := range lb.targets {
		if !t.pending {
			out.Targets = append(out.Targets, p.targetBody(lb, t))
		}
	}
	return out
}
