package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cloud-provider/service/helpers"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// syncGroup reconciles the load balancer of a group.
func (c *Controller) syncGroup(ctx context.Context, name string) ([]lb.Note, error) {
	g, err := c.gather(name)
	if err != nil {
		return nil, err
	}
	if known := c.carriers.known(name); !known && g.hopeless() {
		p := c.groupPlan(g).Against(lb.State{}, nil)
		return c.reportGroup(ctx, g, nil, outcome{members: p.members, Notes: p.Notes})
	}
	have, err := c.backend.Observe(ctx, g.owner)
	if err != nil {
		err = fmt.Errorf("looking for the load balancer: %w", err)
		if note, final := noteOf(err, lb.Spec{}); final {
			notes, err := c.standAside(ctx, g, note)
			return notes, errors.Join(err, c.tellDeparting(ctx, g, note))
		}
		return nil, err
	}
	if err := c.doubtGroup(ctx, g, have); err != nil {
		return nil, err
	}
	c.carriers.set(name, have.Services())
	observe := func(owner lb.Owner) (lb.State, error) { return c.backend.Observe(ctx, owner) }
	if err := c.findOthers(g, have, observe); err != nil {
		return nil, err
	}
	if err := c.reallyGone(ctx, g.gone, have); err != nil {
		return nil, err
	}
	if n := len(have.Services()); n > 0 && n == len(g.gone) {
		notes, err := c.standAside(ctx, g, ofOthers(have, c.defaults.Cluster))
		return notes, errors.Join(err, c.depart(ctx, g))
	}
	if ended, err := c.endOf(ctx, g, have); ended || err != nil {
		return nil, err
	}
	if err := c.ownOf(ctx, g, have); err != nil {
		return nil, err
	}
	return c.ensureGroup(ctx, g, have)
}

// ofOthers says why a load balancer is left alone of whose Services the cluster has none. Unlike a
// Service's UID, a group's name is the same in another cluster, and so may the cluster's name be.
func ofOthers(have lb.State, cluster string) lb.Note {
	return lb.Note{
		Grade: lb.Error, Reason: lb.ReasonNotOwned, Field: lb.AnnotationShared,
		Text: fmt.Sprintf("load balancer %d is shared under this name in a cluster named %q by Services that this cluster does not have, so it is left alone: give each cluster of a project its own --cluster-name, or set another name here; if nobody needs it any more, delete it, or remove its labels underlay.dev/svc-… to share it here", have.ID, cluster),
	}
}

// standAside tells the Services of a group that no load balancer can be theirs, and keeps those in
// service that they have alone.
func (c *Controller) standAside(ctx context.Context, g *group, why lb.Note) ([]lb.Note, error) {
	if err := c.ownOf(ctx, g, lb.State{}); err != nil {
		return nil, err
	}
	p := c.groupPlan(g)
	for i := range p.members {
		p.members[i].notes = p.members[i].plan.Notes
	}
	done := outcome{members: p.members, Notes: []lb.Note{why}}
	notes, err := c.reportGroup(ctx, g, nil, done)
	return notes, errors.Join(err, c.leaveOwn(ctx, g, done))
}

// reallyGone asks the API server itself about Services that the load balancer names and the cache
// does not know: that can be older than what another process has done.
func (c *Controller) reallyGone(ctx context.Context, uids []string, have lb.State) error {
	if len(uids) == 0 {
		return nil
	}
	live, err := c.client.Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services that the load balancer %q may serve: %w", have.Name, err)
	}
	for _, svc := range live.Items {
		if uid := string(svc.UID); slices.Contains(uids, uid) {
			return fmt.Errorf("the cache does not know the Service %s, which shares the load balancer %q", klog.KObj(&svc), have.Name)
		}
	}
	return nil
}

// endOf deletes the load balancer when the last Service departs or has left, and lets it go. One that
// no Service left stays, even if it serves nobody: nobody knows what became of its Services.
func (c *Controller) endOf(ctx context.Context, g *group, have lb.State) (ended bool, err error) {
	named := func(svc *corev1.Service) bool { return c.owner(svc).Carries(have.Labels) }
	if have.Exists() && (len(g.left) > 0 || slices.ContainsFunc(g.departing, named)) {
		p := c.groupPlan(g)
		certificates, err := c.certificates(ctx, p)
		if err != nil {
			return false, err
		}
		if len(g.members) > 0 && len(p.Against(have, certificates).Spec.Listeners) > 0 {
			return false, nil
		}
		if err := errors.Join(c.run(ctx, have, []lb.Op{lb.Delete{}}).errs...); err != nil {
			err = fmt.Errorf("removing the load balancer: %w", err)
			if note, known := noteOf(err, lb.Spec{}); known {
				err = errors.Join(err, c.tellDeparting(ctx, g, note))
			}
			return false, err
		}
		c.carriers.set(g.name, nil)
		c.unhealthy.look(g.owner.Key(), nil, time.Now())
		for _, svc := range g.departing {
			c.recorder.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer, which no other Service shares")
		}
		if len(g.members) > 0 {
			c.add(groupKey(g.name)) // they are told in a look of their own
			return true, nil
		}
	}
	if len(g.members) > 0 {
		return false, nil
	}
	return true, c.depart(ctx, g)
}

