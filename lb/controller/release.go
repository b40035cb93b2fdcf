package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// ends reports whether a load balancer must be deleted because it no longer serves any Service. If
// no Service departed from it, it is kept without listeners, because its Services are unknown.
func (c *Controller) ends(o *outcome) bool {
	return o.have.Exists() && len(o.plan.Spec.Listeners) == 0 && len(o.left)+len(o.departing) > 0 &&
		!o.plan.Refused
}

// end handles a balancer that no Service requests. Its state was just read.
func (c *Controller) end(ctx context.Context, o *outcome) ([]lb.Note, error) {
	switch {
	case o.unmarked != nil:
		return c.cleanLeftover(ctx, o)
	case o.owner.Group == "" && len(o.departing) > 0:
		return c.release(ctx, o, o.departing[0])
	case !o.have.Exists() || len(o.left)+len(o.departing) == 0:
		return nil, nil
	}
	for _, svc := range o.left {
		if err := c.states.read(ctx, c.keyOf(svc)); err != nil {
			return nil, err
		}
	}
	v := c.survey()
	if slices.ContainsFunc(o.left, func(svc *corev1.Service) bool { return v.needs(svc, o.have) }) {
		c.recheck(o.owner, recheckAfter)
		return nil, nil
	}
	due, held := c.due(o.owner, []lb.Op{lb.Delete{}})
	r := c.run(ctx, o.owner, o.have, due)
	c.states.expire(o.owner)
	if err := errors.Join(slices.Concat(held, r.errs)...); err != nil {
		err = fmt.Errorf("removing the load balancer: %w", err)
		note, known := noteOf(err, lb.Spec{})
		if known && len(held) == 0 { // these have another load balancer by now
			for _, svc := range o.left {
				c.cfg.Recorder.Event(svc, corev1.EventTypeWarning, note.Reason, note.Announcement())
			}
		}
		return c.reportDeparting(ctx, o, o.departing, err)
	}
	c.deleted(ctx, o)
	return nil, nil
}

// deleted records the deletion of a load balancer, and queues the Services that waited for it.
func (c *Controller) deleted(ctx context.Context, o *outcome) (again bool) {
	c.states.forget(o.have.ID)
	c.unhealthy.look(o.owner.Key(), nil, time.Now())
	c.nameFreed(o)
	for _, svc := range o.departing {
		c.cfg.Recorder.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer",
			"Deleted load balancer, which no other Service shares")
		c.enqueue(c.owner(svc))
	}
	for _, svc := range o.left {
		if o.owner.Group == "" {
			c.cfg.Recorder.Event(svc, corev1.EventTypeNormal, reasonNowShared,
				fmt.Sprintf("The load balancer shared as %q serves the Service now, at other addresses; its own, %q, is deleted", c.keyOf(svc).Group, o.have.Name))
			_ = c.allowAccess(ctx, svc, podAccess{}) // the periodic read retries it
		}
		c.enqueue(c.keyOf(svc))
	}
	o.have = lb.State{}
	return len(o.members) > 0
}

// reasonNowShared: a Service replaced its own load balancer by a shared load balancer.
const reasonNowShared = "SharingLoadBalancer"

// reportDeparting updates the conditions of departing Services if a user must fix the error.
func (c *Controller) reportDeparting(
	ctx context.Context, o *outcome, departing []*corev1.Service, why error,
) ([]lb.Note, error) {
	note, known := noteOf(why, lb.Spec{})
	if !known {
		return nil, why
	}
	if next := c.backoff.next(o.owner); next > 0 {
		c.recheck(o.owner, next)
	}
	return []lb.Note{note}, c.reportAll(ctx, departing, note)
}

// reportAll sets the conditions of Services and keeps their addresses.
func (c *Controller) reportAll(
	ctx context.Context, services []*corev1.Service, note lb.Note,
) error {
	var errs []error
	for _, svc := range services {
		t := serviceReport{
			notes: []lb.Note{note}, status: svc.Status.LoadBalancer, managed: hadManaged(svc),
		}
		errs = append(errs, c.reportService(ctx, svc, t))
	}
	return errors.Join(errs...)
}

// release deletes all cloud objects of a Service that no longer requests a load balancer of this
// controller, then removes its finalizer. It leaves shared load balancers first.
func (c *Controller) release(
	ctx context.Context, o *outcome, svc *corev1.Service,
) ([]lb.Note, error) {
	if c.leave(o, svc) {
		return nil, nil
	}
	have, err := o.have, error(nil)
	// After a handover, the Hetzner controller's load balancer belongs to the other
	// implementation.
	if !have.Exists() && !c.transferred(svc) {
		have, err = c.candidate(ctx, o, lb.Spec{Owner: c.owner(svc)})
	}
	if err == nil && !have.Exists() {
		err = c.checkAbsent(ctx, o.owner)
	}
	var ops []lb.Op
	if have.Exists() {
		ops = append(ops, lb.Delete{})
	}
	if err == nil && hadManaged(svc) {
		var all []lb.Certificate
		all, err = c.backend.Certificates(ctx)
		ops = append(ops, lb.Surplus(lb.Spec{Owner: c.owner(svc)}, all, have.ID)...)
	}
	if err == nil {
		r := c.runDue(ctx, o.owner, have, ops)
		c.states.expire(o.owner)
		if err = errors.Join(r.errs...); r.freed {
			c.nameFreed(o)
		}
	}
	if err == nil {
		err = c.allowAccess(ctx, svc, podAccess{})
	}
	if err != nil {
		return c.reportDeparting(ctx, o, []*corev1.Service{svc},
			fmt.Errorf("removing the load balancer: %w", err))
	}
	if have.Exists() {
		c.states.forget(have.ID)
		c.cfg.Recorder.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	} else {
		c.announceLeft(svc)
	}
	return nil, c.letGo(ctx, svc)
}

