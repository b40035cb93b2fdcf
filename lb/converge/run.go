package converge

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// run executes ops in their order, past those whose failure concerns nothing but themselves. It reports
// whether what there is must be read again.
func (c Converger) run(ctx context.Context, have lb.State, ops []lb.Op) (moved bool, errs []error) {
	logger := klog.FromContext(ctx)
	stuck := make(map[int64]bool) // servers that could not be removed
	for _, op := range ops {
		// The cloud would say that it has this target, which tells nothing of how the server is reached.
		if add, ok := op.(lb.AddTarget); ok && stuck[add.Target.Server] {
			continue
		}
		err := c.Backend.Apply(ctx, have, op)
		if err == nil {
			logger.Info("Changed load balancer", "loadBalancer", have.ID, "operation", op.String())
			c.Done(op, Applied)
			moved = moved || lb.NeedsLook(op)
			continue
		}
		result := Failed
		if _, known := NoteOf(err, lb.Spec{}); known {
			result = Refused
		}
		c.Done(op, result)
		errs = append(errs, fmt.Errorf("%s: %w", lb.Title(op), err))
		if !lb.Independent(op) || ctx.Err() != nil {
			break
		}
		if remove, ok := op.(lb.RemoveTarget); ok {
			stuck[remove.Target.Server] = true
		}
	}
	return moved, errs
}

// Remove deletes what an owner has in the cloud; existed is true if that was a load balancer.
func (c Converger) Remove(ctx context.Context, owner lb.Owner, certificates bool) (existed bool, err error) {
	have, err := c.Backend.Observe(ctx, owner)
	if err != nil {
		return false, err
	}
	var ops []lb.Op
	if have.Exists() {
		ops = append(ops, lb.Delete{})
	}
	if certificates {
		all, err := c.Backend.Certificates(ctx)
		if err != nil {
			return have.Exists(), err
		}
		ops = append(ops, lb.Surplus(lb.Spec{Owner: owner}, all, have.ID)...)
	}
	_, errs := c.run(ctx, have, ops)
	return have.Exists(), errors.Join(errs...)
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

// NoteOf makes a note of an error that only a person can mend.
func NoteOf(err error, spec lb.Spec) (lb.Note, bool) {
	note := lb.Note{Grade: lb.Error, Text: err.Error()}
	var rejected *lb.RejectedError
	switch {
	case errors.Is(err, lb.ErrNotOwned):
		note.Reason, note.Field, note.Value = lb.ReasonNotOwned, lb.AnnotationName, spec.Name
		note.Text += "; it is left alone: choose another name"
	case errors.Is(err, lb.ErrAmbiguous):
		note.Reason = lb.ReasonNotOwned
	case errors.Is(err, lb.ErrProtected), errors.As(err, &rejected):
		note.Reason = ReasonRejected
	default:
		return lb.Note{}, false
	}
	return note, true
}
