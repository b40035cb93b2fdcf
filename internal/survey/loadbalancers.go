package survey

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

// LoadBalancersView lists the Services that the CCM serves, with their load balancers.
type LoadBalancersView struct {
	Services []BalancerRow `json:"services"`
	// Orphans are load balancers of this cluster without a Service.
	Orphans []BalancerRow `json:"orphans,omitempty"`
	Notes   []string      `json:"notes,omitempty"`
	NotSeen []string      `json:"notSeen,omitempty"`
}

// BalancerRow is a Service and its load balancer.
type BalancerRow struct {
	// Service is namespace/name; empty for an orphan.
	Service string `json:"service,omitempty"`
	ID      int64  `json:"id,omitempty"`
	// Shared is the group that shares the load balancer, SharedBy its Services, oldest first.
	// Listeners has only the Service's own.
	Shared    string       `json:"shared,omitempty"`
	SharedBy  []string     `json:"sharedBy,omitempty"`
	Name      string       `json:"name,omitempty"`
	Type      string       `json:"type,omitempty"`
	Location  string       `json:"location,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Published []string     `json:"published,omitempty"`
	// Accepted is the Service's condition underlay.dev/Accepted.
	Accepted  *ConditionRow `json:"accepted,omitempty"`
	Listeners []ListenerRow `json:"listeners,omitempty"`
	// OtherTargets counts targets that the CCM didn't add and can't evaluate.
	OtherTargets int `json:"otherTargets,omitempty"`
	// Plan lists the pending operations; empty if the load balancer is up to date.
	Plan  []string `json:"plan,omitempty"`
	Notes []string `json:"notes,omitempty"`
}

// ListenerRow is one port of a load balancer.
type ListenerRow struct {
	Port            int         `json:"port"`
	DestinationPort int         `json:"destinationPort"`
	Protocol        string      `json:"protocol"`
	Check           string      `json:"check"`
	Targets         []TargetRow `json:"targets"`
}

// TargetRow is a target: a server of the cloud, or the address of a dedicated server or a pod.
type TargetRow struct {
	// Node is empty if the target is no Node of this cluster.
	Node   string     `json:"node,omitempty"`
	Server int64      `json:"server,omitempty"`
	IP     netip.Addr `json:"ip,omitzero"`
	// Private: the load balancer uses the target's address in the network.
	Private bool   `json:"private"`
	Health  string `json:"health"`
	// Cause is the cloud's reason for unhealthy, if it returns one.
	Cause string `json:"cause,omitempty"`
}

// LoadBalancersParts are the parts of LoadBalancersOf, which can omit the cloud's parts.
const LoadBalancersParts = PartConfig | PartNodes | PartServices | PartEndpointSlices | PartNetwork | PartServers | PartLoadBalancers

// LoadBalancersOf combines Services and load balancers.
func LoadBalancersOf(s *Snapshot) (LoadBalancersView, error) {
	v := LoadBalancersView{Services: []BalancerRow{}, NotSeen: s.NotSeen()}
	if err := s.Require(PartConfig | PartServices); err != nil {
		return v, err
	}
	switch {
	case s.Config.Provider == config.Metal:
		v.Notes, v.NotSeen = []string{"the provider is metal: there are no load balancers of a cloud"}, nil
		return v, nil
	case !s.Config.LoadBalancers.Enabled:
		v.Notes, v.NotSeen = []string{"load balancers are switched off: loadBalancers.enabled is false"}, nil
		return v, nil
	case !s.Saw(LoadBalancersParts):
		v.Services = append(v.Services, s.published()...)
		return v, nil
	}
	if _, err := s.Absences(); err != nil {
		v.NotSeen = append(v.NotSeen, serversUnknown+err.Error())
	}
	nodes := s.nodesOfTargets()
	for _, b := range s.Balancings() {
		row := b.row(nodes)
		row.Notes = append(row.Notes, s.heldElsewhere(b.Service)...)
		v.Services = append(v.Services, row)
	}
	for _, b := range s.Orphans() {
		row := BalancerRow{Notes: []string{"no Service has it: delete it in the cloud if nothing else uses it, or remove its underlay.dev labels to keep it"}}
		row.show(b, nodes)
		v.Orphans = append(v.Orphans, row)
	}
	return v, nil
}

// nodesOfTargets returns a lookup of a target's Node, or of the Node that runs a target pod.
func (s *Snapshot) nodesOfTargets() func(lb.Target) string {
	servers, addresses := map[int64]string{}, map[netip.Addr]string{}
	for _, n := range s.Nodes {
		if id, ok := serverID(n); ok {
			servers[id] = n.Name
		}
		if _, err := kube.ParseDedicatedID(n.Spec.ProviderID); err == nil {
			for _, a := range slices.Concat(kube.InternalIPs(n), kube.ExternalIPs(n)) {
				addresses[a] = n.Name
			}
		}
	}
	return func(t lb.Target) string {
		if t.Address.IsValid() && !t.Pod() {
			return addresses[t.Address]
		}
		return servers[t.Server]
	}
}

func (s *Snapshot) published() []BalancerRow {
	var out []BalancerRow
	for _, svc := range s.Services {
		if lbcontroller.Ours(svc, s.Config.LoadBalancers.Classless) {
			out = append(out, serviceRow(svc))
		}
	}
	return out
}

func serviceRow(svc *corev1.Service) BalancerRow {
	row := BalancerRow{Service: NameOf(svc).String()}
	for _, in := range svc.Status.LoadBalancer.Ingress {
		row.Published = append(row.Published, in.IP+in.Hostname)
	}
	slices.Sort(row.Published)
	row.Published = slices.Compact(row.Published)
	if c := meta.FindStatusCondition(svc.Status.Conditions, lbcontroller.ConditionAccepted); c != nil {
		row.Accepted = &ConditionRow{Status: string(c.Status), Reason: c.Reason, Message: c.Message, Since: c.LastTransitionTime.Time}
	}
	return row
}

func (b Balancing) row(nodes func(lb.Target) string) BalancerRow {
	row := serviceRow(b.Service)
	if b.LoadBalancer != nil {
		row.show(b.LoadBalancer, nodes)
	}
	row.Shared = b.Shared
	for _, sharer := range b.Sharers {
		row.SharedBy = append(row.SharedBy, sharer.String())
	}
	if b.Conflict != nil {
		row.Notes = append(row.Notes, b.Conflict.Error())
	}
	for _, op := range b.Ops {
		row.Plan = append(row.Plan, op.String())
	}
	for _, note := range b.Notes {
		row.Notes = append(row.Notes, note.String())
	}
	return row
}

func (r *BalancerRow) show(b *lb.State, nodes func(lb.Target) string) {
	r.ID, r.Name, r.Type, r.Location, r.OtherTargets = b.ID, b.Name, b.Type, b.Location, b.OtherTargets
	for _, a := range []netip.Addr{b.IPv4, b.IPv6, b.PrivateIP} {
		if a.IsValid() && (a == b.PrivateIP || b.Public) {
			r.Addresses = append(r.Addresses, a)
		}
	}
	for _, l := range b.Listeners {
		row := ListenerRow{Port: l.Port, DestinationPort: l.DestinationPort, Protocol: l.Protocol, Check: checkText(l.Check), Targets: []TargetRow{}}
		for _, t := range b.Targets {
			row.Targets = append(row.Targets, TargetRow{
				Node: nodes(t), Server: t.Server, IP: t.Address, Private: t.Private, Health: b.Verdicts[l.Port][t].String(), Cause: b.Why[l.Port][t].String(),
			})
		}
		slices.SortStableFunc(row.Targets, compareTargets)
		r.Listeners = append(r.Listeners, row)
	}
}

// compareTargets sorts Nodes by name, then other servers by ID, then other addresses.
func compareTargets(a, b TargetRow) int {
	if (a.Node == "") != (b.Node == "") {
		return cmp.Compare(b.Node, a.Node)
	}
	return cmp.Or(cmp.Compare(a.Node, b.Node), a.IP.Compare(b.IP), cmp.Compare(a.Server, b.Server))
}

func checkText(c lb.HealthCheck) string {
	text := c.Protocol
	if c.TLS {
		text = lb.ProtocolHTTPS
	}
	return fmt.Sprintf("%s :%d%s", text, c.Port, c.Path)
}

// State returns the health with its cause.
func (t TargetRow) State() string {
	if t.Cause == "" {
		return t.Health
	}
	return t.Health + ": " + t.Cause
}

// Title returns the Node's name, a pod's address with its Node, or the server's address or ID.
func (t TargetRow) Title() string {
	switch {
	case t.Node != "" && t.Server != 0 && t.IP.IsValid():
		return "pod " + t.IP.String() + " on " + t.Node
	case t.Node != "":
		return t.Node
	case t.IP.IsValid():
		return "IP " + t.IP.String()
	}
	return "server " + strconv.FormatInt(t.Server, 10)
}

// heldElsewhere returns notes on load balancers of other groups that still serve the Service.
func (s *Snapshot) heldElsewhere(svc *corev1.Service) []string {
	var notes []string
	owner := lbcontroller.Owner(svc, s.Config.ClusterName)
	current := lbcontroller.KeyOf(svc, s.LBDefaults()).Group
	for _, b := range s.LoadBalancers {
		held := b.Only(string(svc.UID)).Listeners
		if b.Group() == "" || b.Group() == current || !owner.Carries(b.Labels) || len(held) == 0 {
			continue
		}
		ports := make([]string, len(held))
		for i, l := range held {
			ports[i] = strconv.Itoa(l.Port)
		}
		notes = append(notes, fmt.Sprintf("load balancer %s (%d), shared as %s, serves its ports %s until it is served otherwise", b.Name, b.ID, b.Group(), strings.Join(ports, ", ")))
	}
	return notes
}
