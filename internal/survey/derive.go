package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/underlay-ccm/underlay/internal/cloud"
	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/wiring"
	"github.com/underlay-ccm/underlay/ipam"
	ipamcontroller "github.com/underlay-ccm/underlay/ipam/controller"
	"github.com/underlay-ccm/underlay/routes"
	routecontroller "github.com/underlay-ccm/underlay/routes/controller"
)

// Node returns the Node of that name, nil if there is none.
func (s *Snapshot) Node(name string) *corev1.Node {
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(n *corev1.Node, name string) int { return strings.Compare(n.Name, name) })
	if !found {
		return nil
	}
	return s.Nodes[i]
}

// Service returns the Service of that name, nil if there is none.
func (s *Snapshot) Service(name Name) *corev1.Service {
	i := slices.IndexFunc(s.Services, func(svc *corev1.Service) bool { return NameOf(svc) == name })
	if i < 0 {
		return nil
	}
	return s.Services[i]
}

// EventTime is when an Event was seen last.
func EventTime(e *corev1.Event) time.Time {
	switch {
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.Time
	case !e.EventTime.IsZero():
		return e.EventTime.Time
	default:
		return e.CreationTimestamp.Time
	}
}

// seenServers answers for the servers of a Snapshot.
type seenServers []Server

var _ cloud.Servers = seenServers{}

func (s seenServers) List(context.Context, time.Time) ([]cloud.Server, error) {
	list := make([]cloud.Server, len(s))
	for i := range s {
		list[i] = s[i].Server
	}
	return list, nil
}

func (s seenServers) Look(ctx context.Context, _ []cloud.Question) ([]cloud.Server, error) {
	return s.List(ctx, time.Time{})
}

func (s seenServers) Get(_ context.Context, id int64) (cloud.Server, error) {
	for i := range s {
		if s[i].ID == id {
			return s[i].Server, nil
		}
	}
	return cloud.Server{}, fmt.Errorf("server %d: %w", id, cloud.ErrNoServer)
}

// Gateways matches Nodes and servers as the CCM does. It needs PartNodes and
// PartServers, and fails where no server of any Node is seen.
func (s *Snapshot) Gateways() (routes.Gateways, error) {
	g, err := cloud.Gateways{Servers: seenServers(s.Servers)}.Gateways(context.Background(), s.Nodes, false)
	if err == nil {
		err = g.Doubt
	}
	return g, err
}

// ServerOf is the Node's server, nil if none is seen.
func (s *Snapshot) ServerOf(node *corev1.Node) *Server {
	// One Node alone: whether others' servers are missing doesn't matter.
	g, err := cloud.Gateways{Servers: seenServers(s.Servers)}.Gateways(context.Background(), []*corev1.Node{node}, false)
	if err != nil {
		return nil
	}
	id, ok := g.IDs[node.Name]
	i := slices.IndexFunc(s.Servers, func(server Server) bool { return server.ProviderID() == id })
	if !ok || i < 0 {
		return nil
	}
	return &s.Servers[i]
}

// OfOtherProvider reports whether a Node's machine is known, and no server of this cloud.
func OfOtherProvider(n *corev1.Node) bool {
	_, err := cloud.ParseProviderID(n.Spec.ProviderID)
	return n.Spec.ProviderID != "" && errors.Is(err, cloud.ErrOtherProvider)
}

// Pools are the configured ones as package ipam takes them.
func (s *Snapshot) Pools() []ipam.PoolConfig { return wiring.Pools(s.Config) }

// Ranges are the pools whose prefixes are routed through the network.
func (s *Snapshot) Ranges() []routes.Range {
	var out []routes.Range
	for _, p := range s.Config.IPAM.Pools {
		if !p.Own && p.Prefix.Addr().Is4() {
			out = append(out, routes.Range{Prefix: p.Prefix, NodeBits: p.NodeMask})
		}
	}
	return out
}

// Layout is how the ranges lie in the network, for routes.Check.
func (s *Snapshot) Layout() routes.Layout {
	l := routes.Layout{Pods: s.Ranges(), Services: s.ServiceRanges()}
	if s.Network != nil {
		l.Network, l.Subnets = s.Network.IPRange, s.Network.Subnets
	}
	return l
}

