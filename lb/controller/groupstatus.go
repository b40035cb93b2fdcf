package controller

import (
	"context"
	"errors"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// reportGroup writes what became of a group's plan to each of its Services. Those that are leaving
// are told where they went. claimed are the Services as they were written last, by their UIDs.
func (c *Controller) reportGroup(ctx context.Context, g *group, claimed map[string]*corev1.Service, done outcome) ([]lb.Note, error) {
	var all []lb.Note
	var errs []error
	for _, m := range done.members {
		if m.standing != lb.Joined {
			continue
		}
		if now, err := c.services.Services(m.svc.Namespace).Get(m.svc.Name); err == nil && c.keyOf(now) != groupKey(g.name) {
			g.untold[m.uid()] = true // it has left meanwhile
			continue
		}
		latest, ok := claimed[m.uid()]
		if !ok {
			latest = m.svc
		}
		t := c.tellingOf(m, latest, done)
		if done.Transient != nil && condition(t.notes).Status == metav1.ConditionTrue {
			updated := latest.DeepCopy() // nothing is accepted that is not there
			updated.Status.LoadBalancer = t.status
			_, err := c.patch(ctx, latest, updated)
			g.untold[m.uid()] = err != nil
			errs = append(errs, err)
			continue
		}
		err := c.tell(ctx, m.svc, latest, t)
		g.untold[m.uid()] = err != nil
		if err == nil {
			c.announceHealed(m.svc, done.State.Only(m.uid()))
		}
		all, errs = append(all, t.notes...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// tellingOf is what a Service of a group is to say.
func (c *Controller) tellingOf(m member, svc *corev1.Service, done outcome) telling {
	t := telling{notes: m.told(done.Notes), status: svc.Status.LoadBalancer, memory: m.memory}
	needed := m.plan.Refused || m.plan.Spec.Managed != nil || done.Transient != nil || rejected(t.notes)
	t.managed = hadManaged(svc) && needed
	spec, exists := m.spec(), done.Seen && done.State.Exists()
	if exists {
		state := done.State
		state.Listeners = slices.DeleteFunc(slices.Clone(state.Listeners), func(l lb.Listener) bool {
			_, is := lb.ByPort(spec.Listeners)[l.Port]
			return !is
		})
		t.notes = slices.Concat(t.notes, c.targetsHealth(svc, spec, state, m.plan.idle()))
	}
	switch served := len(spec.Listeners) > 0; {
	case m.plan.Refused:
	case m.own.Exists() && !complete(m, done):
		// What it has alone serves it until this does.
	case len(c.keysOf(svc)) > 1 && !complete(m, done):
		// Nor does it leave the group that it comes from before this one serves it.
	case exists && served:
		t.status = ingressStatus(spec, done.State)
	case exists, lost(svc, done):
		t.status = corev1.LoadBalancerStatus{}
	}
	return t
}

// complete reports whether all ports of a Service are served, as far as is known. Of one that is
// refused nobody knows which those are.
func complete(m member, done outcome) bool {
	open := lb.ByPort(m.part.Listeners)
	closed := func(l lb.Listener) bool { _, is := open[l.Port]; return !is }
	return done.Transient == nil && !m.plan.Refused && len(open) > 0 && len(m.part.Unopened) == 0 &&
		!slices.ContainsFunc(m.plan.Spec.Listeners, closed) &&
		!slices.ContainsFunc(m.told(done.Notes), func(n lb.Note) bool { return n.Reason == reasonRejected })
}
