package hcloudsim

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"
)

// attachment is the membership of a server or load balancer in a network.
type attachment struct {
	network int64
	ip      netip.Addr
	aliases []netip.Addr
	mac     string
}

func (a *attachment) isIn(p netip.Prefix) bool {
	return p.Contains(a.ip) || slices.ContainsFunc(a.aliases, p.Contains)
}

type member struct {
	ref
	attachment *attachment
}

// members yields the members of a network, servers first.
func (p *project) members(network int64) iter.Seq[member] {
	return func(yield func(member) bool) {
		for _, s := range p.servers.rows {
			if a := s.attachmentTo(network); a != nil && !yield(member{s.ref(), a}) {
				return
			}
		}
		for _, lb := range p.loadBalancers.rows {
			a := lb.private
			if a != nil && a.network == network && !yield(member{lb.ref(), a}) {
				return
			}
		}
	}
}

// place is a requested position in a network.
type place struct {
	ip      *string // requested address; nil: any
	aliases []string
	ipRange *string // range of the subnet; nil: any
	zone    string
}

// taken returns the addresses in use in a network and its number of members, without self.
func (p *project) taken(n *network, self *attachment) (addresses map[netip.Addr]bool, members int) {
	addresses = map[netip.Addr]bool{}
	for m := range p.members(n.id) {
		if m.attachment == self {
			continue
		}
		members++
		addresses[m.attachment.ip] = true
		for _, alias := range m.attachment.aliases {
			addresses[alias] = true
		}
	}
	return addresses, members
}

// findPlace validates the requested place, and allocates an address if none was requested.
func (p *project) findPlace(n *network, requested place) (*attachment, error) {
	taken, members := p.taken(n, nil)
	if exceeds(members, p.opts.AttachmentLimit) {
		return nil, errLimit("network_attachment_limit", p.opts.AttachmentLimit)
	}
	subnets, err := p.suitable(n, requested)
	if err != nil {
		return nil, err
	}
	a := &attachment{network: n.id}
	if requested.ip != nil && *requested.ip != "" {
		if a.ip, err = n.usable("ip", *requested.ip, subnets, taken); err != nil {
			return nil, err
		}
	} else if a.ip = n.free(subnets, taken); !a.ip.IsValid() {
		return nil, errRefused("no_subnet_available", "no subnet of network %d has a free IP", n.id)
	}
	taken[a.ip] = true
	a.aliases, err = n.usableAliases(requested.aliases, subnets, taken)
	return a, err
}

