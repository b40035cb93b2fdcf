package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// sync reconciles one Service. The notes are what a person must look at; the error is what will be
// retried.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) (notes []lb.Note, err error) {
	if isGroup(key) {
		return c.syncGroup(ctx, key.Name)
	}
	cached, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil // gone; the finalizer made sure that nothing was left behind
	}
	if err != nil {
		return nil, fmt.Errorf("reading Service %s from the cache: %w", key, err)
	}
	switch svc := c.newest.Of(cached).DeepCopy(); {
	case c.keyOf(svc) != key && (c.wants(svc) || c.needsCleanup(svc)):
		c.add(c.keyOf(svc)) // it shares since it was queued
	case c.wants(svc):
		return c.ensure(ctx, svc)
	case c.needsCleanup(svc):
		return c.cleanup(ctx, svc)
	case c.mayBeLeftover(svc):
		return c.cleanLeftover(ctx, svc)
	}
	return nil, nil
}

// ensure makes the load balancer be what the Service asks for, and tells how it went.
func (c *Controller) ensure(ctx context.Context, svc *corev1.Service) ([]lb.Note, error) {
	c.former.Delete(svc.UID)
	p, err := c.plan(svc)
	if err != nil {
		return nil, err
	}
	// Without the finalizer nothing was ever created: a Service that is refused from the beginning
	// costs no request.
	unseen := p.choose(lb.State{})
	if unseen.impossible() && !helpers.HasLBFinalizer(svc) {
		notes := unseen.Against(lb.State{}, nil).Notes
		return notes, c.tell(ctx, svc, svc, telling{notes: notes, status: svc.Status.LoadBalancer, memory: p.memory, managed: hadManaged(svc)})
	}
	claimed := svc
	if managed := p.Spec.Managed != nil || unseen.Spec.Managed != nil; !p.Refused || !unseen.Refused {
		if claimed, err = c.claim(ctx, svc, managed); apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		p.hadManaged = p.hadManaged || managed
	}
	done := c.converge(ctx, p, hooks{
		Wanted: func(ctx context.Context) (bool, error) { return c.stillWanted(ctx, svc) },
		Remember: func(ctx context.Context, m memory) (err error) {
			claimed, err = c.patch(ctx, claimed, remembering(claimed, m))
			return err
		},
		Open: func(ctx context.Context, p Plan, have lb.State) error { return c.openFor(ctx, svc, p, have) },
	})
	p = p.choose(done.State)
	strangers, err := c.strangers(svc, done.Removed)
	if err != nil {
		return nil, err
	}
	c.aims(svc, p, done.Nodes, done.State)
	if done.acted {
		c.acted(svc)
	}
	if done.Unwanted {
		return nil, nil // the cache will learn of it
	}
	// Endpoints that came and went meanwhile were compared with those of the look before.
	if lb.MayMeanPods(svc.Annotations) {
		c.endpointsMoved(svc)
	}
	if err := c.openAfter(ctx, svc, p, done); err != nil {
		done.Transient = errors.Join(done.Transient, err)
	}
	if done.Created {
		c.recorder.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	if len(strangers) > 0 {
		c.recorder.Event(svc, corev1.EventTypeWarning, lb.ReasonTargetsRemoved, removal(strangers))
	}
	if done.RetryTargets > 0 && done.RetryTargets < driftPeriod { // later ones are found by the regular look
		c.queue.AddAfter(nameOf(svc), done.RetryTargets)
	}
	if done.waits && done.Transient == nil {
		c.queue.AddAfter(nameOf(svc), trialLook)
	}
	// What failed is tried again by the queue, at its pace; only the old checks cannot wait for
	// that.
	if done.memory.open() && (done.Transient == nil || done.memory.checks.open()) {
		c.queue.AddAfter(nameOf(svc), max(time.Until(done.memory.Until), trialLook))
	}
	notes, err := c.report(ctx, svc, claimed, p, done)
	for _, group := range c.carriers.of(string(svc.UID)) {
		c.add(groupKey(group)) // it left, and may be served here now
	}
	if now, err := c.services.Services(svc.Namespace).Get(svc.Name); err == nil && c.keyOf(now) != nameOf(svc) {
		c.former.Store(svc.UID, true) // it shares meanwhile
		c.add(c.keyOf(now))
	}
	return notes, err
}

// trialLook is how soon a health check on trial is looked at again when its verdict is due, and
// targets whose turn has come.
const trialLook = 15 * time.Second

// report writes what became of a plan.
func (c *Controller) report(ctx context.Context, svc, claimed *corev1.Service, p Plan, done outcome) ([]lb.Note, error) {
	if done.Seen && done.State.Exists() && !done.memory.open() {
		done.Notes = slices.Concat(done.Notes, c.targetsHealth(svc, done.Spec, done.State, p.idle()))
	}
	told := telling{notes: done.Notes, status: claimed.Status.LoadBalancer, memory: done.memory}
	switch {
	case p.Refused: // how the load balancer is to be shown is among what cannot be used
	case done.Transient != nil && len(c.carriers.of(string(svc.UID))) > 0:
		// The group that it comes from serves it while it shows the addresses there.
	case done.Seen && done.State.Exists():
		told.status = ingressStatus(done.Spec, done.State)
	case lost(claimed, done) && !c.surveyed.Load():
		c.queue.AddAfter(nameOf(svc), trialLook) // it is not known yet whether it shares one
	case lost(claimed, done) && len(c.carriers.of(string(svc.UID))) == 0:
		told.status = corev1.LoadBalancerStatus{}
	}
	told.managed = hadManaged(claimed) && (p.Refused || p.Spec.Managed != nil || done.Transient != nil || rejected(done.Notes))
	if done.Transient != nil && (len(done.Notes) == len(p.Notes) || condition(done.Notes).Status == metav1.ConditionTrue) {
		// Nothing new to say yet, and nothing is accepted that is not there; but addresses that are
		// can be used.
		updated := remembering(claimed, done.memory)
		updated.Status.LoadBalancer = told.status
		_, err := c.patch(ctx, claimed, updated)
		return nil, errors.Join(done.Transient, err)
	}
	err := c.tell(ctx, svc, claimed, told)
	if err == nil {
		c.announceHealed(svc, done.State)
	}
	return done.Notes, errors.Join(done.Transient, err)
}

// lost reports whether the addresses that the Service shows lead nowhere: its load balancer was
// ours, is gone, and will not be back soon. Without proof they stay, for they may be those of a
// load balancer that works: another controller's, before this one takes over, or ours under another
// cluster's name.
func lost(svc *corev1.Service, o outcome) bool {
	foreign := slices.ContainsFunc(o.Notes, func(n lb.Note) bool { return n.Reason == lb.ReasonNotOwned })
	return o.Seen && !o.State.Exists() && o.Transient == nil && !foreign && served(svc)
}

func rejected(notes []lb.Note) bool {
	return slices.ContainsFunc(notes, func(n lb.Note) bool { return n.Reason == reasonRejected })
}

// tell writes condition and status, then announces what is new since the Service was read.
func (c *Controller) tell(ctx context.Context, read, latest *corev1.Service, t telling) error {
	_, err := c.patch(ctx, latest, told(latest, t))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.announce(read, t.notes)
	}
	return err
}