// markDeparting claims Services to release without our marks before anything is deleted, so that
// an interrupted release continues even if there is no object left in the cloud.
func (c *Controller) markDeparting(ctx context.Context, o *outcome) error {
	for i, svc := range o.departing {
		if roleOf(svc, c.cfg.Defaults) == unmarked {
			claimed, err := c.claim(ctx, svc, svc.Spec.Type != corev1.ServiceTypeLoadBalancer)
			if err != nil {
				return err
			}
			o.departing[i] = claimed
		}
	}
	return nil
}

// leave queues the balancers that a Service shares, and reports whether there is any. A shared
// load balancer without the group's label belongs to its last Service alone.
func (c *Controller) leave(o *outcome, svc *corev1.Service) (shares bool) {
	for _, s := range c.states.carrying(c.owner(svc)) {
		other := lb.GroupOwner(c.cfg.Defaults.Cluster, s.Group())
		if s.Group() == "" {
			all := c.allServices()
			i := slices.IndexFunc(all, func(other *corev1.Service) bool {
				return other.UID != svc.UID && c.wants(other) && c.owner(other).Carries(s.Labels)
			})
			if i < 0 {
				o.have = s
				continue
			}
			other = c.keyOf(all[i])
		}
		c.enqueue(other)
		shares = true
	}
	return shares
}

// announceLeft warns that no load balancer was deleted, if the user may expect a deletion.
func (c *Controller) announceLeft(svc *corev1.Service) {
	none := fmt.Sprintf("No load balancer with the labels of this Service and of cluster %q exists, so none was deleted", c.cfg.Defaults.Cluster)
	switch {
	case nameTaken(svc):
		c.cfg.Recorder.Event(svc, corev1.EventTypeWarning, lb.ReasonNotOwned, none+
			"; the load balancer of another owner was left alone")
	case showsAny(svc) && !c.transferred(svc):
		c.cfg.Recorder.Event(svc, corev1.EventTypeWarning, lb.ReasonNotOwned,
			none+"; whatever responds at "+addresses(svc)+" was left alone")
	}
}

// cleanLeftover releases a Service with a load balancer of the Hetzner controller, or reports why
// the finalizer is kept.
func (c *Controller) cleanLeftover(ctx context.Context, o *outcome) ([]lb.Note, error) {
	svc := o.unmarked
	if _, explained := c.unexplained.Load(svc.UID); explained ||
		svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return nil, nil
	}
	have, err := c.candidate(ctx, o, lb.Spec{Owner: c.owner(svc)})
	switch {
	case refusal(err):
		c.announceUnexplained(svc, err.Error())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("looking for the Service's load balancer: %w", err)
	case !have.Exists():
		if err := c.checkProject(ctx); err != nil {
			return nil, err
		}
		c.announceUnexplained(svc, fmt.Sprintf("no load balancer carries the labels of this Service and of cluster %q, or %s with its UID", c.cfg.Defaults.Cluster, lb.LabelPeer))
		return nil, nil
	}
	o.departing = []*corev1.Service{svc}
	if err := c.markDeparting(ctx, o); err != nil {
		return nil, err
	}
	o.have = have
	return c.release(ctx, o, o.departing[0])
}

// announceUnexplained emits an Event, once per process, with the reason why a finalizer is kept
// and the command to remove it.
func (c *Controller) announceUnexplained(svc *corev1.Service, why string) {
	if _, explained := c.unexplained.LoadOrStore(svc.UID, true); explained {
		return
	}
	at := slices.Index(svc.Finalizers, helpers.LoadBalancerCleanupFinalizer)
	c.cfg.Recorder.Eventf(svc, corev1.EventTypeWarning, lb.ReasonNotOwned,
		`metadata.finalizers=%q: the Service requests no load balancer any more, and the finalizer stays because its owner is not known: %s. `+
			`If no other controller is about to clean up, delete the Service's load balancer in the cloud, and run: `+
			`kubectl -n %s patch service %s --type=json -p '[{"op":"test","path":"/metadata/finalizers/%d","value":%[1]q},{"op":"remove","path":"/metadata/finalizers/%[5]d"}]'`,
		helpers.LoadBalancerCleanupFinalizer, why, svc.Namespace, svc.Name, at)
}
