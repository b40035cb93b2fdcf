package config

import (
	"net/netip"

	"github.com/underlay-ccm/underlay/addresses"
)

// netBits is the length of the IPv6 nets that floating IPs and failover addresses are.
const netBits = 64

// onePerNet checks that pools have one address of each net that a provider moves as a whole: two of
// its addresses can't be at two nodes.
func (r *resolver) onePerNet(d *draft) {
	const remedy = "give one address of each /64, such as 2001:db8:f::1; Services share it by underlay.dev/address-sharing-key"
	taken := map[netip.Prefix]string{}
	for _, p := range d.addressPools {
		if p.Mover != FloatingIP && p.Mover != Failover {
			continue
		}
		for _, one := range p.Ranges {
			if addresses.FamilyOf(one.First) != addresses.IPv6 {
				continue
			}
			net := netip.PrefixFrom(one.First, netBits).Masked()
			switch twin, twice := taken[net]; {
			case one.First != one.Last:
				r.complain(p.Field, one.String(), "has several addresses, and the provider moves all of a /64 together", remedy)
			case twice:
				r.complain(p.Field, one.String(), "lies in the /64 of "+twin+", and the provider moves all of it together", remedy)
			}
			taken[net] = one.String()
		}
	}
}
