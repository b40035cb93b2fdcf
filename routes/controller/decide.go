package controller

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// decision is everything that one look at nodes, servers and routes leads to.
type decision struct {
	nodes    []routes.Node
	uids     map[string]types.UID
	wanted   routes.Wanted
	census   routes.Census
	plan     routes.Plan
	verdicts map[string]routes.Verdict
	// detached: some node with podCIDRs to route has no gateway.
	detached bool
	limit    int
}

// decide makes up its mind about the table as it was last seen. fresh asks for
// a new list of servers; without mayDelete there is no room but what is free.
func (c *Controller) decide(ctx context.Context, fresh, mayDelete bool) (decision, error) {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return decision{}, fmt.Errorf("listing Nodes: %w", err)
	}
	gateways, err := c.Gateways.Gateways(ctx, nodes, fresh)
	if err != nil {
		return decision{}, fmt.Errorf("finding the Nodes' servers: %w", err)
	}
	for _, id := range gateways.IDs {
		c.members[id] = true
	}
	d := decision{uids: make(map[string]types.UID, len(nodes)), limit: c.Limit}
	if c.latched > 0 {
		d.limit = min(d.limit, c.latched)
	}
	for _, node := range nodes {
		n := plannable(node, gateways)
		d.nodes = append(d.nodes, n)
		d.uids[node.Name] = node.UID
		d.detached = d.detached || len(n.Dsts) > 0 && !n.Via.IsValid()
	}
	d.wanted = routes.Desired(d.nodes, c.Ranges)
	d.census = routes.Owned(c.table, c.Ranges, c.whose(gateways))
	plan, now := routes.Diff(d.wanted, d.census), time.Now()
	c.retries.keep(plan)
	budget := routes.Budget{Limit: d.limit, Reserve: c.Reserve}
	if mayDelete {
		budget.Deletions = c.brake.left(now, len(d.census.Ours))
	}
	d.plan = budget.Trim(plan.Without(c.retries.resting(now)), d.census)
	d.verdicts = routes.Judge(d.nodes, c.table, d.wanted, d.plan)
	return d, nil
}

// whose knows servers that are or were nodes of this cluster as members.
func (c *Controller) whose(g routes.Gateways) func(netip.Addr) routes.Owner {
	return func(a netip.Addr) routes.Owner {
		id, attached := g.Servers[a]
		switch {
		case !attached:
			return routes.Nobody
		case c.members[id]:
			return routes.Member
		default:
			return routes.Stranger
		}
	}
}

// plannable is the node as package routes sees it. Only IPv4 podCIDRs travel
// through the network's table; networks carry no IPv6.
func plannable(node *corev1.Node, g routes.Gateways) routes.Node {
	// What can't be read was let in by an API server of long ago; the rest of
	// the Node's prefixes, and all other Nodes, are routed all the same.
	prefixes, _ := kube.PodCIDRs(node)
	n := routes.Node{
		Name:         node.Name,
		Allocated:    len(prefixes) > 0,
		Via:          g.Of[node.Name],
		ControlPlane: kube.ControlPlane(node),
		Ready:        kube.Ready(node),
		Created:      node.CreationTimestamp.Time,
	}
	if !n.Via.IsValid() {
		n.Missing = g.Missing[node.Name]
	}
	for _, p := range prefixes {
		if p.Addr().Is4() {
			n.Dsts = append(n.Dsts, p)
		}
	}
	return n
}

// missing names the nodes that wait for their server to be attached.
func (d decision) missing() string {
	waiting := map[string]bool{}
	for _, n := range d.nodes {
		if len(n.Dsts) > 0 && !n.Via.IsValid() {
			waiting[n.Name] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(waiting)), " ")
}
