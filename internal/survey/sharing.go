package survey

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/lb"
	lbcontroller "github.com/underlay-ccm/underlay/lb/controller"
)

// sharedPlan is what the load balancer controller would make of the Services that
// share a load balancer.
type sharedPlan struct {
	group    string
	have     lb.State
	plan     lbcontroller.Plan
	conflict error
}

func (s *Snapshot) sharedPlan(group string, nodes []*corev1.Node, endpoints map[types.NamespacedName][]*discoveryv1.EndpointSlice) *sharedPlan {
	of := func(svc *corev1.Service) []*discoveryv1.EndpointSlice { return endpoints[NameOf(svc)] }
	plan, owned := lbcontroller.SurveyGroup(group, s.Services, nodes, of, s.LBDefaults(), s.LoadBalancers, s.Taken)
	g := &sharedPlan{group: group}
	switch len(owned) {
	case 0:
	case 1:
		g.have = owned[0]
		if named := g.have.Services(); len(named) > 0 && !slices.ContainsFunc(s.Services, func(svc *corev1.Service) bool { return slices.Contains(named, string(svc.UID)) }) {
			g.conflict = fmt.Errorf("load balancer %q %w: it is shared by Services that this cluster does not have", g.have.Name, lb.ErrNotOwned)
		}
	default:
		g.conflict = lb.ErrAmbiguous
	}
	g.plan = plan.Against(g.have, s.Certificates)
	taken := func(b lb.State) bool { return b.Name == g.plan.Spec.Name }
	if !g.have.Exists() && g.conflict == nil && slices.ContainsFunc(s.LoadBalancers, taken) {
		g.conflict = fmt.Errorf("load balancer %q %w", g.plan.Spec.Name, lb.ErrNotOwned)
	}
	if g.conflict != nil {
		g.plan.Ops = nil
	}
	return g
}

// balancing is what the group's load balancer is to one of its Services.
func (g *sharedPlan) balancing(svc *corev1.Service) Balancing {
	b := Balancing{Service: svc, Plan: g.plan.For(svc), Conflict: g.conflict, Shared: g.group}
	for _, sharer := range g.plan.Sharers() {
		b.Sharers = append(b.Sharers, NameOf(sharer))
	}
	if g.have.Exists() && g.conflict == nil {
		own := g.have.Only(string(svc.UID))
		b.LoadBalancer = &own
	}
	return b
}

// heldElsewhere says of a Service that has left a shared load balancer, or must not
// share it, that it is served by it all the same.
func (s *Snapshot) heldElsewhere(svc *corev1.Service) []string {
	var notes []string
	owner := lbcontroller.Owner(svc, s.Config.ClusterName)
	current := lbcontroller.GroupOf(svc, s.Config.LoadBalancers.Shared)
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
