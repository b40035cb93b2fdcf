package lb

import (
	"net/netip"
	"slices"
)

// Ingress returns the addresses of a load balancer: the public addresses in the order of the
// Service's families, then the address in the network.
func Ingress(want Spec, have State) (addresses []netip.Addr) {
	add := func(when bool, ip netip.Addr) {
		if when && ip.IsValid() {
			addresses = append(addresses, ip)
		}
	}
	add(have.Public, have.IPv4)
	add(have.Public && (want.Publish.IPv6 || inUse(want, have)), have.IPv6)
	if want.Publish.IPv6First {
		slices.Reverse(addresses)
	}
	add(want.Publish.Private && have.Network != 0, have.PrivateIP)
	return addresses
}

// inUse reports whether the Hetzner controller may have published the IPv6 address, so that
// clients use it. Then the status shows it whatever the Service's families, unless the user
// disabled it.
func inUse(want Spec, have State) bool {
	uid, marked := have.Labels[LabelPeer]
	return marked && uid == want.Owner.UID && !want.Takeover.NoIPv6
}
