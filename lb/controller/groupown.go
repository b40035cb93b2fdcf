package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// ownOf finds the load balancers that Services had before they shared this one. Whether one may
// have any is known by its finalizer until it is named here or was looked at, and after that by the regular
// look.
func (c *Controller) ownOf(ctx context.Context, g *group, have lb.State) error {
	for i := range g.members {
		m := &g.members[i]
		had, looked := c.former.Load(m.svc.UID)
		may := had == true || !looked && helpers.HasLBFinalizer(m.svc)
		owner := c.owner(m.svc)
		if m.standing != lb.Joined || !may || had != true && owner.Carries(have.Labels) {
			continue
		}
		own, err := c.backend.Observe(ctx, owner)
		if err != nil {
			return fmt.Errorf("looking for the load balancer that Service %s had: %w", klog.KObj(m.svc), err)
		}
		m.own = own
		c.former.Store(m.svc.UID, own.Exists())
	}
	return nil
}

// leaveOwn deletes the load balancers that Services had before they shared this one, once this one
// serves all of their ports, and keeps the targets of the others up to date.
func (c *Controller) leaveOwn(ctx context.Context, g *group, done outcome) error {
	var errs []error
	for _, m := range done.members {
		if !m.own.Exists() {
			continue
		}
		if !complete(m, done) {
			errs = append(errs, c.holdOwn(ctx, m))
			continue
		}
		now, err := c.backend.Observe(ctx, g.owner)
		open := lb.ByPort(now.Only(m.uid()).Listeners)
		if err != nil || slices.ContainsFunc(m.part.Listeners, func(l lb.Listener) bool { return open[l.Port].DestinationPort != l.DestinationPort }) {
			c.queue.AddAfter(groupKey(g.name), trialLook)
			errs = append(errs, err)
			continue
		}
		c.recorder.Event(m.svc, corev1.EventTypeNormal, reasonNowShared,
			fmt.Sprintf("The load balancer shared as %q serves the Service now, at other addresses; its own, %q, is deleted", g.name, m.own.Name))
		if err := errors.Join(c.run(ctx, m.own, []lb.Op{lb.Delete{}}).errs...); err != nil {
			errs = append(errs, fmt.Errorf("removing the load balancer that Service %s had: %w", klog.KObj(m.svc), err))
			continue
		}
		errs = append(errs, c.close(ctx, m.svc))
		c.former.Store(m.svc.UID, false)
		if m.own.Name != done.Spec.Name {
			c.add(groupKey(g.name)) // the name may have been waited for
		}
	}
	return errors.Join(errs...)
}

// reasonNowShared: a Service that had a load balancer of its own shares one now.
const reasonNowShared = "SharingLoadBalancer"

// holdOwn keeps the load balancer that a Service has alone in service.
func (c *Controller) holdOwn(ctx context.Context, m member) error {
	p := m.plan
	p.Refused, p.Notes, p.hadManaged = true, nil, false
	done := c.convergeFrom(ctx, m.own, p, hooks{
		Open: func(ctx context.Context, p Plan, have lb.State) error { return c.openFor(ctx, m.svc, p, have) },
	})
	return errors.Join(done.Transient, c.openAfter(ctx, m.svc, p.choose(done.State), done))
}
