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
func Check(l Layout) (found []Finding) {
	gateway := l.Network.Masked().Addr().Next()
	for _, r := range l.Pods {
		pods := r.Prefix
		add := func(fatal bool, problem, remedy string) {
			found = append(found, Finding{pods, fatal, problem, remedy})
		}
		for _, subnet := range l.Subnets {
			if pods.Overlaps(subnet) {
				add(true, "overlaps the network's subnet "+subnet.String()+
					", so the cloud takes no route into it",
					"choose a range outside every subnet, or delete the subnet if nothing uses it")
			}
		}
		for _, service := range l.Services {
			if pods.Overlaps(service) {
				add(true, "overlaps the Service range "+service.String(), "choose ranges that lie apart")
			}
		}
		switch {
		case pods.Contains(gateway):
			add(true, "holds the network's gateway "+gateway.String(),
				"choose a range behind the first addresses of the network "+l.Network.String())
		case !l.Network.Contains(pods.Addr()) || l.Network.Bits() > pods.Bits():
			add(false, "is not inside the network "+l.Network.String()+
				", so servers send its packets to their public gateway",
				fmt.Sprintf("give every server a route to %s via %s, or choose a range inside the network",
					pods, gateway))
		}
	}
	return found
}
