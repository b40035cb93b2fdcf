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
	"k8s.io/client-go/util/workqueue"

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

// decide makes up its mind about the table as it was last seen.
func (c *Controller) decide(ctx context.Context, fresh bool, deletions int) (decision, error) {
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
		n, err := plannable(node, gateways)
		if err != nil {
			return decision{}, err
		}
		d.nodes = append(d.nodes, n)
		d.uids[node.Name] = node.UID
		d.detached = d.detached || len(n.Dsts) > 0 && !n.Via.IsValid()
	}
	d.wanted = routes.Desired(d.nodes, c.Ranges)
	d.census = routes.Owned(c.table, c.Ranges, c.whose(gateways))
	budget := routes.Budget{Limit: d.limit, Reserve: c.Reserve, Deletions: deletions}
	d.plan = budget.Trim(routes.Diff(d.wanted, d.census), d.census)
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
func plannable(node *corev1.Node, g routes.Gateways) (routes.Node, error) {
	prefixes, err := kube.PodCIDRs(node)
	if err != nil {
		return routes.Node{}, err
	}
	n := routes.Node{
		Name:         node.Name,
		Allocated:    len(prefixes) > 0,
		Via:          g.Of[node.Name],
		ControlPlane: kube.ControlPlane(node),
		Ready:        kube.Ready(node),
		Created:      node.CreationTimestamp.Time,
	}
	if !n.Via.IsValid() {
		n.Detached = g.Missing[node.Name]
	}
	for _, p := range prefixes {
		if p.Addr().Is4() {
			n.Dsts = append(n.Dsts, p)
		}
	}
	return n, nil
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

// lookout paces looking for servers that aren't attached yet: often at first,
// then seldom, and often again when other nodes wait.
type lookout struct {
	backoff workqueue.TypedRateLimiter[string]
	waiting string
	next    time.Time
}

func newLookout() *lookout {
	return &lookout{backoff: workqueue.NewTypedItemExponentialFailureRateLimiter[string](2*time.Second, 5*time.Minute)}
}

// due says whether to look now for the nodes that wait.
func (l *lookout) due(waiting string, now time.Time) bool {
	if waiting != l.waiting {
		l.backoff.Forget(l.waiting)
		l.waiting, l.next = waiting, now
	}
	if now.Before(l.next) {
		return false
	}
	l.next = now.Add(l.backoff.When(waiting))
	return true
}

// wait is the time until the next look.
func (l *lookout) wait(now time.Time) time.Duration { return max(0, l.next.Sub(now)) }