// ServiceRanges are those of the flag and those of the API server, each once.
func (s *Snapshot) ServiceRanges() []netip.Prefix {
	all := slices.Concat(s.Config.IPAM.ServiceRanges, s.ServiceCIDRs)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Exclusions are what no podCIDR is taken from: what is configured, Service
// ranges, the network's own addresses, and Nodes' addresses that lie in pools.
func (s *Snapshot) Exclusions() []netip.Prefix {
	out := slices.Concat(s.Config.IPAM.Exclude, s.ServiceRanges())
	if s.Network != nil {
		gateway, server := s.Network.IPRange.Masked().Addr().Next(), netip.AddrFrom4([4]byte{172, 31, 1, 1})
		out = slices.Concat(out, s.Network.Subnets, []netip.Prefix{netip.PrefixFrom(gateway, gateway.BitLen()), netip.PrefixFrom(server, server.BitLen())})
	}
	for _, node := range s.Nodes {
		for _, a := range kube.Addresses(node) {
			if slices.ContainsFunc(s.Config.IPAM.Pools, func(p config.Pool) bool { return p.Prefix.IsValid() && p.Prefix.Contains(a) }) {
				out = append(out, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// Holdings reads the stored ledger: what each Node holds, by the Node's name and
// in the order of the lines. Keys that can't be read are the error, joined, and
// the rest is returned all the same. None without a ledger.
func (s *Snapshot) Holdings() ([]ipam.Holding, error) {
	if s.Ledger == nil {
		return nil, nil
	}
	var out []ipam.Holding
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(s.Ledger.Data)) {
		if strings.HasPrefix(name, "_") {
			continue // a pool's cursor: no Node's name begins so
		}
		found, err := ipam.ParseRecords(name, s.Ledger.Data[name])
		if err != nil {
			errs = append(errs, fmt.Errorf("key %q of the ConfigMap %s/%s: %w", name, system, ipamcontroller.LedgerName, err))
			continue
		}
		out = append(out, found...)
	}
	return out, errors.Join(errs...)
}

// Book is node IPAM's knowledge, rebuilt from what was seen.
type Book struct {
	*ipam.Ledger
	// Warnings are about what Nodes have, in the order of the Nodes' age.
	Warnings []ipam.Warning
	// Damage is what can't be read of the stored ledger, nil if all can.
	Damage error
}

// Book does what the CCM does at its start: the stored ledger first, then what
// Nodes have, the oldest first. It fails if the pools are impossible together.
func (s *Snapshot) Book() (Book, error) {
	ledger, err := ipam.NewLedger(s.Pools(), s.Config.IPAM.Exclude)
	if err != nil {
		return Book{}, err
	}
	ledger.SetExclusions(s.Exclusions())
	holdings, damage := s.Holdings()
	b := Book{Ledger: ledger, Damage: damage}
	// Of two that overlap the older Node keeps: somebody else set the other's.
	slices.SortStableFunc(holdings, func(x, y ipam.Holding) int { return s.born(x).Compare(s.born(y)) })
	for _, h := range holdings {
		b.Warnings = append(b.Warnings, ledger.Restore(h)...)
	}
	nodes := slices.Clone(s.Nodes)
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, n := range nodes {
		prefixes, _ := kube.PodCIDRs(n) // what can't be read is in nobody's way
		b.Warnings = append(b.Warnings, ledger.Observe(ipam.Node{Name: n.Name, UID: string(n.UID), ProviderID: n.Spec.ProviderID}, prefixes, s.Taken)...)
	}
	return b, nil
}

// born is when a holder was created; the time of the look if it is gone.
func (s *Snapshot) born(h ipam.Holding) time.Time {
	if n := s.Node(h.Node.Name); n != nil && string(n.UID) == h.Node.UID {
		return n.CreationTimestamp.Time
	}
	return s.Taken
}

// Routing is what the route controller would make of what was seen.
type Routing struct {
	Gateways routes.Gateways
	Nodes    []routes.Node
	Wanted   routes.Wanted
	Census   routes.Census
	// Plan is what differs, cut to what the table takes, without a cap on
	// deletions.
	Plan     routes.Plan
	Budget   routes.Budget
	Usage    routes.Usage
	Verdicts map[string]routes.Verdict // by the Node's name
	// Departed are Nodes that are gone and whose podCIDRs are in quarantine.
	Departed []routecontroller.Departed
}

// Routing decides on what was seen: PartConfig, PartNodes, PartNetwork with a
// network, and PartServers; with PartLedger it knows Nodes that are gone, too, and with PartRouteRecord
// which other routes the CCM wrote or adopted.
func (s *Snapshot) Routing() (Routing, error) {
	r := Routing{Budget: routes.Budget{Limit: s.Config.Routes.Limit, Reserve: s.Config.Routes.Reserve}}
	if s.Network == nil {
		return r, errors.New("no network is configured, so there is no route table")
	}
	var err error
	if r.Gateways, err = s.Gateways(); err != nil {
		return r, err
	}
	holdings, _ := s.Holdings()
	for _, h := range holdings {
		if !h.Released.IsZero() {
			r.Departed = append(r.Departed, routecontroller.Departed{
				Name: h.Node.Name, ProviderID: h.Node.ProviderID, Prefixes: slices.Concat(h.Prefixes, h.Abandoned),
			})
		}
	}
	for _, n := range s.Nodes {
		r.Nodes = append(r.Nodes, routecontroller.Plannable(n, r.Gateways))
	}
	ranges := s.Ranges()
	r.Wanted = routes.Desired(r.Nodes, ranges)
	r.Census = routes.Owned(s.Network.Routes, ranges, routecontroller.Evidence(r.Nodes, r.Departed, r.Gateways, s.record()))
	plan := routes.Diff(r.Wanted, r.Census)
	r.Budget.Deletions = len(plan.Delete)
	r.Plan = r.Budget.Trim(plan, r.Census)
	r.Usage = r.Budget.Usage(r.Plan, r.Census)
	r.Verdicts = routes.Judge(r.Nodes, s.Network.Routes, r.Wanted, r.Plan)
	return r, nil
}

// record is what the CCM recorded of its routes. What can't be read says nothing.
func (s *Snapshot) record() routes.Record {
	if s.RouteRecord == nil {
		return nil
	}
	record, _ := routes.ParseRecord(s.RouteRecord.Data)
	return record
}

// RoutesOn says whether the CCM writes routes into the network.
func (s *Snapshot) RoutesOn() bool { return s.Saw(PartConfig) && s.Config.Routes.Enabled }
