package hcloudsim

import (
	"net/netip"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
	"k8s.io/apimachinery/pkg/labels"
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
	chosen     labels.Selector
	usePrivate bool
	since      time.Time
}

// targetBody is a target in requests and as the API shows it: without fields that don't apply, and
// with the server's address, which the schema lacks.
type targetBody struct {
	Type          string                                  `json:"type"`
	Server        *targetServerBody                       `json:"server,omitempty"`
	LabelSelector *schema.LoadBalancerTargetLabelSelector `json:"label_selector,omitempty"`
	IP            *schema.LoadBalancerTargetIP            `json:"ip,omitempty"`
	HealthStatus  []schema.LoadBalancerTargetHealthStatus `json:"health_status,omitzero"`
	UsePrivateIP  *bool                                   `json:"use_private_ip,omitempty"`
	Targets       []targetBody                            `json:"targets,omitzero"`
}

type targetServerBody struct {
	ID int64  `json:"id"`
	IP string `json:"ip"`
}

type targetRequest = targetBody

func (b targetBody) plain() schema.LoadBalancerTarget {
	out := schema.LoadBalancerTarget{
		Type: b.Type, LabelSelector: b.LabelSelector, IP: b.IP, HealthStatus: b.HealthStatus,
	}
	if b.Server != nil {
		out.Server = &schema.LoadBalancerTargetServer{ID: b.Server.ID}
	}
	set(&out.UsePrivateIP, b.UsePrivateIP)
	for _, t := range b.Targets {
		out.Targets = append(out.Targets, t.plain())
	}
	return out
}

func (p *project) targetBody(lb *loadBalancer, t *target) targetBody {
	out := targetBody{Type: t.kind}
	switch t.kind {
	case targetServer:
		return p.serverTargetBody(lb, t, t.server)
	case targetIP:
		out.IP = &schema.LoadBalancerTargetIP{IP: t.ip.String()}
		out.HealthStatus = p.healthOf(lb, t, TargetID{IP: t.ip})
		return out
	}
	out.LabelSelector = &schema.LoadBalancerTargetLabelSelector{Selector: t.selector}
	out.UsePrivateIP = &t.usePrivate
	out.Targets = rendered(ids(&p.servers, t.reaches), func(server int64) targetBody {
		return p.serverTargetBody(lb, t, server)
	})
	return out
}

func (p *project) serverTargetBody(lb *loadBalancer, t *target, server int64) targetBody {
	id := TargetID{Server: server, IP: t.ip}
	body := targetServerBody{ID: server}
	if address := p.addressOf(lb, t, id); address.IsValid() {
		body.IP = address.String()
	}
	return targetBody{
		Type: targetServer, Server: &body, UsePrivateIP: &t.usePrivate,
		HealthStatus: p.healthOf(lb, t, id),
	}
}

// parseTarget parses a target. The primary IPv4 of a server is the same as no IP.
func (p *project) parseTarget(r targetRequest) (*target, error) {
	t := &target{kind: r.Type}
	set(&t.usePrivate, r.UsePrivateIP)
	var err error
	switch {
	case r.Type == targetServer && r.Server != nil:
		t.server = r.Server.ID
		if r.Server.IP == "" {
			return t, nil
		}
		if t.ip, err = netip.ParseAddr(r.Server.IP); err != nil {
			return nil, errInvalid("server.ip", "'%s' is no IP address", r.Server.IP)
		}
		if s, ok := p.servers.get(t.server); ok && !t.usePrivate && t.ip == s.ipv4() {
			t.ip = netip.Addr{}
		}
	case r.Type == targetSelector && r.LabelSelector != nil:
		if t.selector = r.LabelSelector.Selector; t.selector == "" || len(t.selector) > 1000 {
			return nil, errInvalid("label_selector", "must have 1 to 1000 characters")
		}
		if t.chosen, err = labels.Parse(t.selector); err != nil {
			return nil, errInvalid("label_selector.selector", "%s", err)
		}
	case r.Type == targetIP && r.IP != nil:
		if t.ip, err = netip.ParseAddr(r.IP.IP); err != nil {
			return nil, errInvalid("ip.ip", "'%s' is no IP address", r.IP.IP)
		}
		if t.usePrivate {
			return nil, errInvalid("use_private_ip", "is not available for type ip")
		}
	case slices.Contains([]string{targetServer, targetSelector, targetIP}, r.Type):
		return nil, errInvalid(r.Type, "is required for type %s", r.Type)
	default:
		return nil, errInvalid("type", "must be one of server, label_selector, ip")
	}
	return t, nil
}

