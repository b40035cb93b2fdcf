package routes

import (
	"fmt"
	"net/netip"
)

// Layout is a cluster's address ranges and the network that they are in.
type Layout struct {
	Pods     []Range
	Services []netip.Prefix
	Network  netip.Prefix
	Subnets  []netip.Prefix
}

// Finding is a problem to resolve before routes are written.
type Finding struct {
	// Prefix is the affected pod range or destination; the zero Prefix for the whole network.
	Prefix netip.Prefix
	// Fatal means that routes can't work or would disrupt other users, so startup must fail.
	Fatal           bool
	Problem, Remedy string
}

// String returns the finding in one sentence.
func (f Finding) String() string {
	if !f.Prefix.IsValid() {
		return f.Problem + "; " + f.Remedy
	}
	return fmt.Sprintf("%s %s; %s", f.Prefix, f.Problem, f.Remedy)
}

// Check compares a cluster's ranges with the network that is to route them. A destination must
// not overlap a subnet, the network's first address is its gateway, and pods outside of the
// network's range need a route on every server.
func Check(l Layout) []Finding {
	var out []Finding
	for _, pods := range l.Pods {
		out = append(out, l.overlaps(pods.Prefix)...)
		gateway := l.Network.Masked().Addr().Next()
		switch {
		case pods.Prefix.Contains(gateway):
			out = append(out, Finding{
				pods.Prefix, true, fmt.Sprintf("holds the network's gateway %s", gateway),
				"choose a range behind the first addresses of the network " + l.Network.String(),
			})
		case !l.Network.Contains(pods.Prefix.Addr()) || l.Network.Bits() > pods.Prefix.Bits():
			out = append(out, Finding{
				pods.Prefix, false,
				fmt.Sprintf("is not inside the network %s, so servers send its packets to their public gateway",
					l.Network),
				fmt.Sprintf("give every server a route to %s via %s, or choose a range inside the network",
					pods.Prefix, gateway),
			})
		}
	}
	return out
}

func (l Layout) overlaps(pods netip.Prefix) []Finding {
	var out []Finding
	for _, subnet := range l.Subnets {
		if pods.Overlaps(subnet) {
			out = append(out, Finding{
				pods, true,
				fmt.Sprintf("overlaps the network's subnet %s, so the cloud takes no route into it", subnet),
				"choose a range outside every subnet, or delete the subnet if nothing uses it",
			})
		}
	}
	for _, service := range l.Services {
		if pods.Overlaps(service) {
			out = append(out, Finding{
				pods, true, fmt.Sprintf("overlaps the Service range %s", service),
				"choose ranges that lie apart",
			})
		}
	}
	return out
}
