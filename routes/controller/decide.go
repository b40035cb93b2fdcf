package controller

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// decision is what routes.Decide made of Nodes, servers and routes.
type decision struct {
	routes.Decision
	statuses map[string]routes.NodeStatus
	uids     map[string]types.UID
	// waiting names the Nodes that wait for their servers to be attached.
	waiting []string
}

// basis is what a decision may rest on.
type basis struct {
	// fresh asks for a new list of servers.
	fresh bool
	// mayDelete: without it there is no room but what is free.
	mayDelete bool
	// podCIDRs are those of all Nodes as the API server had them when it was
	// asked: no route to them is deleted, whatever the cache says.
	podCIDRs []netip.Prefix
	// stood are the routes that may be deleted or replaced; nil: all that are ours.
	stood map[routes.Route]bool
}

// decide decides on the table as it was last seen. What failed of late is left
// alone for a while.
func (c *Controller) decide(ctx context.Context, b basis) (decision, error) {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return decision{}, fmt.Errorf("listing Nodes: %w", err)
	}
	gateways, err := c.Gateways.Gateways(ctx, nodes, b.fresh)
	if err != nil {
		return decision{}, fmt.Errorf("finding the Nodes' servers: %w", err)
	}
	now := time.Now()
	o := routes.Observed{
		Table: c.table, Ranges: c.Ranges, VSwitch: c.VSwitch, Gateways: gateways, Departed: c.departedPodCIDRs(),
		Record: c.record.routes, Kept: b.podCIDRs, Stood: b.stood, Budget: c.budget(b.mayDelete, now),
	}
	d := decision{uids: make(map[string]types.UID, len(nodes))}
	for _, node := range nodes {
		n := RouteNode(node)
		n.Unseen = c.unseen(n.Dsts, c.seen(node, now))
		o.Nodes = append(o.Nodes, n)
		d.uids[node.Name] = node.UID
	}
	all := routes.Decide(o)
	c.retries.keep(all.Changes)
	d.Decision = all.Without(c.retries.resting(now))
	if c.retries.probing() {
		if untried := all.Without(c.retries.untrusted(now)); !untried.Plan.Empty() {
			d.Decision = untried
		}
	}
	d.statuses = d.NodeStatuses()
	d.waiting = d.Waiting()
	return d, nil
}

// budget is what may be done to the table now.
func (c *Controller) budget(mayDelete bool, now time.Time) routes.Budget {
	b := routes.Budget{Limit: c.learned.limit(c.Limit, c.Reserve, len(c.table), now), Reserve: c.Reserve}
	if mayDelete {
		b.MaxDeletions, b.Deleted = c.MaxDeletions, c.deletions.count(now)
	}
	return b
}

// departed are the Nodes that left, if it is known which.
func (c *Controller) departed() (departed []kube.Departed, known bool) {
	if c.Departed == nil {
		return nil, true
	}
	return c.Departed()
}

// departedPodCIDRs are those of Nodes that left, by their servers' provider IDs.
func (c *Controller) departedPodCIDRs() map[string][]netip.Prefix {
	departed, _ := c.departed()
	found := make(map[string][]netip.Prefix, len(departed))
	for _, d := range departed {
		found[d.ProviderID] = append(found[d.ProviderID], d.Prefixes...)
	}
	return found
}

// RouteNode is the Node as package routes sees it, without what its gateways tell.
// Only IPv4 podCIDRs travel through the network's table; networks carry no IPv6.
func RouteNode(node *corev1.Node) routes.Node {
	// What can't be read was let in by an API server of long ago; the rest of
	// the Node's prefixes, and all other Nodes, are routed all the same.
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
	return n
}

// lookAgain reports whether only a newer list of the table can tell something.
func (d decision) lookAgain() bool {
	for _, v := range d.statuses {
		if v.LookAgain {
			return true
		}
	}
	return false
}

// removes reports whether a decision rests on where servers are: a deletion on whose a
// gateway is, a replacement on which one is right.
func (d decision) removes() bool { return len(d.Plan.Delete)+len(d.Plan.Replace) > 0 }
