package hcloudsim

import (
	"net/netip"
	"slices"
	"strings"
)

// The validation rules of networks. Each reads the state and returns an error or nil.

const (
	subnetCloud   = "cloud"
	subnetServer  = "server"
	subnetVSwitch = "vswitch"

	networkBitsMost = 24 // smallest network
	subnetBitsMost  = 30 // smallest subnet
)

// rfc1918 returns the ranges allowed for networks, subnets and routes.
func rfc1918() []netip.Prefix {
	return []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10}), 8),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16}), 12),
		netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168}), 16),
	}
}

// publicGateway is the servers' public gateway. It is never part of a network.
func publicGateway() netip.Addr { return netip.AddrFrom4([4]byte{172, 31, 1, 1}) }

func isPrivate(p netip.Prefix) bool {
	return slices.ContainsFunc(rfc1918(), func(block netip.Prefix) bool {
		return p.Bits() >= block.Bits() && block.Contains(p.Addr())
	})
}

func inside(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}

// parsePrefix parses an IPv4 prefix and requires zero host bits.
func parsePrefix(field, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is4() {
		return p, errInvalid(field, "'%s' is not in CIDR notation", text)
	}
	if p != p.Masked() {
		return p, errInvalid(field, "'%s' is no network address, did you mean %s?", text, p.Masked())
	}
	return p, nil
}

func parseAddr(field, text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || !a.Is4() {
		return a, errInvalid(field, "'%s' is no IPv4 address", text)
	}
	return a, nil
}

func checkNetworkRange(ipRange netip.Prefix) error {
	switch {
	case !isPrivate(ipRange):
		return errInvalid("ip_range", "must be one of the private ranges of RFC 1918")
	case ipRange.Bits() > networkBitsMost:
		return errInvalid("ip_range", "must be at least a /%d", networkBitsMost)
	}
	return nil
}

// checkExtension requires a range that begins at the same address and contains the old range.
func (n *network) checkExtension(to netip.Prefix) error {
	switch err := checkNetworkRange(to); {
	case err != nil:
		return err
	case to.Addr() != n.ipRange.Addr() || to.Bits() > n.ipRange.Bits():
		return errInvalid("ip_range", "must extend %s with the same first address", n.ipRange)
	}
	return nil
}

func (n *network) checkSubnet(s *subnet, zones catalog) error {
	switch s.kind {
	case subnetCloud, subnetServer, subnetVSwitch:
	default:
		return errInvalid("type", "must be one of cloud, server, vswitch")
	}
	switch {
	case (s.kind == subnetVSwitch) != (s.vSwitch > 0):
		return errInvalid("vswitch_id", "belongs to subnets of type vswitch, and only to them")
	case !zones.zoneExists(s.zone):
		return errInvalid("network_zone", "network zone '%s' does not exist", s.zone)
	case len(n.subnets) > 0 && n.subnets[0].zone != s.zone:
		return errInvalid("network_zone", "all subnets of a network must be in the same network zone")
	case s.ipRange.Bits() > subnetBitsMost:
		return errInvalid("ip_range", "must be at least a /%d", subnetBitsMost)
	case !inside(s.ipRange, n.ipRange):
		return errInvalid("ip_range", "must be within the network's range %s", n.ipRange)
	}
	if taken, by := n.overlapping(s.ipRange); taken {
		return errInvalid("ip_range", "overlaps with %s", by)
	}
	return nil
}

// checkRoute validates a new route. The API does not require a member with the gateway's address.
func (n *network) checkRoute(r *route) error {
	everything := r.destination.Bits() == 0
	switch {
	case !everything && !isPrivate(r.destination):
		return errInvalid("destination", "must be one of the private ranges of RFC 1918, or 0.0.0.0/0")
	case !everything && r.destination.Contains(publicGateway()):
		return errInvalid("destination", "overlaps with %s", publicGateway())
	}
	if taken, by := n.overlapping(r.destination); taken {
		return errInvalid("destination", "overlaps with %s", by)
	}
	switch {
	case r.gateway == n.gateway():
		return errInvalid("gateway", "%s is the network's own gateway", r.gateway)
	case r.gateway == publicGateway():
		return errInvalid("gateway", "%s is reserved", r.gateway)
	case !n.ipRange.Contains(r.gateway):
		return errInvalid("gateway", "must be within the network's range %s", n.ipRange)
	}
	if s := n.subnetOf(r.gateway); s != nil && s.kind == subnetVSwitch {
		return errInvalid("gateway", "%s is behind a vSwitch", r.gateway)
	}
	return nil
}

// overlapping returns the subnet or route of the network that overlaps p. A default route
// overlaps only another default route.
func (n *network) overlapping(p netip.Prefix) (bool, string) {
	clash := func(other netip.Prefix) bool {
		return p == other || (p.Bits() > 0 && other.Bits() > 0 && p.Overlaps(other))
	}
	for _, s := range n.subnets {
		if clash(s.ipRange) {
			return true, "subnet " + s.ipRange.String()
		}
	}
	for _, r := range n.routes {
		if clash(r.destination) {
			return true, "route " + r.destination.String()
		}
	}
	return false, ""
}

// freeSubnet returns the first /24 of the network that overlaps no subnet or route.
func (n *network) freeSubnet() (netip.Prefix, error) {
	for a := n.ipRange.Addr(); n.ipRange.Contains(a); {
		p := netip.PrefixFrom(a, networkBitsMost)
		if taken, _ := n.overlapping(p); !taken {
			return p, nil
		}
		b := a.As4() // next /24: increment the upper 24 bits
		for i := 2; i >= 0; i-- {
			if b[i]++; b[i] != 0 {
				break
			}
		}
		a = netip.AddrFrom4(b)
	}
	return netip.Prefix{}, errInvalid("ip_range", "the network has no /%d left", networkBitsMost)
}

func checkName(name string) error {
	if strings.TrimSpace(name) == "" || len(name) > nameMost {
		return errInvalid("name", "must have 1 to %d characters", nameMost)
	}
	return nil
}

// nameMost is the maximum length of a name in bytes.
const nameMost = 128
