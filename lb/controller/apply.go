package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/internal/leadership"
	"github.com/underlay-ccm/underlay/lb"
)

// ran is what became of a list of ops.
type ran struct {
	moved bool // what there is must be read again
	errs  []error
	// held are refusals that are remembered, so that trying again is not left to the caller; retry
	// is the shortest time after which one is tried.
	held  []error
	retry time.Duration
	// unchanged are the ports whose listeners the cloud refused to change.
	unchanged []int
	removed   []lb.Target
}

// run executes ops in their order, past those whose failure concerns nothing but themselves.
func (c converger) run(ctx context.Context, have lb.State, ops []lb.Op) ran {
	var r ran
	stuck := false // what others wait for failed
	stopping := ctx
	longer, cancel := outliving(ctx)
	defer cancel()
	for len(ops) > 0 {
		if n := together(ops); n > 1 {
			if stuck && slices.ContainsFunc(ops[:n], lb.Waits) {
				ops = slices.Concat(slices.DeleteFunc(slices.Clone(ops[:n]), lb.Waits), ops[n:])
				continue
			}
			c.runTogether(ctx, have, ops[:n], &r)
			if ops = ops[n:]; ctx.Err() != nil {
				return r
			}
			continue
		}
		op := ops[0]
		ops = ops[1:]
		if stuck && lb.Waits(op) {
			continue
		}
		if _, swap := op.(lb.Swap); swap {
			if err := stopping.Err(); err != nil { // what is not begun is not missed
				r.errs = append(r.errs, fmt.Errorf("%s: %w", lb.Title(op), err))
				return r
			}
			held, release := leadership.Hold(longer)
			defer release() // with what the swap dropped and comes after it
			ctx = held
		}
		key := lb.RefusedKey(have, op)
		if add, ok := op.(lb.AddTarget); ok && !add.Target.Pod() {
			if why := c.refusals.begin(ctx, key); why != nil {
				r.held = append(r.held, why)
				continue
			}
		}
		err, final := c.carryOut(ctx, have, op)
		held := r.take(c.refusals, key, op, err, final)
		if err == nil || held {
			stuck = stuck || held && lb.HoldsUp(op)
			continue
		}
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

// together is how many of the first ops can be done in one go.
func together(ops []lb.Op) int {
	n := slices.IndexFunc(ops, func(op lb.Op) bool { return !lb.OfTargets(op) })
	if n < 0 {
		return len(ops)
	}
	return n
}

// runTogether adds and removes targets.
func (c converger) runTogether(ctx context.Context, have lb.State, ops []lb.Op, r *ran) {
	var asked []lb.Op
	for _, op := range ops {
		if add, ok := op.(lb.AddTarget); ok && !add.Target.Pod() {
			if why := c.refusals.begin(ctx, lb.RefusedKey(have, op)); why != nil {
				r.held = append(r.held, why)
				continue
			}
		}
		asked = append(asked, op)
	}
	for i, err := range c.backend.ApplyTargets(ctx, have, asked) {
		c.report(ctx, have, asked[i], err)
		r.take(c.refusals, lb.RefusedKey(have, asked[i]), asked[i], err, refusal(err))
	}
}

// take takes in what became of an op, and reports whether it was refused and that is remembered.
func (r *ran) take(refusals *refusals, key string, op lb.Op, err error, final bool) (held bool) {
	if err != nil {
		err = &opError{op: op, err: err}
	}
	held = refusals != nil && key != "" && r.remember(refusals, key, op, err, final)
	if err != nil && !held {
		r.errs = append(r.errs, err)
		return false
	}
	if remove, ok := op.(lb.RemoveTarget); ok && err == nil {
		r.removed = append(r.removed, remove.Target)
	}
	r.moved = r.moved || lb.NeedsLook(op)
	return held
}

// opError is why an op failed.
type opError struct {
	op  lb.Op
	err error
}

func (e *opError) Error() string { return fmt.Sprintf("%s: %v", lb.Title(e.op), e.err) }

func (e *opError) Unwrap() error { return e.err }

// about is the UID of the Service that an error is about, among those that share a load balancer;
// empty: all of them, or there is but one.
func about(err error, spec lb.Spec) string {
	var failed *opError
	if spec.Owner.Group == "" || !errors.As(err, &failed) {
		return ""
	}
	switch op := failed.op.(type) {
	case lb.AddListener:
		return spec.PortOwners[op.Listener.Port]
	case lb.UpdateListener:
		return spec.PortOwners[op.Listener.Port]
	case lb.CreateCertificate:
		return op.Owner.UID
	case lb.ChangeType:
		return spec.Deciders[lb.AnnotationType]
	case lb.Update:
		return spec.Deciders[lb.AnnotationName]
	}
	return ""
}

// remember keeps what the cloud said to an op, and reports whether that is a refusal which is
// remembered. A target that is only added is asked for again soon; what takes something away first
// is not.
func (r *ran) remember(refusals *refusals, key string, op lb.Op, err error, final bool) bool {
	first := laterRetry
	add, adds := op.(lb.AddTarget)
	if adds {
		first, final = firstRetry, aboutServer(err)
	}
	pod := adds && add.Target.Pod()
	switch {
	case err == nil && pod:
		refusals.forget(key)
	case err == nil:
		refusals.accepted(key)
	case !final && pod:
	case !final:
		refusals.failed(key)
	default:
		var retry time.Duration
		if pod {
			retry = refusals.recordPod(key, err)
		} else {
			retry = refusals.record(key, err, first)
		}
		r.held = append(r.held, err)
		if r.retry == 0 || retry < r.retry {
			r.retry = retry
		}
		return true
	}
	return false
}

// carryOut does an op, and a swap as a whole: what it took is put back at once when the other
// cannot be had. The failure is final if the cloud refused what was to be given, or took it on and
// failed: finding out again takes away again.
func (c converger) carryOut(ctx context.Context, have lb.State, op lb.Op) (err error, final bool) {
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

// finishing is how long a process that stops takes at most to put something in the place of what it
// took away: until another one begins, targets would be missing.
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
	_, known := noteOf(err, lb.Spec{})
	return known
}

// apply does one thing.
func (c converger) apply(ctx context.Context, have lb.State, op lb.Op) error {
	err := c.backend.Apply(ctx, have, op)
	if errors.Is(err, lb.ErrGone) { // as it should be, in the right project
		err = c.doubted(ctx)
	}
	c.report(ctx, have, op, err)
	return err
}

// report counts an op, and logs what was done.
func (c converger) report(ctx context.Context, have lb.State, op lb.Op, err error) {
	result := resultDone
	switch {
	case refusal(err):
		result = resultRefused
	case err != nil:
		result = resultFailed
	default:
		klog.FromContext(ctx).Info("Changed load balancer", "loadBalancer", have.ID, "operation", op.String())
	}
	c.done(op, result)
}

// belongings are what may have to go with a Service beside the load balancer that carries its
// labels.
type belongings struct {
	// Peers: the load balancer that the Hetzner controller made for the Service, and that was to be
	// taken over.
	Peers bool
	// Certificates: managed ones.
	Certificates bool
	// Proven: the project is known to be the cluster's, so that it may have nothing of the Service.
	Proven bool
}

// sharesError: a Service shares load balancers, so that it has to leave their groups first.
type sharesError struct{ groups []string }

func (e *sharesError) Error() string { return fmt.Sprintf("it shares load balancers: %q", e.groups) }

// find returns the load balancer that exact labels assign to a Service alone: ours, or else the
// Hetzner controller's. Where it shares one, the error is a *sharesError.
func (c converger) find(ctx context.Context, owner lb.Owner, peers bool) (lb.State, error) {
	carrying, err := c.backend.Carrying(ctx, owner)
	if err != nil {
		return lb.State{}, err
	}
	own, shares := ownedBy(owner, carrying), &sharesError{}
	for _, s := range carrying {
		if s.Group() != "" {
			shares.groups = append(shares.groups, s.Group())
		}
	}
	switch {
	case len(shares.groups) > 0:
		return lb.State{}, shares
	case len(own) > 1:
		return lb.State{}, fmt.Errorf("load balancers %d and %d: %w", own[0].ID, own[1].ID, lb.ErrAmbiguous)
	case len(own) == 1:
		return own[0], nil
	case !peers:
		return lb.State{}, nil
	}
	return c.claimable(ctx, lb.Spec{Owner: owner})
}

// remove deletes what an owner has in the cloud; existed is true if that was a load balancer.
func (c converger) remove(ctx context.Context, owner lb.Owner, and belongings) (existed bool, err error) {
	have, err := c.find(ctx, owner, and.Peers)
	if err == nil && !have.Exists() && !and.Proven {
		err = c.doubted(ctx)
	}
	if err != nil {
		return false, err
	}
	var ops []lb.Op
	if have.Exists() {
		ops = append(ops, lb.Delete{})
	}
	if and.Certificates {
		all, err := c.backend.Certificates(ctx)
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

// noteOf makes a note of an error that only a person can mend.
func noteOf(err error, spec lb.Spec) (lb.Note, bool) {
	note := lb.Note{Grade: lb.Error, Text: err.Error(), About: about(err, spec)}
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
