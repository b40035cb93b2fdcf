package lb

import (
	"net/netip"
	"slices"
)

// IngressPoint is one entry of a Service's load balancer status: an address, or a host name.
type IngressPoint struct {
	IP       netip.Addr // invalid with Hostname
	Hostname string
	// Proxy: traffic from inside the cluster must go through the load balancer, because what it
	// adds (the PROXY protocol's header) is part of what the pods expect. Only with IP.
	Proxy bool
}

// Ingress says how a load balancer is reached: the public addresses in the order of the
// Service's families, then the address in the network.
func Ingress(want Spec, have State) []IngressPoint {
	if !have.Exists() {
		return nil
	}
	if want.Publish.Hostname != "" {
		return []IngressPoint{{Hostname: want.Publish.Hostname}}
	}
	var points []IngressPoint
	add := func(when bool, ip netip.Addr) {
		if when && ip.IsValid() {
			points = append(points, IngressPoint{IP: ip, Proxy: want.Publish.Proxy})
		}
	}
	add(have.Public, have.IPv4)
	add(have.Public && (want.Publish.IPv6 || inUse(want, have)), have.IPv6)
	if want.Publish.IPv6First {
		slices.Reverse(points)
	}
	add(want.Publish.Private && have.Network != 0, have.PrivateIP)
	return points
}

// inUse reports whether clients know the IPv6 address from the controller that had the load
// balancer before: then it is shown, whatever the Service's families, unless the user does not want
// it.
func inUse(want Spec, have State) bool {
	uid, marked := have.Labels[LabelPeer]
	return marked && uid == want.Owner.UID && !want.Takeover.NoIPv6
}
