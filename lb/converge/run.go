package converge

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// ran is what became of a list of ops.
type ran struct {
	moved bool // what there is must be read again
	errs  []error
	// held are refusals that are remembered, so that trying again is not left to the caller; retry is the
	// shortest time after which one is tried.
	held  []error
	retry time.Duration
	// unchanged are the ports whose listeners the cloud refused to change.
	unchanged []int
	// refused are aims that the cloud refused, so that what was there before is back, and why.
	refused map[string]error
}

// run executes ops in their order, past those whose failure concerns nothing but themselves.
func (c Converger) run(ctx context.Context, have lb.State, ops []lb.Op) ran {
	r := ran{refused: make(map[string]error)}
	stuck := false // what others wait for failed
	stopping := ctx
	longer, cancel := outliving(ctx)
	defer cancel()
	for _, op := range ops {
		if stuck && lb.Waits(op) {
			continue
		}
		if _, swap := op.(lb.Swap); swap {
			if err := stopping.Err(); err != nil { // what is not begun is not missed
				r.errs = append(r.errs, fmt.Errorf("%s: %w", lb.Title(op), err))
				return r
			}
			ctx = longer
		}
		if add, ok := op.(lb.AddTarget); ok {
			if why := c.Refusals.begin(ctx, add.Target); why != nil {
				r.held = append(r.held, why)
				continue
			}
		}
		err, final := c.carryOut(ctx, have, op)
		if r.remember(c.Refusals, op, err) {
			continue
		}
		if err == nil {
			r.moved = r.moved || lb.NeedsLook(op)
			continue
		}
		err = fmt.Errorf("%s: %w", lb.Title(op), err)
		if aim := lb.Aim(op); final && aim != "" {
			r.refused[aim] = err
			return r
		}
		r.errs = append(r.errs, err)
		if update, ok := op.(lb.UpdateListener); ok && final {
			r.unchanged = append(r.unchanged, update.Listener.Port)
		}
		if !lb.Independent(op) || ctx.Err() != nil {
			return r
		}
		stuck = stuck || lb.HoldsUp(op)
	}
	return r
}

// remember keeps what the cloud said to the addition of a target, and reports whether that is a refusal
// which is remembered.
func (r *ran) remember(refusals *Refusals, op lb.Op, err error) bool {
	add, ok := op.(lb.AddTarget)
	if !ok {
		return false
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", lb.Title(op), err)
	}
	retry, held := refusals.record(add.Target, err)
	if held {
		r.held = append(r.held, err)
		if r.retry == 0 || retry < r.retry {
			r.retry = retry
		}
	}
	return held
}

// carryOut does an op, and a swap as a whole: what it took is put back at once when the other cannot be had.
// The failure is final if the cloud refused what was to be given, or took it on and failed: finding out again takes
// away again.
func (c Converger) carryOut(ctx context.Context, have lb.State, op lb.Op) (err error, final bool) {
	swap, ok := op.(lb.Swap)
	if !ok {
		err = c.apply(ctx, have, op)
		return err, refusal(err)
	}
	if err := c.apply(ctx, have, swap.Take()); err != nil {
		return err, refusal(err)
	}
	if err = c.apply(ctx, have, swap.Give()); err == nil {
		return nil, false
	}
	final = refusal(err) || errors.Is(err, lb.ErrFailed)
	for _, undo := range swap.Undo() {
		if undoErr := c.apply(ctx, have, undo); undoErr != nil {
			err = fmt.Errorf("%w; putting back what was there: %s: %v", err, lb.Title(undo), undoErr)
		}
	}
	return err, final
}

// finishing is how long a process that stops takes at most to put something in the place of what it took away: until
// another one begins, targets would be missing.
const finishing = 15 * time.Second

// outliving is a context that ends a while after the one it comes from.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-longer.Done():
		case <-time.After(finishing):
			cancel()
		}
	})
	return longer, func() { stop(); cancel() }
}

func refusal(err error) bool {
	if err == nil {
		return false
	}
	_, known := NoteOf(err, lb.Spec{})
	return known
}

// apply does one thing.
func (c Converger) apply(ctx context.Context, have lb.State, op lb.Op) error {
	err := c.Backend.Apply(ctx, have, op)
	switch {
	case err == nil:
		klog.FromContext(ctx).Info("Changed load balancer", "loadBalancer", have.ID, "operation", op.String())
		c.Done(op, Applied)
	case refusal(err):
		c.Done(op, Refused)
	default:
		c.Done(op, Failed)
	}
	return err
}

// Belongings are what may have to go with a Service beside the load balancer that carries its labels.
type Belongings struct {
	// Peers: the load balancer that the Hetzner controller made for the Service, and that was to be taken over.
	Peers bool
	// Certificates: managed ones.
	Certificates bool
}

// Find returns the load balancer that exact labels assign to an owner: ours, or else the Hetzner
// controller's.
func (c Converger) Find(ctx context.Context, owner lb.Owner, peers bool) (lb.State, error) {
	have, err := c.Backend.Observe(ctx, owner)
	if err != nil || have.Exists() || !peers {
		return have, err
	}
	return c.claim(ctx, lb.Spec{Owner: owner})
}

// Remove deletes what an owner has in the cloud; existed is true if that was a load balancer.
func (c Converger) Remove(ctx context.Context, owner lb.Owner, and Belongings) (existed bool, err error) {
	have, err := c.Find(ctx, owner, and.Peers)
	if err != nil {
		return false, err
	}
	var ops []lb.Op
	if have.Exists() {
		ops = append(ops, lb.Delete{})
	}
	if and.Certificates {
		all, err := c.Backend.Certificates(ctx)
		if err != nil {
			return have.Exists(), err
		}
		ops = append(ops, lb.Surplus(lb.Spec{Owner: owner}, all, have.ID)...)
	}
	return have.Exists(), errors.Join(c.run(ctx, have, ops).errs...)
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
