package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// attachable is how many servers and load balancers a network takes
// (docs.hetzner.cloud, networks).
const attachable = 100

// boundless is a limit that nothing reaches, to ask Preflight about another one.
const boundless = 1 << 20

func routeChecks() []check {
	of := func(c check) check {
		c.given, c.concerns, c.needs = seesBook, (*exam).routed, seesRouting
		ask := c.find
		c.find = func(x *exam) ([]Finding, string) {
			if x.routingErr != nil {
				return nil, x.routingErr.Error()
			}
			return ask(x)
		}
		return c
	}
	return []check{
		of(check{
			name:       "foreign-routes",
			looks:      "whether routes that are not this cluster's take a part of a pool, or lead from a pool's podCIDRs to servers that are no Nodes",
			severities: []Severity{Warning, Error},
			remedy:     "remove the route if nothing uses it, or keep podCIDRs out of it (key exclude)",
			find:       foreignRoutes,
		}),
		of(check{
			name:       "stale-routes",
			looks:      "whether routes in a pool lead to a gateway that no server has",
			severities: []Severity{Warning},
			remedy:     "see why the cloud controller manager doesn't delete it: " + managerLogs + "; or by hand: hcloud network remove-route NETWORK --destination PREFIX --gateway ADDRESS",
			find:       staleRoutes,
		}),
		of(check{
			name:       "route-table",
			looks:      "whether the network's route table has room for every Node: full, or 80 % of `routes.limit`",
			severities: []Severity{Error, Warning},
			remedy:     "have the limit raised and set routes.limit in underlay-config",
			find:       routeTable,
		}),
		of(check{
			name:       "attachments",
			looks:      "whether the network takes more servers: of 100, load balancers included, 80 or more are attached",
			severities: []Severity{Error, Warning},
			remedy:     "have the limit raised before more nodes join",
			find:       attachments,
		}),
	}
}

// situation is what is known, for routes.Preflight, with no limit in sight.
func (x *exam) situation() routes.Situation {
	ranges := x.Ranges()
	whose := map[routes.Route]routes.Owner{}
	for _, r := range x.routing.Census.Ours {
		whose[r] = routes.Nobody
		if _, attached := x.routing.Gateways.Servers[r.Via]; attached {
			whose[r] = routes.Member
		}
	}
	for _, r := range x.routing.Census.Ambiguous {
		whose[r] = routes.Stranger
	}
	return routes.Situation{
		Layout: routes.Layout{Pods: ranges, Network: everywhere(netip.PrefixFrom(netip.IPv4Unspecified(), 0))},
		Have:   x.Network.Routes, Whose: func(r routes.Route) routes.Owner { return whose[r] },
		Limit: boundless, Attachments: boundless,
		Nodes: len(x.Nodes), Attached: x.routing.Gateways.Attached,
	}
}

// preflight asks routes.Preflight, and keeps what is about single ranges and
// destinations, or what is about the network as a whole.
func preflight(s routes.Situation, aboutRanges bool) []routes.Finding {
	return slices.DeleteFunc(routes.Preflight(s), func(f routes.Finding) bool { return f.Prefix.IsValid() != aboutRanges })
}

func foreignRoutes(x *exam) ([]Finding, string) {
	var found []Finding
	for _, f := range preflight(x.situation(), true) {
		finding := ofRoutes(f)
		finding.Object = "route/" + f.Prefix.String()
		found = append(found, finding)
	}
	return found, ""
}

// leaving: a podCIDR's Node still stands and its server is gone, only just as far
// as the Node's Ready tells. The Node goes next, and the route with it.
func (x *exam) leaving(podCIDR netip.Prefix) bool {
	return slices.ContainsFunc(x.Nodes, func(n *corev1.Node) bool {
		prefixes, _ := kube.PodCIDRs(n)
		if !slices.Contains(prefixes, podCIDR) || x.ServerOf(n) != nil {
			return false
		}
		ready := kube.Condition(n, corev1.NodeReady)
		return ready != nil && (ready.Status == corev1.ConditionTrue || x.age(ready.LastTransitionTime.Time) < patience)
	})
}

func staleRoutes(x *exam) ([]Finding, string) {
	var found []Finding
	for _, r := range x.routing.Census.Ours {
		if _, attached := x.routing.Gateways.Servers[r.Via]; !attached && !x.leaving(r.Dst) {
			found = append(found, Finding{
				Object: "route/" + r.Dst.String(),
				What:   fmt.Sprintf("the route %s leads to an address that no server has, and takes one of the table's places", r),
			})
		}
	}
	return found, ""
}

func routeTable(x *exam) ([]Finding, string) {
	s := x.situation()
	s.Limit, s.Reserve = x.Config.Routes.Limit, x.Config.Routes.Reserve
	standing := fmt.Sprintf("; %d of %d routes stand now", len(x.Network.Routes), s.Limit)
	var found []Finding
	for _, f := range preflight(s, false) {
		finding := ofRoutes(f)
		if x.routing.Budget.Room(len(x.Network.Routes)) == 0 || s.Nodes+len(x.routing.Census.Foreign)+len(x.routing.Census.Ambiguous)+s.Reserve > s.Limit {
			finding.Severity = Error
		}
		finding.What += standing
		found = append(found, finding)
	}
	return found, ""
}

func attachments(x *exam) ([]Finding, string) {
	s := x.situation()
	s.Attached, s.Attachments = x.Network.Servers+x.Network.LoadBalancers, attachable
	var found []Finding
	for _, f := range preflight(s, false) {
		finding := ofRoutes(f)
		finding.What = fmt.Sprintf("%d servers and %d load balancers are attached to the network %s, which takes %d",
			x.Network.Servers, x.Network.LoadBalancers, x.Network.Name, attachable)
		if s.Attached >= attachable {
			finding.Severity = Error
		}
		found = append(found, finding)
	}
	return found, ""
}
