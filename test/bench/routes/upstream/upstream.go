// Package upstream implements the cloudprovider.Routes of upstream's route controller for a
// network's route table, so that Underlay's can be compared with it. Upstream's interface has no
// place for a limit, for an order, or for a reason why a Node waits.
//
// It must never show upstream a route that this process neither wrote nor adopted, because upstream
// deletes all routes that no Node of its list wants, and never treat a gateway as orphaned by a
// list of servers that is older than the routes. It keeps no record beyond its process: routes of
// Nodes that left while none ran remain.
//
// Facts: upstream deletes a route that is listed as a black hole, and one whose Node is deleted
// (k8s.io/cloud-provider, controllers/route).
package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/routes"
)

// Gateways finds each Node's address in the network. fresh requires a result from after the call.
// The result is complete or an error.
type Gateways interface {
	Gateways(ctx context.Context, nodes []*corev1.Node, fresh bool) (routes.Gateways, error)
}

// Routes is a cloudprovider.Routes. Every field is required.
type Routes struct {
	Table    routes.Table
	Nodes    corelisters.NodeLister
	Gateways Gateways
	// Ranges are the pools whose node prefixes are routed through Table.
	Ranges []routes.Range

	mu     sync.Mutex
	record routes.Record // routes that this process wrote or adopted
}

var _ cloudprovider.Routes = (*Routes)(nil)

// errNoGateway: the Node's server is unknown, or isn't attached.
var errNoGateway = errors.New("no gateway")

// ListRoutes lists the routes that this process wrote or adopted: those to Nodes, and as black
// holes those whose gateway no longer belongs to a Node.
func (p *Routes) ListRoutes(ctx context.Context, _ string) ([]*cloudprovider.Route, error) {
	have, err := p.Table.List(ctx)
	if err != nil {
		return nil, err
	}
	g, err := p.gateways(ctx, have)
	if err != nil {
		return nil, err
	}
	names := make(map[string]types.NodeName, len(g.IDs))
	for name, id := range g.IDs {
		names[id] = types.NodeName(name)
	}
	if g.Doubt != nil {
		return nil, g.Doubt // upstream would delete the listed routes
	}
	owned, err := p.owned(have, g)
	if err != nil {
		return nil, err
	}
	unsure, err := p.unsure(g)
	if err != nil {
		return nil, err
	}
	listed := make([]*cloudprovider.Route, 0, len(owned.Ours))
	for _, r := range owned.Ours {
		node := names[g.Servers[r.Via]]
		if node == "" && slices.ContainsFunc(unsure, r.Dst.Overlaps) {
			continue // upstream deletes black holes, and this Node's server may come back
		}
		listed = append(listed, &cloudprovider.Route{
			Name: r.String(), TargetNode: node, DestinationCIDR: r.Dst.String(), Blackhole: node == "",
			TargetNodeAddresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: r.Via.String()},
			},
		})
	}
	return listed, nil
}

// owned classifies the table, and adopts the routes of Nodes' podCIDRs to their addresses.
func (p *Routes) owned(have []routes.Route, g routes.Gateways) (routes.Ownership, error) {
	nodes, err := p.Nodes.List(labels.Everything())
	if err != nil {
		return routes.Ownership{}, fmt.Errorf("listing Nodes: %w", err)
	}
	o := routes.Observed{Table: have, Ranges: p.Ranges, Gateways: g}
	for _, node := range nodes {
		// Invalid podCIDRs own no route either.
		prefixes, _ := kube.PodCIDRs(node)
		o.Nodes = append(o.Nodes, routes.Node{
			Dsts: prefixes, Via: g.Of[node.Name], Aliases: g.Aliases[node.Name],
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	o.Record = p.record
	owned := routes.Owned(o)
	p.wrote(owned.Adopted...)
	return owned, nil
}

// wrote records routes. The caller holds mu.
func (p *Routes) wrote(rs ...routes.Route) {
	if p.record == nil {
		p.record = routes.Record{}
	}
	for _, r := range rs {
		p.record[r] = true
	}
}

// unsure are the podCIDRs of Nodes whose gateway is currently unknown.
func (p *Routes) unsure(g routes.Gateways) ([]netip.Prefix, error) {
	nodes, err := p.Nodes.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing Nodes: %w", err)
	}
	var unsure []netip.Prefix
	for _, node := range nodes {
		if _, known := g.Of[node.Name]; !known {
			// Invalid podCIDRs own no route either.
			prefixes, _ := kube.PodCIDRs(node)
			unsure = append(unsure, prefixes...)
		}
	}
	return unsure, nil
}

// gateways requests a new list of servers if the current one can't explain every route: a server
// may be newer than the list.
func (p *Routes) gateways(ctx context.Context, have []routes.Route) (routes.Gateways, error) {
	nodes, err := p.Nodes.List(labels.Everything())
	if err != nil {
		return routes.Gateways{}, fmt.Errorf("listing Nodes: %w", err)
	}
	g, err := p.Gateways.Gateways(ctx, nodes, false)
	if err != nil {
		return routes.Gateways{}, fmt.Errorf("finding the Nodes' servers: %w", err)
	}
	for _, r := range have {
		if _, attached := g.Servers[r.Via]; !attached {
			return p.Gateways.Gateways(ctx, nodes, true)
		}
	}
	return g, nil
}

// CreateRoute adds a route to a Node's server. IPv6 podCIDRs have no entry in
// the network's table and need none there.
func (p *Routes) CreateRoute(ctx context.Context, _, _ string, route *cloudprovider.Route) error {
	dst, err := parse(route)
	if err != nil || !dst.Addr().Is4() {
		return err
	}
	node, err := p.Nodes.Get(string(route.TargetNode))
	if err != nil {
		return fmt.Errorf("route to %s: %w", dst, err)
	}
	g, err := p.Gateways.Gateways(ctx, []*corev1.Node{node}, false)
	if err != nil {
		return fmt.Errorf("finding the server of node %s: %w", node.Name, err)
	}
	via, ok := g.Of[node.Name]
	if !ok {
		return fmt.Errorf("route to %s: %w of node %s: %s", dst, errNoGateway, node.Name, g.Missing[node.Name].Reason)
	}
	added := routes.Route{Dst: dst, Via: via}
	p.mu.Lock()
	p.wrote(added)
	p.mu.Unlock()
	return p.Table.Add(ctx, added)
}

// DeleteRoute deletes a route that ListRoutes listed.
func (p *Routes) DeleteRoute(ctx context.Context, _ string, route *cloudprovider.Route) error {
	dst, err := parse(route)
	if err != nil {
		return err
	}
	for _, a := range route.TargetNodeAddresses {
		via, err := netip.ParseAddr(a.Address)
		if err != nil {
			return fmt.Errorf("route to %s: gateway %q: %w", dst, a.Address, err)
		}
		// Upstream has no notion of a deadline.
		if err := p.Table.Delete(ctx, routes.Route{Dst: dst, Via: via}, time.Time{}); err != nil {
			return err
		}
	}
	return nil
}

func parse(route *cloudprovider.Route) (netip.Prefix, error) {
	dst, err := netip.ParsePrefix(route.DestinationCIDR)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("route to %q of node %s: %w", route.DestinationCIDR, route.TargetNode, err)
	}
	return dst.Masked(), nil
}
