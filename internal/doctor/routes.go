package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/survey"
	"github.com/underlay-ccm/underlay/ipam"
	"github.com/underlay-ccm/underlay/routes"
)

// attachable limits the servers and load balancers of a network (docs.hetzner.cloud, networks).
const attachable = 100

func routeChecks() []check {
	return []check{
		newCheck("foreign-routes", Warning, (*cluster).routed, hasRouting,
			"remove the route if nothing uses it, or keep podCIDRs out of it (key exclude)", foreignRoutes),
		newCheck("stale-routes", Warning, (*cluster).routed, hasRouting,
			"see why the cloud controller manager doesn't delete it: "+managerLogs+
				"; or by hand: hcloud network remove-route NETWORK --destination PREFIX --gateway ADDRESS",
			staleRoutes),
		newCheck("route-table", Error, (*cluster).routed, hasRouting,
			"have the limit raised and set routes.limit in underlay-config", routeTable),
		newCheck("attachments", Error, (*cluster).routed, hasRouting,
			"have the limit raised before more nodes join", attachments),
	}
}

func foreignRoutes(x *cluster) (found []Finding) {
	for _, f := range x.routing.Obstacles() {
		finding := ofRoutes(f)
		finding.Object = "route/" + f.Prefix.String()
		found = append(found, finding)
	}
	return found
}

// accounted reports whether a route to the podCIDR is no problem: its Node will be deleted
// because its server no longer exists; or its Node was just deleted, so the route will be; or
// its Node is a machine of another provider, with addresses in the network that the cloud
// doesn't list.
func (x *cluster) accounted(podCIDR netip.Prefix) bool {
	holdings, _ := x.Holdings()
	if slices.ContainsFunc(holdings, func(h ipam.Holding) bool {
		return !h.Released.IsZero() && x.age(h.Released) < survey.GracePeriod &&
			slices.Contains(h.Prefixes, podCIDR)
	}) {
		return true
	}
	return slices.ContainsFunc(x.Nodes, func(n *corev1.Node) bool {
		prefixes, _ := kube.PodCIDRs(n)
		a, absent := x.absent[n.Name]
		return slices.Contains(prefixes, podCIDR) && (absent && a.Passes() || survey.OfOtherProvider(n))
	})
}

func staleRoutes(x *cluster) (found []Finding) {
	for _, r := range x.routing.Ownership.Ours {
		if _, attached := x.routing.Gateways.Servers[r.Via]; !attached && !x.accounted(r.Dst) {
			found = append(found, about("route/"+r.Dst.String(),
				"the route %s leads to an address that no server has, and takes one of the table's places", r))
		}
	}
	return found
}

func routeTable(x *cluster) []Finding {
	f, full, found := x.routing.Shortage()
	if !found {
		return nil
	}
	finding := ofRoutes(f)
	if full {
		finding.Severity = Error
	}
	finding.What += fmt.Sprintf("; %d of %d routes stand now", len(x.Network.Routes),
		x.Config.Routes.Limit)
	return []Finding{finding}
}

func attachments(x *cluster) []Finding {
	dedicated := x.onVSwitch()
	f, full, found := routes.Attachments(x.Network.Servers+x.Network.LoadBalancers, dedicated,
		attachable)
	if !found {
		return nil
	}
	finding := ofRoutes(f)
	if full {
		finding.Severity = Error
	}
	finding.What = fmt.Sprintf("%d servers and %d load balancers are attached to the network %s, which takes %d",
		x.Network.Servers, x.Network.LoadBalancers, x.Network.Name, attachable)
	if dedicated > 0 {
		finding.What += fmt.Sprintf("; the cluster has %d dedicated servers on the network's vSwitch, and whether they count is not documented", dedicated)
	}
	return []Finding{finding}
}

// onVSwitch returns the number of Nodes that are dedicated servers with an internal address in a
// subnet coupled with a vSwitch. Other machines on the vSwitch can't be counted.
func (x *cluster) onVSwitch() int {
	count := 0
	for _, n := range x.Nodes {
		_, err := kube.ParseDedicatedID(n.Spec.ProviderID)
		if err == nil && slices.ContainsFunc(kube.InternalIPs(n), func(a netip.Addr) bool {
			return slices.ContainsFunc(x.Network.Coupling.Subnets, func(p netip.Prefix) bool {
				return p.Contains(a)
			})
		}) {
			count++
		}
	}
	return count
}
