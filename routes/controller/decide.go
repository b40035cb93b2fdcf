package controller

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// decision is a routes.Decision with the UIDs and statuses of its Nodes.
type decision struct {
	routes.Decision
	statuses map[string]routes.NodeStatus
	uids     map[string]types.UID
	// lookAgain means that a status requires a newer list of the table.
	lookAgain bool
}

// decide decides on the table as last listed, and by what the attempt allows; nil allows all.
// Destinations that failed recently are skipped. fresh requests a new list of servers.
func (c *Controller) decide(ctx context.Context, a *attempt, fresh bool) (decision, error) {
	nodes, err := c.nodes()
	if err != nil {
		return decision{}, err
	}
	gateways, err := c.Gateways.Gateways(ctx, nodes, fresh)
	if err != nil {
		return decision{}, fmt.Errorf("finding the Nodes' servers: %w", err)
	}
	now := time.Now()
	o := routes.Observed{
		Table: c.table, Ranges: c.Ranges, VSwitch: c.VSwitch, Gateways: gateways,
		Departed: map[string][]netip.Prefix{}, Record: c.record.routes, Tunnels: c.Tunnels,
		Budget: c.budget(a == nil || a.mayDelete(), now),
	}
	departed, _ := c.Departed()
	for _, d := range departed {
		o.Departed[d.ProviderID] = append(o.Departed[d.ProviderID], d.Prefixes...)
	}
	if a != nil {
		o.Kept, o.Stood = a.podCIDRs, a.stood
	}
	d := decision{uids: make(map[string]types.UID, len(nodes))}
	for _, node := range nodes {
		n := RouteNode(node, c.Tunnels)
		n.Unseen = c.unseen(n.Dsts, c.firstSeen[node.UID])
		o.Nodes = append(o.Nodes, n)
		d.uids[node.Name] = node.UID
	}
	all := routes.Decide(o)
	c.retries.keep(all.Changes)
	d.Decision = all.Without(c.retries.resting(now))
	if c.retries.probing() {
		if untried := all.Without(c.retries.untrusted(now)); len(untried.Plan.Steps) > 0 {
			d.Decision = untried
		}
	}
	d.statuses = d.NodeStatuses()
	for _, n := range d.Nodes {
		d.lookAgain = d.lookAgain || d.statuses[n.Name].LookAgain
		routed := d.statuses[n.Name].Reachable && d.statuses[n.Name].Reason == routes.RouteCreated
		if at := c.settles(n.Dsts); routed && !at.IsZero() {
			d.statuses[n.Name] = routes.NodeStatus{
				Reason: routes.NoRouteCreated, Unproved: true,
				Message: "a deletion of the route got no response and may still take effect",
			}
			c.passes.AddAfter(resync, at.Sub(now))
		}
	}
	return d, nil
}

// budget limits deletions per period, so that a mistake takes time to cause harm.
func (c *Controller) budget(mayDelete bool, now time.Time) routes.Budget {
	if now.Sub(c.deletedSince) >= c.Period {
		c.deletedSince, c.deleted = now, 0
	}
	b := routes.Budget{
		Limit: c.learned.limit(c.Limit, c.Reserve, len(c.table), now), Reserve: c.Reserve,
		Deleted: c.deleted,
	}
	if mayDelete {
		b.MaxDeletions = c.MaxDeletions
	}
	return b
}

// RouteNode converts a Node for package routes, without the results of Gateways. Only IPv4
// podCIDRs are routed through the network's table; networks don't support IPv6.
func RouteNode(node *corev1.Node, tunnels routes.Tunnels) routes.Node {
	// Only very old API servers accepted podCIDRs that can't be parsed. The rest is routed.
	prefixes, _ := kube.PodCIDRs(node)
	n := routes.Node{
		Name:         node.Name,
		Allocated:    len(prefixes) > 0,
		ControlPlane: kube.ControlPlane(node),
		Ready:        kube.Ready(node),
		Created:      node.CreationTimestamp.Time,
		InternalIPs:  kube.InternalIPs(node),
	}
	for _, p := range prefixes {
		if p.Addr().Is4() {
			n.Dsts = append(n.Dsts, p)
		}
	}
	if w := kube.WireGuardOf(node); tunnels.Enabled {
		n.Reach, n.Connected = kube.ReachOf(node), w != nil && w.Connected
		n.Encrypted = tunnels.Required
	}
	return n
}
