package survey

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

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
	i, found := slices.BinarySearchFunc(s.Nodes, name, func(n *corev1.Node, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !found {
		return nil
	}
	return s.Nodes[i]
}

// Service returns the Service of that name, nil if there is none.
func (s *Snapshot) Service(name types.NamespacedName) *corev1.Service {
	i := slices.IndexFunc(s.Services, func(svc *corev1.Service) bool { return NameOf(svc) == name })
	if i < 0 {
		return nil
	}
	return s.Services[i]
}

// EventTime returns the time of the Event's last occurrence.
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

// seenServers implements cloud.Servers with the servers of a Snapshot.
type seenServers []cloud.Machine

var _ cloud.Servers = seenServers{}

func (s seenServers) List(context.Context, time.Time) ([]cloud.Machine, error) {
	return s, nil
}

func (s seenServers) Look(ctx context.Context, _ []cloud.Question) ([]cloud.Machine, error) {
	return s.List(ctx, time.Time{})
}

func (s seenServers) Get(_ context.Context, id int64) (cloud.Machine, error) {
	for i := range s {
		if s[i].ID == id {
			return s[i], nil
		}
	}
	return cloud.Machine{}, fmt.Errorf("server %d: %w", id, cloud.ErrNoServer)
}

// Gateways matches Nodes and servers as the CCM does. It requires PartNodes and PartServers, and
// returns an error if no Node's server is found.
func (s *Snapshot) Gateways() (routes.Gateways, error) {
	g, err := (&cloud.Machines{Cloud: seenServers(s.Servers)}).Gateways(context.Background(), s.Nodes,
		false)
	if err == nil {
		err = g.Doubt
	}
	return g, err
}

// ServerOf returns the server of the Node's provider ID, nil if there is none.
func (s *Snapshot) ServerOf(node *corev1.Node) *cloud.Machine {
	i := slices.IndexFunc(s.Servers, func(server cloud.Machine) bool {
		return server.ProviderID() == node.Spec.ProviderID
	})
	if i < 0 {
		return nil
	}
	return &s.Servers[i]
}

// OfOtherProvider reports whether the Node's machine belongs to another provider.
func OfOtherProvider(n *corev1.Node) bool {
	_, err := kube.ParseProviderID(n.Spec.ProviderID)
	return n.Spec.ProviderID != "" && errors.Is(err, kube.ErrOtherProvider)
}

// Pools returns the configured pools in the types of package ipam.
func (s *Snapshot) Pools() []ipam.PoolConfig { return wiring.Pools(s.Config) }

// Ranges returns the pools whose prefixes are routed through the network.
func (s *Snapshot) Ranges() []routes.Range { return wiring.Ranges(s.Config) }

// VSwitch returns the range of the podCIDRs inside the vSwitch's subnet, which need no route.
func (s *Snapshot) VSwitch() routes.VSwitch { return wiring.VSwitch(s.Config) }

// ServiceRanges returns the Service ranges of the flag and of the API server without duplicates.
func (s *Snapshot) ServiceRanges() []netip.Prefix {
	all := slices.Concat(s.Config.IPAM.ServiceRanges, s.ServiceCIDRs)
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Exclusions returns the prefixes that no podCIDR may overlap: configured exclusions, Service
// ranges, the network's own addresses, and Nodes' addresses inside pools.
func (s *Snapshot) Exclusions() []netip.Prefix {
	out := slices.Concat(s.Config.IPAM.Exclude, s.ServiceRanges())
	if s.Network != nil {
		out = append(out, s.Network.Reserved(s.Config.VSwitch.Subnet)...)
	}
	for _, node := range s.Nodes {
		for _, a := range kube.Addresses(node) {
			if slices.ContainsFunc(s.Config.IPAM.Pools, func(p config.Pool) bool {
				return p.Prefix.IsValid() && p.Prefix.Contains(a)
			}) {
				out = append(out, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return slices.Compact(out)
}

// A LedgerFault is a damaged part of the stored ledger.
type LedgerFault struct {
	ConfigMap string // name in kube-system
	// Key is the unreadable entry. If it is empty, all entries of the ConfigMap are lost.
	Key     string
	Problem string
}

func (f LedgerFault) String() string {
	where := fmt.Sprintf("the ConfigMap %s/%s", system, f.ConfigMap)
	if f.Key != "" {
		where = fmt.Sprintf("key %q of %s", f.Key, where)
	}
	return where + ": " + f.Problem
}

// Holdings returns the podCIDRs of each Node in the stored ledger, by the Node's name and in the
// order of the lines, without unreadable entries.
func (s *Snapshot) Holdings() (holdings []ipam.Holding, faults []LedgerFault) {
	if !s.HasLedger() {
		return nil, nil
	}
	holdings, damaged := ipam.ParseStored(s.Ledger.Entries())
	for _, d := range damaged {
		faults = append(faults, LedgerFault{ipamcontroller.ObjectName(d.Object), d.Key, d.Err.Error()})
	}
	for _, object := range s.Ledger.Entries().Lost() {
		why := "it has no entries"
		if s.Ledger[object] == nil {
			why = "it doesn't exist"
		}
		faults = append(faults, LedgerFault{ConfigMap: ipamcontroller.ObjectName(object), Problem: why})
	}
	return holdings, faults
}

// HasLedger reports whether a ledger is stored. There is none before the first start.
func (s *Snapshot) HasLedger() bool {
	_, inUse := s.Ledger.Made()
	return inUse
}

// Book is node IPAM's state, rebuilt from a Snapshot.
type Book struct {
	*ipam.Ledger
	// Warnings are about the podCIDRs of Nodes, oldest Node first.
	Warnings []ipam.Warning
	Damage   []LedgerFault
}

// Book rebuilds the state as the CCM does at startup. It fails if the pools contradict each
// other.
func (s *Snapshot) Book() (Book, error) {
	stored, damage := s.Holdings()
	facts := ipam.Facts{
		Pools: s.Pools(), Exclusions: s.Config.IPAM.Exclude, Occupied: s.Exclusions(), Stored: stored,
		Now: s.Taken,
	}
	for _, n := range s.Nodes {
		facts.Nodes = append(facts.Nodes, ipamcontroller.LiveNode(n))
	}
	rebuilt, err := ipam.Rebuild(facts)
	if err != nil {
		return Book{}, err
	}
	b := Book{Ledger: rebuilt.Ledger, Warnings: rebuilt.Restored, Damage: damage}
	for _, o := range rebuilt.Observed {
		b.Warnings = append(b.Warnings, o.Warnings...)
	}
	return b, nil
}

// Routing returns the route controller's decision, without a cap on deletions. It requires
// PartConfig, PartNodes, PartNetwork with a network, and PartServers. With PartLedger it
// includes deleted Nodes, with PartRouteRecord the routes that the CCM wrote or adopted.
func (s *Snapshot) Routing() (routes.Decision, error) {
	if s.Network == nil {
		return routes.Decision{}, errors.New("no network is configured, so there is no route table")
	}
	gateways, err := s.Gateways()
	if err != nil {
		return routes.Decision{}, err
	}
	o := routes.Observed{
		Table: s.Network.Routes, Ranges: s.Ranges(), VSwitch: s.VSwitch(), Gateways: gateways,
		Departed: map[string][]netip.Prefix{}, Record: s.record(),
		Budget: routes.Budget{
			Limit: s.Config.Routes.Limit, Reserve: s.Config.Routes.Reserve, MaxDeletions: 100,
		},
		Tunnels: wiring.Tunnels(s.Config),
	}
	for _, d := range s.departed() {
		o.Departed[d.ProviderID] = append(o.Departed[d.ProviderID], d.Prefixes...)
	}
	for _, n := range s.Nodes {
		o.Nodes = append(o.Nodes, routecontroller.RouteNode(n, o.Tunnels))
	}
	return routes.Decide(o), nil
}

func (s *Snapshot) departed() []kube.Departed {
	holdings, _ := s.Holdings()
	return ipamcontroller.Departed(holdings)
}

// record returns the CCM's record of its routes, without unreadable entries.
func (s *Snapshot) record() routes.Record {
	if s.RouteRecord == nil {
		return nil
	}
	record, _ := routes.ParseRecord(s.RouteRecord.Data)
	return record
}

// Tunnels reports whether agents connect Nodes that get no route.
func (s *Snapshot) Tunnels() bool {
	return s.Saw(PartConfig) && s.Config.WireGuard.Enabled()
}

// RoutesOn reports whether the CCM writes routes into the network.
func (s *Snapshot) RoutesOn() bool { return s.Saw(PartConfig) && s.Config.Routes.Enabled }
