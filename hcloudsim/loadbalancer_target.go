package hcloudsim

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

const (
	targetServer   = "server"
	targetSelector = "label_selector"
	targetIP       = "ip"
)

type target struct {
	kind       string
	server     int64      // for targetServer
	ip         netip.Addr // for targetIP; for targetServer an address other than its primary IPv4
	selector   string     // for targetSelector
	chosen     selector
	usePrivate bool
	since      time.Time
	pending    bool
}

type targetRequest struct {
	Type          string                                  `json:"type"`
	Server        *targetServerRequest                    `json:"server"`
	LabelSelector *schema.LoadBalancerTargetLabelSelector `json:"label_selector"`
	IP            *schema.LoadBalancerTargetIP            `json:"ip"`
	UsePrivateIP  *bool                                   `json:"use_private_ip"`
}

type targetServerRequest struct {
	ID int64  `json:"id"`
	IP string `json:"ip"`
}

func (r targetRequest) parse() (*target, error) {
	t := &target{kind: r.Type}
	set(&t.usePrivate, r.UsePrivateIP)
	var err error
	switch r.Type {
	case targetServer:
		if r.Server == nil {
			return nil, errInvalid("server", "is required for type server")
		}
		t.server = r.Server.ID
		if r.Server.IP != "" {
			if t.ip, err = netip.ParseAddr(r.Server.IP); err != nil {
				return nil, errInvalid("server.ip", "'%s' is no IP address", r.Server.IP)
			}
		}
	case targetSelector:
		if r.LabelSelector == nil || r.LabelSelector.Selector == "" || len(r.LabelSelector.Selector) > 1000 {
			return nil, errInvalid("label_selector", "a selector of 1 to 1000 characters is required for type label_selector")
		}
		t.selector = r.LabelSelector.Selector
		if t.chosen, err = parseSelector(t.selector); err != nil {
			return nil, errInvalid("label_selector.selector", "%s", err)
		}
	case targetIP:
		if r.IP == nil {
			return nil, errInvalid("ip", "is required for type ip")
		}
		if t.ip, err = netip.ParseAddr(r.IP.IP); err != nil {
			return nil, errInvalid("ip.ip", "'%s' is no IP address", r.IP.IP)
		}
		if t.usePrivate {
			return nil, errInvalid("use_private_ip", "is not available for type ip")
		}
	default:
		return nil, errInvalid("type", "must be one of server, label_selector, ip")
	}
	return t, nil
}

// same reports whether the API treats two targets as equal. It ignores use_private_ip.
func (t *target) same(other *target) bool {
	return t.kind == other.kind && t.server == other.server && t.ip == other.ip && t.selector == other.selector
}

// isPrivate reports whether a target is reached through the network.
func (t *target) isPrivate() bool {
	return t.usePrivate || (t.kind == targetIP && t.ip.IsPrivate() && t.ip.Is4())
}

func (t *target) reaches(s *server) bool {
	return (t.kind == targetServer && t.server == s.id) || (t.kind == targetSelector && t.chosen.matches(s.labels))
}

// normalize removes the IP of a server target if it is the default, the primary IPv4.
func (p *project) normalize(t *target) {
	if s, ok := p.servers.get(t.server); ok && t.kind == targetServer && !t.usePrivate && t.ip == s.ipv4() {
		t.ip = netip.Addr{}
	}
}

func (p *project) selectedBy(t *target) iter.Seq[*server] {
	return func(yield func(*server) bool) {
		for _, s := range p.servers.rows {
			if t.chosen.matches(s.labels) && !yield(s) {
				return
			}
		}
	}
}

// weight returns how many targets a target counts for in the limit of the load balancer type.
func (p *project) weight(t *target) int {
	if t.kind != targetSelector {
		return 1
	}
	n := 0
	for range p.selectedBy(t) {
		n++
	}
	return n
}

