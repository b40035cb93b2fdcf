package hcloudsim

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// pointers holds the changed reverse DNS entries of a resource. By default an IPv4 address has a
// generated name, and an IPv6 address has no entry.
type pointers map[netip.Addr]string

// change returns the effect of a change_dns_ptr request; a nil name resets the entry.
func (p *pointers) change(ip netip.Addr, name *string) (finish func(), err error) {
	if name != nil && (len(*name) > 253 || !hostname.MatchString(*name)) {
		return nil, errInvalid("dns_ptr", "must be a fully qualified domain name without a trailing dot, or null")
	}
	return func() {
		if name == nil {
			delete(*p, ip)
			return
		}
		if *p == nil {
			*p = pointers{}
		}
		(*p)[ip] = *name
	}, nil
}

// of returns the entry of an address, or its default.
func (p pointers) of(ip netip.Addr) string {
	if name, changed := p[ip]; changed {
		return name
	}
	if ip.Is4() {
		return staticName(ip)
	}
	return ""
}

// inside returns the changed entries within an IPv6 network, sorted.
func (p pointers) inside(network netip.Prefix) []schema.ServerPublicNetIPv6DNSPtr {
	out := []schema.ServerPublicNetIPv6DNSPtr{}
	for _, ip := range slices.SortedFunc(maps.Keys(p), netip.Addr.Compare) {
		if network.Contains(ip) {
			out = append(out, schema.ServerPublicNetIPv6DNSPtr{IP: ip.String(), DNSPtr: p[ip]})
		}
	}
	return out
}

func (c *call) changeServerPointer() (reply, error) {
	s, err := c.server()
	if err != nil {
		return reply{}, err
	}
	req, err := decode[schema.ServerActionChangeDNSPtrRequest](c)
	if err != nil {
		return reply{}, err
	}
	if err := c.idle(s.ref()); err != nil {
		return reply{}, err
	}
	ip, err := netip.ParseAddr(req.IP)
	k := s.addresses.ipv4
	if err == nil && ip.Is6() {
		k = s.addresses.ipv6
	}
	if err != nil || k == nil || !k.net.Contains(ip) {
		return reply{}, errInvalid("ip", "'%s' is no public IP of the server", req.IP)
	}
	finish, err := k.pointers.change(ip, req.DNSPtr)
	if err != nil {
		return reply{}, err
	}
	return c.started(c.begin(change{command: "change_dns_ptr", about: []ref{s.ref()}, finish: finish}))
}

func (c *call) changeLoadBalancerPointer() (reply, error) {
	lb, req, err := balancing[schema.LoadBalancerActionChangeDNSPtrRequest](c)
	if err != nil {
		return reply{}, err
	}
	ip, err := netip.ParseAddr(req.IP)
	if err != nil || (ip != lb.ipv4 && ip != lb.ipv6) {
		return reply{}, errInvalid("ip", "'%s' is no public IP of the load balancer", req.IP)
	}
	k := lb.addresses.ipv4
	if ip == lb.ipv6 {
		k = lb.addresses.ipv6
	}
	finish, err := k.pointers.change(ip, req.DNSPtr)
	if err != nil {
		return reply{}, err
	}
	return c.rebalance(lb, "change_dns_ptr", finish, nil)
}
