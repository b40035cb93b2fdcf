package hcloudsim

import (
	"iter"
	"net/netip"
	"slices"
)

// attachment is the membership of a server or load balancer in a network.
type attachment struct {
	network int64
	ip      netip.Addr
	aliases []netip.Addr
	mac     string
	pending bool
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
			for _, a := range s.private {
				if a.network == network && !yield(member{s.ref(), a}) {
					return
				}
			}
		}
		for _, lb := range p.loadBalancers.rows {
			if a := lb.private; a != nil && a.network == network && !yield(member{lb.ref(), a}) {
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

func (p *project) behindVSwitches(n *network) int {
	if p.opts.VSwitchMembers == nil {
		return 0
	}
	counted := map[int64]bool{}
	servers := 0
	for _, s := range n.subnets {
		if s.kind == subnetVSwitch && !counted[s.vSwitch] {
			counted[s.vSwitch] = true
			servers += p.opts.VSwitchMembers(s.vSwitch)
		}
	}
	return servers
}

// findPlace validates the requested place, and allocates an address if none was requested.
func (p *project) findPlace(n *network, wish place) (*attachment, error) {
	taken, members := p.taken(n, nil)
	if exceeds(members+p.behindVSwitches(n), p.opts.AttachmentLimit) {
		return nil, errLimit("network_attachment_limit", p.opts.AttachmentLimit)
	}
	subnets, err := n.suitable(wish)
	if err != nil {
		return nil, err
	}
	a := &attachment{network: n.id}
	if wish.ip != nil && *wish.ip != "" {
		if a.ip, err = n.usable("ip", *wish.ip, subnets, taken); err != nil {
			return nil, err
		}
	} else if a.ip = n.free(subnets, taken, p.opts.AddressesInTurn); !a.ip.IsValid() {
		return nil, errRefused("no_subnet_available", "no subnet of network %d has a free IP", n.id)
	}
	taken[a.ip] = true
	a.aliases, err = n.usableAliases(wish.aliases, subnets, taken)
	return a, err
}

func (p *project) newAliases(s *server, n *network, a *attachment, texts []string) ([]netip.Addr, error) {
	subnets, err := n.suitable(place{zone: s.location.NetworkZone})
	if err != nil {
		return nil, err
	}
	taken, _ := p.taken(n, a)
	taken[a.ip] = true
	return n.usableAliases(texts, subnets, taken)
}

func (n *network) suitable(wish place) ([]*subnet, error) {
	var out []*subnet
	for _, s := range n.subnets {
		if s.kind != subnetVSwitch && !s.pending && s.zone == wish.zone {
			out = append(out, s)
		}
	}
	if wish.ipRange != nil && *wish.ipRange != "" {
		ipRange, err := parsePrefix("ip_range", *wish.ipRange)
		if err != nil {
			return nil, err
		}
		out = slices.DeleteFunc(out, func(s *subnet) bool { return s.ipRange != ipRange })
	}
	if len(out) == 0 {
		return nil, errRefused("no_subnet_available", "network %d has no suitable subnet in network zone %s", n.id, wish.zone)
	}
	return out, nil
}

func (n *network) usable(field, text string, subnets []*subnet, taken map[netip.Addr]bool) (netip.Addr, error) {
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

func (n *network) usableAliases(texts []string, subnets []*subnet, taken map[netip.Addr]bool) ([]netip.Addr, error) {
	var aliases []netip.Addr
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

// free allocates an unused address: the first of the first subnet that has a free address, or
// with inTurn the first after the last address allocated in that subnet.
func (n *network) free(subnets []*subnet, taken map[netip.Addr]bool, inTurn bool) netip.Addr {
	for _, s := range subnets {
		first := s.ipRange.Addr()
		if inTurn && s.picked.IsValid() {
			first = s.picked.Next()
		}
		for _, from := range []netip.Addr{first, s.ipRange.Addr()} {
			for ip := from; s.ipRange.Contains(ip); ip = ip.Next() {
				if !taken[ip] && !n.reserved(ip) {
					s.picked = ip
					return ip
				}
			}
		}
	}
	return netip.Addr{}
}
