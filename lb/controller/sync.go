package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// reasonRejected: the cloud refused a request, and says why.
const reasonRejected = "Rejected"

// sync reconciles one Service. The notes are what a person must look at; the error is what will be retried.
func (c *Controller) sync(ctx context.Context, key cache.ObjectName) (notes []lb.Note, err error) {
	cached, err := c.services.Services(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) {
		c.newest.forget(key)
		return nil, nil // gone; the finalizer made sure that nothing was left behind
	}
	if err != nil {
		return nil, fmt.Errorf("reading Service %s from the cache: %w", key, err)
	}
	switch svc := c.newest.of(cached).DeepCopy(); {
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
	if p.refused {
		return p.notes, c.tell(ctx, svc, svc, p.notes, svc.Status.LoadBalancer)
	}
	claimed, err := c.claim(ctx, svc)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	done := c.converge(ctx, p)
	if done.created {
		c.recorder.Event(svc, corev1.EventTypeNormal, "EnsuredLoadBalancer", "Ensured load balancer")
	}
	status := claimed.Status.LoadBalancer
	if done.seen {
		status = balancerStatus(done.spec, done.state)
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

// outcome is what became of a plan.
type outcome struct {
	spec      lb.Spec
	state     lb.State
	seen      bool // state is what the cloud has
	created   bool
	notes     []lb.Note
	transient error
}

// add sorts an error into what a person must mend and what is worth trying again. A refused target is both:
// a server that joins the network a moment later is taken.
func (o *outcome) add(err error) {
	if err == nil {
		return
	}
	note, known := noteOf(err, o.spec)
	if known {
		o.notes = append(o.notes, note)
	}
	var rejected *lb.RejectedError
	if !known || errors.As(err, &rejected) && rejected.Target {
		o.transient = errors.Join(o.transient, err)
	}
}

// converge is read, diff, and only the differing calls.
func (c *Controller) converge(ctx context.Context, p plan) outcome {
	o := outcome{spec: p.spec, notes: p.notes}
	before, err := c.backend.Observe(ctx, p.spec.Owner)
	if err != nil {
		o.add(fmt.Errorf("looking for the load balancer: %w", err))
		return o
	}
	p = p.against(before)
	o = outcome{spec: p.spec, state: before, seen: true, notes: p.notes}
	moved, errs := c.run(ctx, before, lb.Diff(p.spec, before))
	if !before.Exists() && refusedTarget(errs) {
		moved, errs = c.createBare(ctx, p.spec)
	}
	for _, err := range errs {
		o.add(err)
	}
	if moved {
		if o.state, err = c.backend.Observe(ctx, p.spec.Owner); err != nil {
			o.seen = false
			o.add(fmt.Errorf("reading the load balancer again: %w", err))
		}
		o.created = !before.Exists() && o.state.Exists()
	}
	return o
}

// createBare creates a load balancer without targets and then adds each by itself: one bad target fails a
// creation as a whole, but nothing else.
func (c *Controller) createBare(ctx context.Context, spec lb.Spec) (addresses bool, errs []error) {
	bare := spec
	bare.Targets = nil
	if _, errs := c.run(ctx, lb.State{}, lb.Diff(bare, lb.State{})); len(errs) > 0 {
		return false, errs
	}
	have, err := c.backend.Observe(ctx, spec.Owner)
	if err != nil {
		return true, []error{fmt.Errorf("reading the new load balancer: %w", err)}
	}
	if !have.Exists() {
		return true, []error{fmt.Errorf("load balancer %q is not there after its creation", spec.Name)}
	}
	_, errs = c.run(ctx, have, lb.Diff(spec, have))
	return true, errs
}

func refusedTarget(errs []error) bool {
	for _, err := range errs {
		var rejected *lb.RejectedError
		if errors.As(err, &rejected) && rejected.Target {
			return true
		}
	}
	return false
}

// run executes ops in their order, past those whose failure concerns nothing but themselves. It reports
// whether the addresses of the load balancer may have changed.
func (c *Controller) run(ctx context.Context, have lb.State, ops []lb.Op) (addresses bool, errs []error) {
	logger := klog.FromContext(ctx)
	for _, op := range ops {
		err := c.backend.Apply(ctx, have, op)
		if err == nil {
			logger.Info("Changed load balancer", "loadBalancer", have.ID, "operation", op.String())
			c.metrics.ops.WithLabelValues(lb.Kind(op), resultDone).Inc()
			addresses = addresses || lb.ChangesAddresses(op)
			continue
		}
		result := resultFailed
		if _, known := noteOf(err, lb.Spec{}); known {
			result = resultRefused
		}
		c.metrics.ops.WithLabelValues(lb.Kind(op), result).Inc()
		errs = append(errs, fmt.Errorf("%s: %w", op, err))
		if !lb.Independent(op) || ctx.Err() != nil {
			break
		}
	}
	return addresses, errs
}

// noteOf makes a note of an error that only a person can mend.
func noteOf(err error, spec lb.Spec) (lb.Note, bool) {
	note := lb.Note{Grade: lb.Error, Text: err.Error()}
	var rejected *lb.RejectedError
	switch {
	case errors.Is(err, lb.ErrNotOwned):
		note.Reason, note.Field, note.Value = lb.ReasonNotOwned, lb.AnnotationName, spec.Name
		note.Text += "; it is left alone: choose another name"
	case errors.Is(err, lb.ErrAmbiguous):
		note.Reason = lb.ReasonNotOwned
	case errors.Is(err, lb.ErrProtected), errors.As(err, &rejected):
		note.Reason = reasonRejected
	default:
		return lb.Note{}, false
	}
	return note, true
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
		return nil, c.release(ctx, svc)
	}
	err = fmt.Errorf("removing the load balancer: %w", err)
	if note, known := noteOf(err, lb.Spec{}); known {
		notes := []lb.Note{note}
		return notes, c.tell(ctx, svc, svc, notes, svc.Status.LoadBalancer)
	}
	return nil, err
}
