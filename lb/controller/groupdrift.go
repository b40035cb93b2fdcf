package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// driftOfGroups queues the groups whose load balancers are not as they should be.
func (c *Controller) driftOfGroups(ctx context.Context, groups map[string]bool, states []lb.State, certificates func() ([]lb.Certificate, error)) {
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		settled, err := c.groupSettled(group, states, certificates)
		switch {
		case settled:
			continue
		case err != nil:
			klog.FromContext(ctx).Error(err, "Comparing a shared load balancer with its Services failed", "group", group)
		case c.carriers.known(group):
			c.metrics.drifted.Inc()
		}
		c.queue.Add(groupKey(group))
	}
}

// groupSettled reports whether a reconciliation of a group would find nothing to do.
func (c *Controller) groupSettled(name string, states []lb.State, certificates func() ([]lb.Certificate, error)) (bool, error) {
	g, err := c.gather(name)
	if err != nil {
		return false, err
	}
	settled := true
	for _, m := range g.members {
		if len(ownedBy(c.owner(m.svc), states)) > 0 {
			c.former.Store(m.svc.UID, true)
			settled = false
		}
	}
	owned := ownedBy(g.owner, states)
	if !settled || len(g.departing) > 0 || len(owned) > 1 {
		return false, nil
	}
	var have lb.State
	switch {
	case len(owned) == 1:
		have = owned[0]
	case !g.hopeless():
		return false, nil
	}
	if err := c.findOthers(g, have, among(states)); err != nil || len(g.departing)+len(g.left)+len(g.gone) > 0 {
		return false, err
	}
	for _, m := range g.members {
		if m.standing == lb.Joined && !m.plan.Refused && len(m.plan.Spec.Barred) == 0 && !helpers.HasLBFinalizer(m.svc) ||
			m.plan.hadManaged && m.plan.Spec.Managed == nil && !m.plan.Refused {
			return false, nil
		}
	}
	p := c.groupPlan(g)
	var known []lb.Certificate
	if p.needsCertificates() {
		if known, err = certificates(); err != nil {
			return false, fmt.Errorf("listing certificates: %w", err)
		}
	}
	if p = p.Against(have, known); len(p.Ops) > 0 || p.waits {
		return false, nil
	}
	done := outcome{Spec: p.Spec, State: have, Seen: true, Notes: p.Notes, members: p.members}
	for _, m := range p.members {
		p.endpoints = m.plan.endpoints
		c.aims(m.svc, p, p.nodes, have)
		if m.standing == lb.Joined && !equality.Semantic.DeepEqual(m.svc, told(m.svc, c.tellingOf(m, m.svc, done))) {
			return false, nil
		}
	}
	return true, nil
}
