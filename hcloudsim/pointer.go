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

type pointerRequest struct {
	IP     string  `json:"ip"`
	DNSPtr *string `json:"dns_ptr"` // nil resets the entry
}

// change returns the action change_dns_ptr for an address within net.
func (p *pointers) change(net netip.Prefix, req pointerRequest) (change, error) {
	ip, err := netip.ParseAddr(req.IP)
	if err != nil || !net.Contains(ip) {
		return change{}, errInvalid("ip", "'%s' is no public address of the resource", req.IP)
	}
	name := req.DNSPtr
	if name != nil && (len(*name) > 253 || !hostname.MatchString(*name)) {
		return change{}, errInvalid("dns_ptr",
			"must be a fully qualified domain name without a trailing dot, or null")
	}
	return change{command: "change_dns_ptr", finish: func() {
		if name == nil {
			delete(*p, ip)
			return
		}
		if *p == nil {
			*p = pointers{}
		}
		(*p)[ip] = *name
	}}, nil
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

// having returns the primary IP that contains an address, or one without addresses.
func (a addressPair) having(text string) *primaryIP {
	ip, err := netip.ParseAddr(text)
	for _, k := range a.all() {
		if err == nil && k.net.Contains(ip) {
			return k
		}
	}
	return &primaryIP{}
}

func (c *call) changeServerPointer(s *server, req pointerRequest) (change, error) {
	k := s.addresses.having(req.IP)
	return k.pointers.change(k.net, req)
}

func (c *call) changeLoadBalancerPointer(lb *loadBalancer, req pointerRequest) (change, error) {
	k := lb.addresses.having(req.IP)
	ip := k.address()
	return k.pointers.change(netip.PrefixFrom(ip, ip.BitLen()), req)
}
