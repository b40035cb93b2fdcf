package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// reasonRejected: the cloud refused a request, and says why.
const reasonRejected = "Rejected"

// sync reconciles one Service. The notes are what a person must look at; the error is what will be retried.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) (notes []lb.Note, err error) {
	cached, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		return nil, nil // gone; the finalizer made sure that nothing was left behind
	}
	if err != nil {
		return nil, fmt.Errorf("reading Service %s from the cache: %w", key, err)
	}
	switch svc := c.newest.Of(cached).DeepCopy(); {
	case c.wants(svc):
		return c.ensure(ctx, svc)
	case c.needsCleanup(svc):
		return c.cleanup(ctx, svc)
	}
	return nil, nil
}

// ensure makes the load balancer be what the Service asks for, and tells how it went.
func (c *Controller) ensure(ctx context.Context, svc *corev1.Service) ([]lb.Note, error) {
	p, err := c.plan(svc)
	if err != nil {
		return nil, err
	}
	// Without the finalizer nothing was ever created: a Service that is refused from the beginning costs
	// no request.
	if p.refused && !helpers.HasLBFinalizer(svc) {
		return p.notes, c.tell(ctx, svc, svc, p.notes, svc.Status.LoadBalancer)
	}
	claimed := svc
	if !p.refused {
		if claimed, err = c.claim(ctx, svc); apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	done := c.converge(ctx, svc, p)
	if done.unwanted {
		return nil, nil // the cache will learn of it
	}
	if done.created {
		c.recorder.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	status := claimed.Status.LoadBalancer
	switch {
	case p.refused: // how the load balancer is to be shown is among what cannot be used
	case done.seen && done.state.Exists():
		status = balancerStatus(done.spec, done.state)
	case done.lost(claimed):
		status = corev1.LoadBalancerStatus{}
	}
	if done.transient != nil && len(done.notes) == len(p.notes) {
		// Nothing new to say yet; but addresses that are there can be used.
		updated := claimed.DeepCopy()
		updated.Status.LoadBalancer = status
		_, err := c.patch(ctx, claimed, updated)
		return nil, errors.Join(done.transient, err)
	}
	return done.notes, errors.Join(done.transient, c.tell(ctx, svc, claimed, done.notes, status))
}

// lost reports whether the addresses that the Service shows lead nowhere: its load balancer was ours, is gone,
// and will not be back soon. Without proof they stay, for they may be those of a load balancer that works:
// another controller's, before this one takes over, or ours under another cluster's name.
func (o outcome) lost(svc *corev1.Service) bool {
	foreign := slices.ContainsFunc(o.notes, func(n lb.Note) bool { return n.Reason == lb.ReasonNotOwned })
	return o.seen && !o.state.Exists() && o.transient == nil && !foreign && served(svc)
}

// tell writes condition and status, then announces what is new since the Service was read.
func (c *Controller) tell(ctx context.Context, read, latest *corev1.Service, notes []lb.Note, status corev1.LoadBalancerStatus) error {
	_, err := c.patch(ctx, latest, told(latest, notes, status))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil {
		c.announce(read, notes)
	}
	return err
}

// cleanup removes the load balancer of a Service that wants none of us any more, then lets the Service go.
func (c *Controller) cleanup(ctx context.Context, svc *corev1.Service) ([]lb.Note, error) {
	have, err := c.backend.Observe(ctx, c.owner(svc))
	if err == nil && have.Exists() {
		_, errs := c.run(ctx, have, []lb.Op{lb.Delete{}})
		if err = errors.Join(errs...); err == nil {
			c.recorder.Event(svc, corev1.EventTypeNormal, "DeletedLoadBalancer", "Deleted load balancer")
		}
	}
	if err == nil {
		err := c.release(ctx, svc)
		if err == nil && !have.Exists() {
			c.announceLeft(svc)
		}
		return nil, err
	}
	err = fmt.Errorf("removing the load balancer: %w", err)
	if note, known := noteOf(err, lb.Spec{}); known {
		notes := []lb.Note{note}
		return notes, c.tell(ctx, svc, svc, notes, svc.Status.LoadBalancer)
	}
	return nil, err
}

// announceLeft says that a Service went and no load balancer with it, where its user might think otherwise.
func (c *Controller) announceLeft(svc *corev1.Service) {
	none := fmt.Sprintf("No load balancer with the labels of this Service and of cluster %q exists, so none was deleted", c.defaults.Cluster)
	switch {
	case foreign(svc):
		c.recorder.Event(svc, corev1.EventTypeWarning, lb.ReasonNotOwned, none+"; the load balancer of somebody else was left alone")
	case len(svc.Status.LoadBalancer.Ingress) > 0 && !c.handedOver(svc):
		c.recorder.Event(svc, corev1.EventTypeWarning, lb.ReasonNotOwned, none+"; whatever answers at "+addresses(svc)+" was left alone")
	}
}
