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

// Balancing is a Service with the load balancer controller's plan for it.
type Balancing struct {
	Service *corev1.Service
	// LoadBalancer is the Service's load balancer, or one that it would adopt, or nil.
	LoadBalancer *lb.State
	// Spec is the desired load balancer, Ops are the pending operations.
	Spec  lb.Spec
	Ops   []lb.Op
	Notes []lb.Note
	// Conflict is the reason why the Service can't have a load balancer, or nil.
	Conflict error
	// Shared is the group in which the Service shares its load balancer. LoadBalancer then has
	// only the Service's listeners.
	Shared string
}

// LBDefaults returns the configured defaults of load balancers.
func (s *Snapshot) LBDefaults() lb.Defaults {
	if s.Network == nil {
		return wiring.Defaults(s.Config, 0, nil)
	}
	return wiring.Defaults(s.Config, s.Network.ID, s.Network.DedicatedRanges)
}

// Balancings returns the Services that the CCM serves, by namespace and name. It requires
// PartConfig, PartNodes, PartServices, PartEndpointSlices and PartLoadBalancers, and PartNetwork
// if a network is configured. With PartServers, it omits targets without a server.
func (s *Snapshot) Balancings() []Balancing {
	if !s.Config.LoadBalancers.Enabled {
		return nil
	}
	var out []Balancing
	endpoints, defaults := s.EndpointsByService(), s.LBDefaults()
	surveyed := map[lb.Owner]lbcontroller.Surveyed{}
	survey := lbcontroller.Survey{
		Services: s.Services, Nodes: s.servedNodes(), States: s.LoadBalancers,
		Certificates: s.Certificates, Defaults: defaults, Now: s.Taken,
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

// NotesOf returns the controller's notes that don't depend on load balancers and certificates.
func (s *Snapshot) NotesOf(svc *corev1.Service, endpoints []*discoveryv1.EndpointSlice) []lb.Note {
	survey := lbcontroller.Survey{
		Services: []*corev1.Service{svc}, Nodes: s.Nodes, Defaults: s.LBDefaults(), Now: s.Taken,
		Slices: func(*corev1.Service) []*discoveryv1.EndpointSlice { return endpoints },
	}
	found := survey.Balancer(lbcontroller.KeyOf(svc, survey.Defaults))
	found.Plan = lb.Plan{
		Notes: slices.DeleteFunc(found.Plan.Notes, func(n lb.Note) bool {
			return n.Reason != lb.ReasonNoNodes
		}),
	}
	_, notes := found.For(svc)
	return notes
}

// EndpointsByService groups the EndpointSlices by their Service.
func (s *Snapshot) EndpointsByService() map[types.NamespacedName][]*discoveryv1.EndpointSlice {
	out := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, slice := range s.EndpointSlices {
		name := types.NamespacedName{
			Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName],
		}
		out[name] = append(out[name], slice)
	}
	return out
}

func (s *Snapshot) balancerOf(name types.NamespacedName) *lb.State {
	svc := s.Service(name)
	if svc == nil {
		return nil
	}
	owner := lbcontroller.KeyOf(svc, s.LBDefaults())
	i := slices.IndexFunc(s.LoadBalancers, func(b lb.State) bool { return owner.Owns(b.Labels) })
	if i < 0 {
		return nil
	}
	return &s.LoadBalancers[i]
}

// Orphans returns the load balancers with this cluster's labels, but of no existing Service.
func (s *Snapshot) Orphans() []*lb.State {
	alive := map[string]bool{}
	for _, svc := range s.Services {
		alive[string(svc.UID)] = true
	}
	var out []*lb.State
	for i := range s.LoadBalancers {
		b := &s.LoadBalancers[i]
		if b.Labels[lb.LabelCluster] == s.Config.ClusterName &&
			!slices.ContainsFunc(b.Services(), func(uid string) bool { return alive[uid] }) {
			out = append(out, b)
		}
	}
	return out
}
