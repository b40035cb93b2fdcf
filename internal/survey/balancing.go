package survey

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/wiring"
	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

// Balancing is a Service with what the load balancer controller would make of
// it.
type Balancing struct {
	Service *corev1.Service
	// LoadBalancer is the Service's own, or the one that it would take over; nil:
	// none is seen.
	LoadBalancer *lb.State
	// Spec is what the load balancer is to be; Ops are left to do for that, Notes are for people.
	Spec  lb.Spec
	Ops   []lb.Op
	Notes []lb.Note
	// Conflict is why no load balancer can be the Service's, nil if one can.
	Conflict error
	// Shared is the group in which the Service shares its load balancer, of which LoadBalancer has
	// only the Service's listeners; Sharers are all that share it, oldest first.
	Shared  string
	Sharers []types.NamespacedName
}

// LBDefaults are the configured ones.
func (s *Snapshot) LBDefaults() lb.Defaults {
	if s.Network == nil {
		return wiring.Defaults(s.Config, 0, nil)
	}
	return wiring.Defaults(s.Config, s.Network.ID, s.Network.DedicatedRanges)
}

// Balancings are the Services that the CCM serves, by namespace and name. It
// needs PartConfig, PartNodes, PartServices, PartEndpointSlices and
// PartLoadBalancers, and PartNetwork where one is configured; with PartServers it
// knows Nodes that can't be targets, because their servers don't exist.
func (s *Snapshot) Balancings() []Balancing {
	if !s.Config.LoadBalancers.Enabled {
		return nil
	}
	var out []Balancing
	endpoints, defaults, surveyed := s.EndpointsByService(), s.LBDefaults(), map[lb.Owner]lbcontroller.Surveyed{}
	survey := lbcontroller.Survey{
		Services: s.Services, Nodes: s.servedNodes(), States: s.LoadBalancers, Certificates: s.Certificates, Defaults: defaults, Now: s.Taken,
		Slices: func(svc *corev1.Service) []*discoveryv1.EndpointSlice { return endpoints[NameOf(svc)] },
	}
	for _, svc := range s.Services {
		if !lbcontroller.Ours(svc, s.Config.LoadBalancers.Classless) || !svc.DeletionTimestamp.IsZero() {
			continue
		}
		owner := lbcontroller.KeyOf(svc, defaults)
		found, ok := surveyed[owner]
		if !ok {
			found = survey.Balancer(owner)
			surveyed[owner] = found
		}
		b := Balancing{Service: svc, Spec: found.Plan.Spec, Conflict: found.Conflict, Shared: owner.Group}
		b.Ops, b.Notes = found.For(svc)
		if owner.Group != "" {
			for _, sharer := range found.Services {
				b.Sharers = append(b.Sharers, NameOf(sharer))
			}
		}
		if found.Have.Exists() && found.Conflict == nil {
			have := found.Have
			if owner.Group != "" {
				have = have.Only(string(svc.UID))
			}
			b.LoadBalancer = &have
		}
		out = append(out, b)
	}
	return out
}

// NotesOf are what the load balancer controller says of a Service whatever its load balancer is like,
// and whatever certificates there are.
func (s *Snapshot) NotesOf(svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice) []lb.Note {
	survey := lbcontroller.Survey{
		Services: []*corev1.Service{svc}, Nodes: s.Nodes, Defaults: s.LBDefaults(), Now: s.Taken,
		Slices: func(*corev1.Service) []*discoveryv1.EndpointSlice { return endpoints },
	}
	found := survey.Balancer(lbcontroller.KeyOf(svc, survey.Defaults))
	found.Plan = lb.Plan{Notes: slices.DeleteFunc(found.Plan.Notes, func(n lb.Note) bool { return n.Reason != lb.ReasonNoNodes })}
	_, notes := found.For(svc)
	return notes
}

// EndpointsByService are the EndpointSlices of each Service.
func (s *Snapshot) EndpointsByService() map[types.NamespacedName][]*discoveryv1.EndpointSlice {
	out := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, slice := range s.EndpointSlices {
		name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		out[name] = append(out[name], slice)
	}
	return out
}

func (s *Snapshot) ownedBy(owner lb.Owner) []*lb.State {
	var out []*lb.State
	for i := range s.LoadBalancers {
		if owner.Owns(s.LoadBalancers[i].Labels) {
			out = append(out, &s.LoadBalancers[i])
		}
	}
	return out
}

// balancerOf is the load balancer that carries the Service's labels, or those of its group.
func (s *Snapshot) balancerOf(name types.NamespacedName) *lb.State {
	svc := s.Service(name)
	if svc == nil {
		return nil
	}
	owned := s.ownedBy(lbcontroller.KeyOf(svc, s.LBDefaults()))
	if len(owned) == 0 {
		return nil
	}
	return owned[0]
}

// Orphans are load balancers that carry this cluster's labels and those of no
// Service that exists, by ID.
func (s *Snapshot) Orphans() []*lb.State {
	alive := map[string]bool{}
	for _, svc := range s.Services {
		alive[string(svc.UID)] = true
	}
	var out []*lb.State
	for i := range s.LoadBalancers {
		b := &s.LoadBalancers[i]
		if b.Labels[lb.LabelCluster] == s.Config.ClusterName && !slices.ContainsFunc(b.Services(), func(uid string) bool { return alive[uid] }) {
			out = append(out, b)
		}
	}
	return out
}