// same reports whether the API treats two targets as equal. It ignores use_private_ip.
func (t *target) same(other *target) bool {
	return t.kind == other.kind && t.server == other.server && t.ip == other.ip &&
		t.selector == other.selector
}

// isPrivate reports whether a target is reached through the network.
func (t *target) isPrivate() bool {
	return t.usePrivate || (t.kind == targetIP && t.ip.IsPrivate() && t.ip.Is4())
}

func (t *target) reaches(s *server) bool {
	return (t.kind == targetServer && t.server == s.id) ||
		(t.kind == targetSelector && t.chosen.Matches(labels.Set(s.labels)))
}

// weight returns how many targets some targets count for in the limit of the load balancer type.
func (p *project) weight(targets ...*target) (n int) {
	for _, t := range targets {
		if t.kind == targetSelector {
			n += len(ids(&p.servers, t.reaches))
		} else {
			n++
		}
	}
	return n
}

func (p *project) checkTarget(lb *loadBalancer, t *target) error {
	sameServer := func(other *target) bool {
		return t.kind == targetServer && other.kind == t.kind && other.server == t.server
	}
	switch {
	case slices.ContainsFunc(lb.targets, t.same),
		p.opts.OneTargetPerServer && slices.ContainsFunc(lb.targets, sameServer):
		return errRefused("target_already_defined", "the target is already defined")
	case p.weight(t)+p.weight(lb.targets...) > lb.size.MaxTargets:
		return errLimit("load_balancer_target_limit", lb.size.MaxTargets)
	case t.isPrivate() && lb.private == nil:
		return errNotAttached()
	case !t.isPrivate() && !lb.public:
		return errRefused("load_balancer_public_interface_disabled",
			"the load balancer's public interface is disabled")
	case t.kind == targetIP:
		return p.checkIPTarget(lb, t)
	case t.kind == targetSelector:
		return nil // unreachable servers are unhealthy, not refused
	}
	s, err := must(&p.servers, kindServer, t.server)
	switch {
	case err != nil:
		return err
	case t.usePrivate && t.ip.IsValid():
		return errInvalid("server.ip", "is not available together with use_private_ip")
	// parseTarget has removed the primary IPv4.
	case t.ip.IsValid() && (!s.ipv6().Contains(t.ip) || t.ip == s.ipv6().Addr()):
		return errRefused("ip_not_assigned_to_server",
			"IP %s is not assigned to server %d", t.ip, s.id)
	case t.usePrivate && s.attachmentTo(lb.private.network) == nil:
		return errRefused("resolve_cloud_private_targets_error",
			"server %d is not attached to network %d", s.id, lb.private.network)
	case !t.usePrivate && !t.ip.IsValid() && !s.ipv4().IsValid():
		return errRefused("resolve_cloud_public_targets_error",
			"server %d has no public IPv4 address", s.id)
	}
	return nil
}

func (p *project) isCloud(ip netip.Addr) bool {
	return slices.ContainsFunc(p.servers.rows, func(s *server) bool {
		return s.ipv4() == ip || s.ipv6().Contains(ip)
	}) || slices.ContainsFunc(p.loadBalancers.rows, func(lb *loadBalancer) bool {
		return lb.ipv4 == ip || lb.ipv6 == ip
	})
}

func (p *project) checkIPTarget(lb *loadBalancer, t *target) error {
	switch {
	case !t.isPrivate() && p.isCloud(t.ip):
		return errRefused("cloud_resource_ip_not_allowed",
			"IP %s belongs to a cloud resource, which is no target of type ip", t.ip)
	case !t.isPrivate() && !p.opts.owns(t.ip):
		return errRefused("ip_not_owned", "IP %s is not owned by the owner of the project", t.ip)
	case !t.isPrivate():
		return nil
	}
	n, err := must(&p.networks, kindNetwork, lb.private.network)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(n.subnets, (*subnet).isVSwitch) {
		return errRefused("network_has_no_vswitch_subnet", "network %d has no vSwitch subnet", n.id)
	}
	if s := n.subnetOf(t.ip); s == nil || !s.isVSwitch() {
		return errRefused("ip_not_in_vswitch_subnet",
			"IP %s is not in a vSwitch subnet of network %d", t.ip, n.id)
	}
	return nil
}
