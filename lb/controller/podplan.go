package controller

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// orPods returns the plan together with the one that has pods as targets, if the Service asks for
// that. The load balancer decides between them, see choose.
func (p Plan) orPods(svc *corev1.Service, nodes []*corev1.Node, slices []*discoveryv1.EndpointSlice, defaults lb.Defaults) Plan {
	if !asksAboutPods(svc) {
		return p
	}
	e := readEndpoints(svc, slices, nodes, defaults.OwnPools)
	p.endpoints = &e
	if !lb.AsksForPods(svc.Annotations) {
		return p
	}
	q := question(svc)
	q.PodTargets = true
	for i := range q.Ports {
		q.Ports[i].TargetPorts = e.ports[i]
	}
	pods := parsed(svc, q, defaults, p.now)
	pods.Spec, pods.endpoints = pods.Spec.WithPods(e.pods.Targets), &e
	if len(e.pods.Targets)+len(e.pods.Others) == 0 && !pods.impossible() {
		pods.Notes = append(pods.Notes, noPods())
	}
	p.atPods = &pods
	return p
}

// Unseen is the plan of a Service whose load balancer nobody has looked at.
func (p Plan) Unseen() Plan { return p.choose(lb.State{}) }

// choose decides between nodes and pods as targets of the load balancer that there is.
func (p Plan) choose(have lb.State) Plan {
	if p.atPods == nil {
		return p
	}
	pods := *p.atPods
	p.atPods = nil
	yes, notes := p.endpoints.pods.Choose(have)
	hasPods := slices.ContainsFunc(have.Targets, lb.Target.Pod)
	switch {
	case !yes:
		p.Notes = slices.Concat(notes, p.Notes)
		return p
	case pods.Refused && !hasPods && len(have.Targets) > 0: // those that there are serve until that is corrected
		p.Refused, p.Notes = true, slices.Concat(pods.Notes, notes)
		return p
	}
	pods.Notes = slices.Concat(pods.Notes, notes)
	pods.hadManaged, pods.repeats, pods.refusals, pods.unhealthy = p.hadManaged, p.repeats, p.refusals, p.unhealthy
	pods.memory, pods.now, pods.addresses = p.memory, p.now, p.addresses
	return pods
}