// suitable returns the subnets of a network for a requested place.
func (p *project) suitable(n *network, requested place) ([]*subnet, error) {
	var ipRange netip.Prefix
	if requested.ipRange != nil && *requested.ipRange != "" {
		var err error
		if ipRange, err = parsePrefix("ip_range", *requested.ipRange); err != nil {
			return nil, err
		}
	}
	var out []*subnet
	for _, s := range shown(p, n.subnets) {
		inRange := !ipRange.IsValid() || s.ipRange == ipRange
		if !s.isVSwitch() && s.zone == requested.zone && inRange {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, errRefused("no_subnet_available",
			"network %d has no suitable subnet in network zone %s", n.id, requested.zone)
	}
	return out, nil
}

func (n *network) usable(
	field, text string, subnets []*subnet, taken map[netip.Addr]bool,
) (netip.Addr, error) {
	ip, err := parseAddr(field, text)
	if err != nil {
		return ip, err
	}
	inSubnet := slices.ContainsFunc(subnets, func(s *subnet) bool { return s.ipRange.Contains(ip) })
	if !inSubnet || taken[ip] || n.reserved(ip) {
		return ip, errRefused("ip_not_available", "IP %s is not available in network %d", ip, n.id)
	}
	return ip, nil
}

func (n *network) usableAliases(
	texts []string, subnets []*subnet, taken map[netip.Addr]bool,
) (aliases []netip.Addr, err error) {
	for _, text := range texts {
		alias, err := n.usable("alias_ips", text, subnets, taken)
		if err != nil {
			return nil, err
		}
		taken[alias] = true
		aliases = append(aliases, alias)
	}
	return aliases, nil
}

// reserved reports whether ip is a gateway or the first or last address of a subnet.
func (n *network) reserved(ip netip.Addr) bool {
	if ip == n.gateway() || ip == publicGateway() {
		return true
	}
	s := n.subnetOf(ip)
	return s != nil && (ip == s.ipRange.Addr() || !s.ipRange.Contains(ip.Next()))
}

// free returns the first address of the first subnet that has a free one.
func (n *network) free(subnets []*subnet, taken map[netip.Addr]bool) netip.Addr {
	for _, s := range subnets {
		for ip := s.ipRange.Addr(); s.ipRange.Contains(ip); ip = ip.Next() {
			if !taken[ip] && !n.reserved(ip) {
				return ip
			}
		}
	}
	return netip.Addr{}
}

// attach validates and adds an attachment of a server.
func (p *project) attach(s *server, n *network, requested place) (*attachment, error) {
	if s.attachmentTo(n.id) != nil {
		return nil, errRefused("server_already_attached",
			"the server is already attached to network %d", n.id)
	}
	if exceeds(len(s.private), p.opts.ServerNetworkLimit) {
		return nil, errLimit("server_network_limit", p.opts.ServerNetworkLimit)
	}
	for _, a := range s.private {
		if other, ok := p.networks.get(a.network); ok && other.ipRange.Overlaps(n.ipRange) {
			return nil, errRefused("networks_overlap",
				"network %d overlaps with network %d of the server", n.id, other.id)
		}
	}
	requested.zone = s.location.NetworkZone
	a, err := p.findPlace(n, requested)
	if err != nil {
		return nil, err
	}
	a.mac = macOf(a.ip)
	s.private = append(s.private, a)
	return a, nil
}

func (c *call) attachServer(
	s *server, req schema.ServerActionAttachToNetworkRequest,
) (change, error) {
	n, err := c.idleNetwork(req.Network)
	if err != nil {
		return change{}, err
	}
	requested := place{ip: req.IP, ipRange: req.IPRange}
	for _, alias := range req.AliasIPs {
		if alias != nil {
			requested.aliases = append(requested.aliases, *alias)
		}
	}
	a, err := c.attach(s, n, requested)
	if err != nil {
		return change{}, err
	}
	return attaching(s, a), nil
}

// attachable is a server or load balancer.
type attachable interface {
	ref() ref
	detach(network int64)
}

// attaching is the action of a new attachment.
func attaching(to attachable, a *attachment) change {
	return change{
		command: "attach_to_network",
		about:   []ref{to.ref(), {kindNetwork, a.network}},
		adds:    a,
		undo:    func() { to.detach(a.network) },
	}
}

func detaching(from attachable, n *network) change {
	return change{
		command: "detach_from_network",
		about:   []ref{from.ref(), n.ref()},
		finish:  func() { from.detach(n.id) },
	}
}

func (c *call) detachServer(
	s *server, req schema.ServerActionDetachFromNetworkRequest,
) (change, error) {
	n, _, err := c.attachedTo(s, req.Network)
	if err != nil {
		return change{}, err
	}
	return detaching(s, n), nil
}

func (c *call) changeAliasIPs(
	s *server, req schema.ServerActionChangeAliasIPsRequest,
) (change, error) {
	n, a, err := c.attachedTo(s, req.Network)
	if err != nil {
		return change{}, err
	}
	subnets, err := c.suitable(n, place{zone: s.location.NetworkZone})
	if err != nil {
		return change{}, err
	}
	taken, _ := c.taken(n, a)
	taken[a.ip] = true
	aliases, err := n.usableAliases(req.AliasIPs, subnets, taken)
	return change{
		command: "change_alias_ips",
		about:   []ref{s.ref(), n.ref()},
		finish:  func() { a.aliases = aliases },
	}, err
}

// attachedTo returns an idle network of the server, and its attachment to it.
func (c *call) attachedTo(s *server, id int64) (*network, *attachment, error) {
	n, err := c.idleNetwork(id)
	if err != nil {
		return nil, nil, err
	}
	a := s.attachmentTo(n.id)
	if a == nil {
		return nil, nil, errInvalid("network", "the server is not attached to network %d", n.id)
	}
	return n, a, nil
}

func (p *project) attachLoadBalancer(lb *loadBalancer, n *network, requested place) (err error) {
	if lb.private != nil {
		return errRefused("load_balancer_already_attached",
			"the load balancer is already attached to network %d", lb.private.network)
	}
	requested.zone = lb.location.NetworkZone
	lb.private, err = p.findPlace(n, requested)
	return err
}

func (c *call) attachLoadBalancerToNetwork(
	lb *loadBalancer, req schema.LoadBalancerActionAttachToNetworkRequest,
) (change, error) {
	n, err := c.idleNetwork(req.Network)
	if err == nil {
		err = c.attachLoadBalancer(lb, n, place{ip: req.IP, ipRange: req.IPRange})
	}
	if err != nil {
		return change{}, err
	}
	return attaching(lb, lb.private), nil
}

// detachLoadBalancerFromNetwork also removes the targets reached through the network.
func (c *call) detachLoadBalancerFromNetwork(
	lb *loadBalancer, req schema.LoadBalancerActionDetachFromNetworkRequest,
) (change, error) {
	n, err := c.idleNetwork(req.Network)
	switch {
	case err != nil:
		return change{}, err
	case lb.private == nil || lb.private.network != n.id:
		return change{}, errNotAttached()
	}
	return detaching(lb, n), nil
}

func errNotAttached() error {
	return errRefused("load_balancer_not_attached_to_network",
		"the load balancer is not attached to the network")
}
