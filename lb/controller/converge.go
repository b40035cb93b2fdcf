package controller

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// outcome is what became of a plan.
type outcome struct {
	spec      lb.Spec
	state     lb.State
	seen      bool // state is what the cloud has
	created   bool
	unwanted  bool // the Service that the plan was made for is no more
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
func (c *Controller) converge(ctx context.Context, svc *corev1.Service, p plan) outcome {
	o := outcome{spec: p.spec, notes: p.notes}
	before, err := c.backend.Observe(ctx, p.spec.Owner)
	if err != nil {
		o.add(fmt.Errorf("looking for the load balancer: %w", err))
		return o
	}
	p = p.against(before)
	o = outcome{spec: p.spec, state: before, seen: true, notes: p.notes}
	if !before.Exists() && len(p.ops) > 0 {
		wanted, err := c.stillWanted(ctx, svc)
		if o.unwanted = err == nil && !wanted; !wanted {
			o.add(err)
			return o
		}
	}
	moved, errs := c.run(ctx, before, p.ops)
	if !before.Exists() && refusedTarget(errs) {
		moved, errs = c.createBare(ctx, p.spec)
	}
	for _, err := range errs {
		o.add(err)
	}
	if moved {
		c.lookAgain(ctx, &o)
		o.created = !before.Exists() && o.state.Exists()
	}
	return o
}

// lookAgain reads the addresses after what may have changed them.
func (c *Controller) lookAgain(ctx context.Context, o *outcome) {
	state, err := c.backend.Observe(ctx, o.spec.Owner)
	switch {
	case err != nil:
		o.add(fmt.Errorf("reading the load balancer again: %w", err))
	case !state.Exists():
		o.add(fmt.Errorf("load balancer %q is not there after it was changed", o.spec.Name))
	}
	o.state, o.seen = state, err == nil
}

// stillWanted asks the API server itself, before a creation, whether the Service is still there and ours. A
// cache can be older than that: a new leader may fill it from an API server that lags behind, and a load
// balancer for a Service that is gone would be left for good.
func (c *Controller) stillWanted(ctx context.Context, svc *corev1.Service) (bool, error) {
	live, err := c.client.Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading Service %s before creating its load balancer: %w", klog.KObj(svc), err)
	}
	return live.UID == svc.UID && c.wants(live), nil
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
		return true, nil // said when its addresses are read
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
	stuck := make(map[int64]bool) // servers that could not be removed
	for _, op := range ops {
		// The cloud would say that it has this target, which tells nothing of how the server is reached.
		if add, ok := op.(lb.AddTarget); ok && stuck[add.Target.Server] {
			continue
		}
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
		errs = append(errs, fmt.Errorf("%s: %w", lb.Title(op), err))
		if !lb.Independent(op) || ctx.Err() != nil {
			break
		}
		if remove, ok := op.(lb.RemoveTarget); ok {
			stuck[remove.Target.Server] = true
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
