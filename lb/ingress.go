package lb

import (
	"net/netip"
	"slices"
)

// Ingress returns the addresses at which a load balancer is reached: the public ones in the order
// of the Service's families, then the one in the network.
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

// inUse reports whether clients know the IPv6 address from the controller that had the load
// balancer before: then it is shown, whatever the Service's families, unless the user does not want
// it.
func inUse(want Spec, have State) bool {
	uid, marked := have.Labels[LabelPeer]
	return marked && uid == want.Owner.UID && !want.Takeover.NoIPv6
}