func (p *project) checkTarget(lb *loadBalancer, t *target) error {
	sameServer := func(other *target) bool {
		return t.kind == targetServer && other.kind == t.kind && other.server == t.server
	}
	if slices.ContainsFunc(lb.targets, t.same) || p.opts.OneTargetPerServer && slices.ContainsFunc(lb.targets, sameServer) {
		return errRefused("target_already_defined", "the target is already defined")
	}
	used := p.weight(t)
	for _, other := range lb.targets {
		used += p.weight(other)
	}
	if used > lb.size.MaxTargets {
		return errLimit("load_balancer_target_limit", lb.size.MaxTargets)
	}
	if t.kind == targetIP {
		return p.checkIPTarget(lb, t)
	}
	switch {
	case t.usePrivate && lb.private == nil:
		return errRefused("load_balancer_not_attached_to_network", "the load balancer is not attached to a network")
	case !t.usePrivate && !lb.public:
		return errRefused("load_balancer_public_interface_disabled", "the load balancer's public interface is disabled")
	case t.kind == targetSelector:
		return nil // unreachable servers are unhealthy, not refused
	}
	return p.checkServerTarget(lb, t)
}

func (p *project) checkServerTarget(lb *loadBalancer, t *target) error {
	s, err := must(&p.servers, kindServer, t.server)
	if err != nil {
		return err
	}
	switch {
	case t.usePrivate && t.ip.IsValid():
		return errInvalid("server.ip", "is not available together with use_private_ip")
	// normalize has removed the primary IPv4.
	case t.ip.IsValid() && (!s.ipv6().Contains(t.ip) || t.ip == s.ipv6().Addr()):
		return errRefused("ip_not_assigned_to_server", "IP %s is not assigned to server %d", t.ip, s.id)
	case t.usePrivate && s.attachmentTo(lb.private.network) == nil:
		return errRefused("resolve_cloud_private_targets_error", "server %d is not attached to network %d", s.id, lb.private.network)
	case !t.usePrivate && !t.ip.IsValid() && !s.ipv4().IsValid():
		return errRefused("resolve_cloud_public_targets_error", "server %d has no public IPv4 address", s.id)
	}
	return nil
}

func (p *project) isCloud(ip netip.Addr) bool {
	return slices.ContainsFunc(p.servers.rows, func(s *server) bool { return s.ipv4() == ip || s.ipv6().Contains(ip) }) ||
		slices.ContainsFunc(p.loadBalancers.rows, func(lb *loadBalancer) bool { return lb.ipv4 == ip || lb.ipv6 == ip })
}

func (p *project) checkIPTarget(lb *loadBalancer, t *target) error {
	if !t.isPrivate() {
		switch {
		case t.ip.Is6() && p.opts.RefuseIPv6Targets:
			return errInvalid("ip.ip", "'%s' is no IPv4 address", t.ip)
		case !lb.public:
			return errRefused("load_balancer_public_interface_disabled", "the load balancer's public interface is disabled")
		case p.isCloud(t.ip):
			return errRefused("cloud_resource_ip_not_allowed", "IP %s belongs to a cloud resource, which is no target of type ip", t.ip)
		case !p.opts.owns(t.ip):
			return errRefused("ip_not_owned", "IP %s is not owned by the owner of the project", t.ip)
		}
		return nil
	}
	if lb.private == nil {
		return errRefused("load_balancer_not_attached_to_network", "the load balancer is not attached to a network")
	}
	n, err := must(&p.networks, kindNetwork, lb.private.network)
	if err != nil {
		return err
	}
	isVSwitch := func(s *subnet) bool { return s.kind == subnetVSwitch }
	if !slices.ContainsFunc(n.subnets, isVSwitch) {
		return errRefused("network_has_no_vswitch_subnet", "network %d has no vSwitch subnet", n.id)
	}
	if s := n.subnetOf(t.ip); s == nil || !isVSwitch(s) {
		return errRefused("ip_not_in_vswitch_subnet", "IP %s is not in a vSwitch subnet of network %d", t.ip, n.id)
	}
	return nil
}
