package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/underlay-ccm/underlay/lb"
)

// report writes the result to each Service that requests the balancer, and emits Events. Services
// that request another balancer are reported by that. It returns all notes.
func (c *Controller) report(ctx context.Context, o *outcome) (all []lb.Note, err error) {
	var errs []error
	for i, m := range o.members {
		svc := o.services[i]
		if m.Standing == lb.Closing || c.keyOf(svc) != o.owner {
			continue
		}
		if now, err := c.services.Services(svc.Namespace).Get(svc.Name); err == nil &&
			c.keyOf(now) != o.owner {
			c.enqueue(c.keyOf(now)) // it requests another balancer now
			c.enqueue(o.owner)
			continue
		}
		errs = append(errs, c.reportTo(ctx, o, i))
		all = append(all, o.notesOf(i)...)
	}
	if o.owner.Group == "" && len(o.members) > 0 && o.seen && o.have.Exists() {
		errs = append(errs, c.allowAccess(ctx, o.services[0], o.accessAfter()))
	}
	if next := sooner(c.backoff.next(o.owner), o.next); next > 0 {
		c.queue.AddAfter(o.owner, next)
	}
	return all, errors.Join(errs...)
}

func (o *outcome) notesOf(i int) []lb.Note {
	return notesOf(o.members[i], o.plan, i, slices.Concat(o.plan.Notes, o.notes))
}

func (c *Controller) reportTo(ctx context.Context, o *outcome, i int) error {
	m, svc, part := o.members[i], o.services[i], o.plan.Part(i)
	exists := o.seen && o.have.Exists()
	state := o.have
	state.Listeners = slices.DeleteFunc(slices.Clone(state.Listeners), func(l lb.Listener) bool {
		_, mine := lb.ByPort(part.Listeners)[l.Port]
		return !mine
	})
	t := serviceReport{notes: o.notesOf(i), status: c.statusOf(o, i, state)}
	if exists {
		spec := o.plan.Spec
		spec.Listeners = part.Listeners
		t.notes = slices.Concat(t.notes, c.targetsHealth(svc, spec, state, m.Idle() && !spec.PodTargets,
			o.opened))
	}
	t.ours = exists && len(state.Listeners) > 0 || len(t.status.Ingress) == 0
	t.managed = hadManaged(svc) &&
		(!m.Parsed || m.Spec.Managed != nil || o.transient != nil ||
			slices.ContainsFunc(t.notes, rejected))
	var err error
	if o.transient != nil && condition(t.notes).Status == metav1.ConditionTrue {
		// The condition must not be Accepted after an error, but existing addresses are usable.
		updated := svc.DeepCopy()
		updated.Status.LoadBalancer = t.status
		_, err = c.patch(ctx, svc, updated)
	} else if err = c.reportService(ctx, svc, t); err == nil {
		c.announceHealed(svc, state)
	}
	if o.created {
		text := "Ensured load balancer"
		if o.owner.Group != "" {
			text = fmt.Sprintf("Ensured load balancer, shared as %q", o.owner.Group)
		}
		c.cfg.Recorder.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", text)
	}
	if err == nil {
		c.releaseOthers(svc)
	}
	return err
}

// ownerOf returns the owner of a load balancer with a Service's label.
func ownerOf(s lb.State, svc *corev1.Service, cluster string) lb.Owner {
	if s.Group() != "" {
		return lb.GroupOwner(cluster, s.Group())
	}
	return Owner(svc, cluster)
}

// statusOf returns the Service's status of the load balancer. state has only the Service's
// listeners.
func (c *Controller) statusOf(o *outcome, i int, state lb.State) corev1.LoadBalancerStatus {
	m, svc := o.members[i], o.services[i]
	now := svc.Status.LoadBalancer
	elsewhere := slices.ContainsFunc(c.states.carrying(c.owner(svc)), func(s lb.State) bool {
		return s.ID != o.have.ID
	})
	complete := len(state.Listeners) == len(m.Spec.Listeners)
	switch {
	case !o.seen:
		return now
	case elsewhere && !(complete && m.Parsed && o.transient == nil):
		return now // it keeps serving until this load balancer has all ports
	case len(state.Listeners) == 0 && o.transient != nil:
		return now // ports may be opened, or the load balancer be used, after the error
	case !o.have.Exists() &&
		(foreign(svc) || slices.ContainsFunc(o.found, func(s lb.State) bool {
			return onlyThose(svc, s)
		})):
		return now // may be another controller's
	case !o.have.Exists() || len(state.Listeners) == 0:
		return corev1.LoadBalancerStatus{}
	case !m.Parsed: // the settings of the status are unknown
		return now
	}
	return ingressStatus(m.Spec, state)
}

func rejected(n lb.Note) bool { return n.Reason == reasonRejected }
