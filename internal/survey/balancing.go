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
	// Plan has the Ops that are left to do, and the Notes for people.
	Plan lbcontroller.Plan
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
	var out []Balancing
	endpoints, nodes, groups := s.EndpointsByService(), s.servedNodes(), map[string]*sharedPlan{}
	for _, svc := range s.Services {
		if s.Config.LoadBalancers.Enabled && lbcontroller.Ours(svc, s.Config.LoadBalancers.Classless) && svc.DeletionTimestamp.IsZero() {
			group := lbcontroller.GroupOf(svc, s.Config.LoadBalancers.Shared)
			if group == "" {
				out = append(out, s.balancing(svc, nodes, endpoints[NameOf(svc)]))
				continue
			}
			if groups[group] == nil {
				groups[group] = s.sharedPlan(group, nodes, endpoints)
			}
			out = append(out, groups[group].balancing(svc))
		}
	}
	return out
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

func (s *Snapshot) balancing(svc *corev1.Service, nodes []*corev1.Node, endpoints []*discoveryv1.EndpointSlice) Balancing {
	plan := lbcontroller.Survey(svc, nodes, endpoints, s.LBDefaults(), s.Taken)
	b := Balancing{Service: svc}
	b.LoadBalancer, b.Conflict = s.balancerFor(svc, plan.Unseen())
	var have lb.State
	if b.LoadBalancer != nil {
		have = *b.LoadBalancer
	}
	if b.Conflict != nil {
		b.Plan = plan.Unseen()
		return b
	}
	b.Plan = plan.Against(have, s.Certificates)
	return b
}

// balancerFor finds the load balancer as the controller does: by the labels, else
// what may be taken over.
func (s *Snapshot) balancerFor(svc *corev1.Service, plan lbcontroller.Plan) (*lb.State, error) {
	owned := s.ownedBy(lbcontroller.Owner(svc, s.Config.ClusterName))
	switch {
	case len(owned) > 1:
		return nil, lb.ErrAmbiguous
	case len(owned) == 1:
		return owned[0], nil
	case plan.Refused:
		return nil, nil
	}
	var candidates []lb.State
	for _, b := range s.LoadBalancers {
		if b.Name == plan.Spec.Name || b.Labels[lb.LabelPeer] == string(svc.UID) {
			candidates = append(candidates, b)
		}
	}
	found, err := lb.Claim(plan.Spec, candidates)
	if err != nil || !found.Exists() {
		return nil, err
	}
	i := slices.IndexFunc(s.LoadBalancers, func(b lb.State) bool { return b.ID == found.ID })
	return &s.LoadBalancers[i], nil
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
	owner := lbcontroller.Owner(svc, s.Config.ClusterName)
	if group := lbcontroller.GroupOf(svc, s.Config.LoadBalancers.Shared); group != "" {
		owner = lb.GroupOwner(s.Config.ClusterName, group)
	}
	owned := s.ownedBy(owner)
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