// cleanup removes the load balancer of a Service that wants none of us any more, then lets the
// Service go.
func (c *Controller) cleanup(ctx context.Context, svc *corev1.Service) ([]lb.Note, error) {
	left, notes, err := c.dispose(ctx, svc, nodeDelay, false)
	if left && err == nil {
		c.announceLeft(svc)
	}
	return notes, err
}

// dispose is cleanup, and reports whether there was no load balancer to be deleted. A Service that
// shares one leaves that first: its group is looked at after that time. Proven is that of belongings.
func (c *Controller) dispose(ctx context.Context, svc *corev1.Service, after time.Duration, proven bool) (left bool, notes []lb.Note, err error) {
	// What the Hetzner controller made for a Service that is another implementation's now is
	// theirs.
	belongings := belongings{Peers: !c.handedOver(svc), Certificates: hadManaged(svc), Proven: proven}
	existed, err := c.remove(ctx, c.owner(svc), belongings)
	var shares *sharesError
	if errors.As(err, &shares) {
		c.leave(svc, shares.groups, after)
		return false, nil, nil
	}
	if err == nil {
		err = c.close(ctx, svc)
	}
	if err == nil && existed {
		c.recorder.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
	}
	if err == nil {
		return !existed, nil, c.release(ctx, svc)
	}
	err = fmt.Errorf("removing the load balancer: %w", err)
	if note, known := noteOf(err, lb.Spec{}); known {
		notes := []lb.Note{note}
		return false, notes, c.tell(ctx, svc, svc, telling{notes: notes, status: svc.Status.LoadBalancer, memory: recall(svc), managed: hadManaged(svc)})
	}
	return false, nil, err
}

// announceLeft says that a Service went and no load balancer with it, where its user might think
// otherwise.
func (c *Controller) announceLeft(svc *corev1.Service) {
	none := fmt.Sprintf("No load balancer with the labels of this Service and of cluster %q exists, so none was deleted", c.defaults.Cluster)
	switch {
	case foreign(svc):
		c.recorder.Event(svc, corev1.EventTypeWarning, lb.ReasonNotOwned, none+"; the load balancer of somebody else was left alone")
	case len(svc.Status.LoadBalancer.Ingress) > 0 && !c.handedOver(svc):
		c.recorder.Event(svc, corev1.EventTypeWarning, lb.ReasonNotOwned, none+"; whatever answers at "+addresses(svc)+" was left alone")
	}
}