// tellDeparting says at the Services that depart what is in the way.
func (c *Controller) tellDeparting(ctx context.Context, g *group, note lb.Note) (err error) {
	for _, svc := range g.departing {
		notes := []lb.Note{note}
		err = errors.Join(err, c.tell(ctx, svc, svc, telling{notes: notes, status: svc.Status.LoadBalancer, memory: recall(svc), managed: hadManaged(svc)}))
	}
	return err
}

// depart lets Services go whose ports are closed, with what else they have in the cloud.
func (c *Controller) depart(ctx context.Context, g *group) error {
	var errs []error
	for _, svc := range g.departing {
		c.former.Delete(svc.UID)
		if !helpers.HasLBFinalizer(svc) && !marked(svc) {
			continue
		}
		_, _, err := c.dispose(ctx, svc, trialLook, true) // see doubtGroup
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// leave has the groups that a Service shares looked at: it goes when its ports there are closed.
func (c *Controller) leave(svc *corev1.Service, groups []string, after time.Duration) {
	for _, group := range groups {
		c.carriers.add(group, string(svc.UID))
		c.queue.AddAfter(groupKey(group), after)
	}
}

// ensureGroup makes the load balancer be what the group asks for, and tells how it went.
func (c *Controller) ensureGroup(ctx context.Context, g *group, have lb.State) ([]lb.Note, error) {
	claimed, unclaimed := c.claimAll(ctx, g, have)
	if len(g.members) == 0 {
		return nil, unclaimed
	}
	p := c.groupPlan(g)
	done := c.convergeFrom(ctx, have, p, hooks{Wanted: func(ctx context.Context) (bool, error) { return c.allWanted(ctx, g) }})
	if done.Unwanted {
		c.add(groupKey(g.name))
		return nil, nil
	}
	if done.Seen && done.State.Exists() {
		c.carriers.set(g.name, done.Spec.Sharers)
	}
	if err := c.tellRemoved(g, done.Removed); err != nil {
		return nil, err
	}
	for _, m := range done.members {
		if m.standing != lb.Joined {
			continue
		}
		p.endpoints = m.plan.endpoints
		c.aims(m.svc, p, done.Nodes, done.State)
		if joined := len(m.part.Listeners) > 0 && !c.owner(m.svc).Carries(have.Labels); joined && done.State.Exists() {
			c.recorder.Event(m.svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", fmt.Sprintf("Ensured load balancer, shared as %q", g.name))
		}
	}
	c.lookAgainAtGroup(g, done)
	notes, err := c.reportGroup(ctx, g, claimed, done)
	if done.Transient == nil {
		err = errors.Join(err, c.depart(ctx, g))
	}
	err = errors.Join(err, c.leaveOwn(ctx, g, done))
	for _, m := range g.members {
		for _, key := range c.keysOf(m.svc) {
			waits := m.standing != lb.Joined && done.Spec.Name != have.Name // for the name
			left := m.standing == lb.Joined && key != groupKey(g.name) && !c.owner(m.svc).Carries(have.Labels)
			if waits || left {
				c.add(key)
			}
		}
	}
	return notes, errors.Join(unclaimed, done.Transient, err)
}

// claimAll marks the Services that can be served as ours, see [Controller.claim], and returns them by
// their UIDs. One of which that fails does not get into the group, and the others go on.
func (c *Controller) claimAll(ctx context.Context, g *group, have lb.State) (claimed map[string]*corev1.Service, err error) {
	claimed = make(map[string]*corev1.Service)
	var errs []error
	var members []member
	for _, m := range g.members {
		if m.standing != lb.Joined || m.plan.Refused || len(m.plan.Spec.Barred) > 0 && !helpers.HasLBFinalizer(m.svc) {
			members = append(members, m)
			continue
		}
		managed := m.plan.Spec.Managed != nil
		svc, err := c.claim(ctx, m.svc, managed)
		if err != nil {
			errs = append(errs, err)
			if !c.owner(m.svc).Carries(have.Labels) {
				continue
			}
			svc = m.svc
		}
		claimed[m.uid()] = svc
		m.plan.hadManaged = m.plan.hadManaged || managed
		members = append(members, m)
	}
	g.members = members
	return claimed, errors.Join(errs...)
}

// allWanted asks the API server itself, before a creation, whether all Services still ask for it.
func (c *Controller) allWanted(ctx context.Context, g *group) (bool, error) {
	for _, m := range g.members {
		if m.standing != lb.Joined {
			continue
		}
		if wanted, err := c.stillWanted(ctx, m.svc); !wanted {
			return false, err
		}
	}
	return true, nil
}

// tellRemoved tells all Services of targets that were removed and that no Node has.
func (c *Controller) tellRemoved(g *group, removed []lb.Target) error {
	for _, m := range g.members {
		strangers, err := c.strangers(m.svc, removed)
		if err != nil {
			return err
		}
		if len(strangers) > 0 {
			c.recorder.Event(m.svc, corev1.EventTypeWarning, lb.ReasonTargetsRemoved, removal(strangers))
		}
	}
	return nil
}

// lookAgainAtGroup queues a group for what is to be done later.
func (c *Controller) lookAgainAtGroup(g *group, done outcome) {
	key := groupKey(g.name)
	if done.RetryTargets > 0 && done.RetryTargets < driftPeriod {
		c.queue.AddAfter(key, done.RetryTargets)
	}
	pendingAny := slices.ContainsFunc(done.members, func(m member) bool { return pending(m.notes) })
	if (done.waits || pendingAny) && done.Transient == nil {
		c.queue.AddAfter(key, trialLook)
	}
}
