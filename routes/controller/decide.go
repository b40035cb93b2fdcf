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
	usage    routes.Usage
	// detached: some node with podCIDRs to route has no gateway.
	detached bool
	attached int // servers in the network
	limit    int
	// doubt forbids deletions and replacements, see routes.Gateways.
	doubt error
}

// question is what a decision may rest on.
type question struct {
	// fresh asks for a new list of servers.
	fresh bool
	// mayDelete: without it there is no room but what is free.
	mayDelete bool
	// claimed are the podCIDRs of all Nodes as the API server had them when it
	// was asked: no route to them is deleted, whatever the cache says.
	claimed []netip.Prefix
}

// decide makes up its mind about the table as it was last seen.
func (c *Controller) decide(ctx context.Context, q question) (decision, error) {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return decision{}, fmt.Errorf("listing Nodes: %w", err)
	}
	gateways, err := c.Gateways.Gateways(ctx, nodes, q.fresh)
	if err != nil {
		return decision{}, fmt.Errorf("finding the Nodes' servers: %w", err)
	}
	now := time.Now()
	d := decision{
		uids: make(map[string]types.UID, len(nodes)), attached: gateways.Attached,
		limit: c.latch.limit(c.Limit, c.Reserve, len(c.table), now),
	}
	for _, node := range nodes {
		n := plannable(node, gateways)
		n.Unseen = c.unseen(n.Dsts, c.meet(node, now))
		d.nodes = append(d.nodes, n)
		d.uids[node.Name] = node.UID
		d.detached = d.detached || len(n.Dsts) > 0 && !n.Via.IsValid()
	}
	d.wanted = routes.Desired(d.nodes, c.Ranges).Hold(q.claimed)
	departed, _ := c.departed()
	d.census = routes.Owned(c.table, c.Ranges, Evidence(d.nodes, departed, gateways, c.record.routes))
	plan := routes.Diff(d.wanted, d.census)
	if d.doubt = gateways.Doubt; d.doubt != nil {
		plan = plan.Additions()
	}
	c.retries.keep(plan)
	budget := routes.Budget{Limit: d.limit, Reserve: c.Reserve}
	if q.mayDelete {
		budget.Deletions = c.brake.left(now, len(d.census.Ours))
	}
	d.plan = budget.Trim(plan.Without(c.retries.resting(now)), d.census)
	if untried := budget.Trim(plan.Without(c.retries.untrusted(now)), d.census); c.retries.probing() && !untried.Empty() {
		d.plan = untried
	}
	d.usage = budget.Usage(budget.Trim(plan, d.census), d.census)
	d.verdicts = routes.Judge(d.nodes, c.table, d.wanted, d.plan)
	return d, nil
}

func (c *Controller) departed() (departed []Departed, known bool) {
	if c.Departed == nil {
		return nil, true
	}
	return c.Departed()
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
		Aliases:      g.Aliases[node.Name],
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

// lookAgain reports whether only a newer list of the table can tell something.
func (d decision) lookAgain() bool {
	for _, v := range d.verdicts {
		if v.LookAgain {
			return true
		}
	}
	return false
}

// full reports whether nodes wait for room in the table.
func (d decision) full() bool {
	return slices.ContainsFunc(d.plan.Refused, func(r routes.Refusal) bool { return r.Cause == routes.Full })
}

// meetAll notes which Nodes there are before the table is looked at.
func (c *Controller) meetAll() error {
	nodes, err := c.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	for _, node := range nodes {
		c.meet(node, time.Now())
	}
	return nil
}

// meet returns when a Node was first seen. A list that was asked for later is
// younger than the Node, whatever the clock of the API server says.
func (c *Controller) meet(node *corev1.Node, now time.Time) time.Time {
	since, known := c.met[node.UID]
	if !known {
		since, c.met[node.UID] = now, now
	}
	return since
}

// keepMet forgets Nodes that are not among uids.
func (c *Controller) keepMet(uids map[string]types.UID) {
	alive := make(map[types.UID]bool, len(uids))
	for _, uid := range uids {
		alive[uid] = true
	}
	maps.DeleteFunc(c.met, func(uid types.UID, _ time.Time) bool { return !alive[uid] })
}

// unseen reports whether neither a list nor a write of ours since then tells of
// every destination.
func (c *Controller) unseen(dsts []netip.Prefix, since time.Time) bool {
	return c.asked.Before(since) && slices.ContainsFunc(dsts, func(dst netip.Prefix) bool {
		return c.written[dst].Before(since)
	})
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
