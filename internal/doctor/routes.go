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
			looks:      "whether routes that this cluster neither wrote nor adopted take a part of a pool or are for one of its podCIDRs",
			severities: []Severity{Warning, Error},
			remedy:     "remove the route if nothing uses it, or keep podCIDRs out of it (key exclude)",
			find:       foreignRoutes,
		}),
		of(check{
			name:       "stale-routes",
			looks:      "whether routes that this cluster wrote or adopted lead to a gateway that no server has, and are not about to go with their Node (see `node-server`)",
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
	return routes.Situation{
		Layout: routes.Layout{Pods: x.Ranges(), Network: everywhere(netip.PrefixFrom(netip.IPv4Unspecified(), 0))},
		Census: x.routing.Census,
		Limit:  boundless, Attachments: boundless,
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

// accounted: a podCIDR's Node goes by itself, because its server is gone, and the
// route goes with it; or it has just gone, and the route is next; or it is a machine
// of another provider, whose addresses in the network the cloud knows nothing of.
func (x *exam) accounted(podCIDR netip.Prefix) bool {
	holdings, _ := x.Holdings()
	if slices.ContainsFunc(holdings, func(h ipam.Holding) bool {
		return !h.Released.IsZero() && x.age(h.Released) < patience && slices.Contains(h.Prefixes, podCIDR)
	}) {
		return true
	}
	return slices.ContainsFunc(x.Nodes, func(n *corev1.Node) bool {
		prefixes, _ := kube.PodCIDRs(n)
		a, absent := x.absent[n.Name]
		return slices.Contains(prefixes, podCIDR) && (absent && a.Passes() || survey.OfOtherProvider(n))
	})
}

func staleRoutes(x *exam) ([]Finding, string) {
	var found []Finding
	for _, r := range x.routing.Census.Ours {
		if _, attached := x.routing.Gateways.Servers[r.Via]; !attached && !x.accounted(r.Dst) {
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
