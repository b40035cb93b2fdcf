package hcloudsim

import (
	"encoding/binary"
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
	return slices.ContainsFunc(rfc1918(), func(block netip.Prefix) bool { return inside(p, block) })
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

func (n *network) checkSubnet(s *subnet, zones catalog) error {
	overlapped := n.overlapping(s.ipRange)
	switch {
	case !slices.Contains([]string{subnetCloud, subnetServer, subnetVSwitch}, s.kind):
		return errInvalid("type", "must be one of cloud, server, vswitch")
	case s.isVSwitch() != (s.vSwitch > 0):
		return errInvalid("vswitch_id", "belongs to subnets of type vswitch, and only to them")
	case !zones.zoneExists(s.zone):
		return errInvalid("network_zone", "network zone '%s' does not exist", s.zone)
	case len(n.subnets) > 0 && n.subnets[0].zone != s.zone:
		return errInvalid("network_zone", "all subnets of a network must be in the same network zone")
	case s.ipRange.Bits() > subnetBitsMost:
		return errInvalid("ip_range", "must be at least a /%d", subnetBitsMost)
	case !inside(s.ipRange, n.ipRange):
		return errInvalid("ip_range", "must be within the network's range %s", n.ipRange)
	case overlapped != "":
		return errInvalid("ip_range", "overlaps with %s", overlapped)
	}
	return nil
}

// checkRoute validates a new route. The API does not require a member with the gateway's address.
func (n *network) checkRoute(r *route) error {
	everything := r.Destination.Bits() == 0
	overlapped := n.overlapping(r.Destination)
	behind := n.subnetOf(r.Gateway)
	switch {
	case !everything && !isPrivate(r.Destination):
		return errInvalid("destination", "must be one of the private ranges of RFC 1918, or 0.0.0.0/0")
	case !everything && r.Destination.Contains(publicGateway()):
		return errInvalid("destination", "overlaps with %s", publicGateway())
	case overlapped != "":
		return errInvalid("destination", "overlaps with %s", overlapped)
	case r.Gateway == n.gateway():
		return errInvalid("gateway", "%s is the network's own gateway", r.Gateway)
	case r.Gateway == publicGateway():
		return errInvalid("gateway", "%s is reserved", r.Gateway)
	case !n.ipRange.Contains(r.Gateway):
		return errInvalid("gateway", "must be within the network's range %s", n.ipRange)
	case behind != nil && behind.isVSwitch():
		return errInvalid("gateway", "%s is behind a vSwitch", r.Gateway)
	}
	return nil
}

// overlapping returns the name of the subnet or route of the network that overlaps p, or "". A
// default route overlaps only another default route.
func (n *network) overlapping(p netip.Prefix) string {
	clash := func(other netip.Prefix) bool {
		return p == other || (p.Bits() > 0 && other.Bits() > 0 && p.Overlaps(other))
	}
	for _, s := range n.subnets {
		if clash(s.ipRange) {
			return "subnet " + s.ipRange.String()
		}
	}
	for _, r := range n.routes {
		if clash(r.Destination) {
			return "route " + r.Destination.String()
		}
	}
	return ""
}

// freeSubnet returns the first /24 of the network that overlaps no subnet or route.
func (n *network) freeSubnet() (netip.Prefix, error) {
	for a := n.ipRange.Addr(); n.ipRange.Contains(a); {
		p := netip.PrefixFrom(a, networkBitsMost)
		if n.overlapping(p) == "" {
			return p, nil
		}
		next := a.As4()
		binary.BigEndian.PutUint32(next[:], binary.BigEndian.Uint32(next[:])+1<<8)
		a = netip.AddrFrom4(next)
	}
	return netip.Prefix{}, errInvalid("ip_range", "the network has no /%d left", networkBitsMost)
}

// nameMost is the maximum length of a name in bytes.
const nameMost = 128

func checkName(name string) error {
	if strings.TrimSpace(name) == "" || len(name) > nameMost {
		return errInvalid("name", "must have 1 to %d characters", nameMost)
	}
	return nil
}
