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

// reasonRejected: the cloud refused a request, and says why.
const reasonRejected = "Rejected"

// actor carries out what plans ask for.
type actor struct {
	backend lb.Backend
	backoff *backoff
	// done is told of every op that was tried, and its result as a label's value.
	done func(op lb.Op, result string)
	// checkProject returns an error unless the cloud is the cluster's own project.
	checkProject func(context.Context) error
}

// acted is what became of a list of ops.
type acted struct {
	moved   bool // what there is must be read again
	errs    []error
	removed []lb.Target
	opened  []int // ports whose targets are to be judged anew
	freed   bool  // a name may be free now
}

// due returns the ops that the cloud may be asked for now, and why not for the others. What waits
// for one of these, see [lb.Waits], waits too.
func (a actor) due(owner lb.Owner, ops []lb.Op) (due []lb.Op, held []error) {
	stuck := false
	for _, op := range ops {
		if stuck && lb.Waits(op) {
			continue
		}
		err := a.backoff.of(owner, op)
		if err == nil {
			due = append(due, op)
			continue
		}
		held = append(held, err)
		if !lb.Independent(op) {
			break
		}
		stuck = stuck || lb.HoldsUp(op)
	}
	return due, held
}

// runDue executes the ops that are due; the others are errors.
func (a actor) runDue(ctx context.Context, owner lb.Owner, have lb.State, ops []lb.Op) acted {
	due, held := a.due(owner, ops)
	r := a.run(ctx, owner, have, due)
	r.errs = slices.Concat(held, r.errs)
	return r
}

// run executes ops that are due in their order, past those whose failure concerns nothing but
// themselves.
func (a actor) run(ctx context.Context, owner lb.Owner, have lb.State, ops []lb.Op) acted {
	var r acted
	stuck := false // what others wait for failed
	stopping := ctx
	longer, cancel := outliving(ctx)
	defer cancel()
	for len(ops) > 0 {
		n := max(1, together(ops))
		next := slices.DeleteFunc(slices.Clone(ops[:n]), func(op lb.Op) bool { return stuck && lb.Waits(op) })
		ops = ops[n:]
		switch {
		case len(next) == 0:
			continue
		case len(next) > 1:
			for i, err := range a.backend.ApplyTargets(ctx, have, next) {
				a.report(ctx, have, next[i], err)
				r.take(a.backoff, owner, next[i], err, refusal(err))
			}
			if ctx.Err() != nil {
				return r
			}
			continue
		}
		op := next[0]
		if _, swap := lb.SwapOf(op); swap {
			if err := stopping.Err(); err != nil { // what is not begun is not missed
				r.errs = append(r.errs, fmt.Errorf("%s: %w", lb.Title(op), err))
				return r
			}
			held, release := leadership.Hold(longer)
			defer release() // with what the swap dropped and comes after it
			ctx = held
		}
		err, final, undone := a.carryOut(ctx, have, op)
		if r.take(a.backoff, owner, op, err, final); undone != nil {
			r.errs = append(r.errs, undone)
		}
		if err != nil && (!lb.Independent(op) || ctx.Err() != nil) {
			return r
		}
		stuck = stuck || err != nil && lb.HoldsUp(op)
	}
	return r
}

// together is how many of the first ops can be done in one go: those that add or remove a target.
func together(ops []lb.Op) int {
	for i, op := range ops {
		switch op.(type) {
		case lb.AddTarget, lb.RemoveTarget:
		default:
			return i
		}
	}
	return len(ops)
}

// take takes in what became of an op.
func (r *acted) take(b *backoff, owner lb.Owner, op lb.Op, err error, final bool) {
	_, retries := op.(lb.RetryCertificate)
	if err != nil {
		err = &opError{op: op, err: err, final: final || retries}
		if r.errs = append(r.errs, err); final || retries { // each attempt counts
			b.record(owner, op, err)
		}
		return
	}
	b.succeeded(owner, op)
	switch op := op.(type) {
	case lb.RemoveTarget:
		r.removed = append(r.removed, op.Target)
	case lb.AddListener:
		r.opened = append(r.opened, op.Listener.Port)
	case lb.UpdateListener:
		r.opened = append(r.opened, op.Listener.Port)
	case lb.Rename, lb.Delete:
		r.freed = true
	}
	r.moved = r.moved || lb.NeedsLook(op)
}

// opError is why an op failed.
type opError struct {
	op    lb.Op
	err   error
	final bool // it is not repeated before its time
}

func (e *opError) Error() string { return fmt.Sprintf("%s: %v", lb.Title(e.op), e.err) }

func (e *opError) Unwrap() error { return e.err }

// errTriedToday: a certificate that could not be obtained is tried again later.
var errTriedToday = errors.New("tried again once a day")

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
	case lb.Rename:
		return spec.Deciders[lb.AnnotationName]
	}
	return ""
}

// carryOut does an op, and a swap as a whole: what it took is put back at once when the other
// cannot be had. The failure is final if the cloud refused what was to be given, or accepted it and
// failed: finding out again takes away again. What cannot be put back is missing, and undone says
// so.
func (a actor) carryOut(ctx context.Context, have lb.State, op lb.Op) (err error, final bool, undone error) {
	swap, ok := lb.SwapOf(op)
	if !ok {
		err = a.apply(ctx, have, op)
		return err, refusal(err), nil
	}
	if err := a.apply(ctx, have, swap.Take); err != nil {
		return err, refusal(err), nil
	}
	if err = a.apply(ctx, have, swap.Give); err == nil {
		return nil, false, nil
	}
	for _, undo := range swap.Undo {
		if err := a.apply(ctx, have, undo); err != nil {
			err = fmt.Errorf("putting back what was there: %w", &opError{op: undo, err: err})
			undone = errors.Join(undone, err)
		}
	}
	return err, refusal(err) || errors.Is(err, lb.ErrFailed), undone
}

// finishing is how long a process that stops takes at most to put something in the place of what it
// took away: until another one begins, targets would be missing.
const finishing = 15 * time.Second

// outliving is a context that ends a while after the one it comes from.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(finishing, cancel) })
	return longer, func() { stop(); cancel() }
}

func (a actor) apply(ctx context.Context, have lb.State, op lb.Op) error {
	err := a.backend.Apply(ctx, have, op)
	if errors.Is(err, lb.ErrGone) { // as it should be, in the right project
		err = a.checkProject(ctx)
	}
	a.report(ctx, have, op, err)
	return err
}

// report counts an op, and logs what was done.
func (a actor) report(ctx context.Context, have lb.State, op lb.Op, err error) {
	result := resultDone
	switch {
	case refusal(err):
		result = resultRefused
	case err != nil:
		result = resultFailed
	default:
		klog.FromContext(ctx).Info("Changed load balancer", "loadBalancer", have.ID, "operation", op.String())
	}
	a.done(op, result)
}

// create makes the load balancer. One bad target fails a creation as a whole, but nothing else, so
// without targets it is tried again; the next pass adds each by itself.
func (a actor) create(ctx context.Context, owner lb.Owner, op lb.Create) acted {
	r := a.run(ctx, owner, lb.State{}, []lb.Op{op})
	if !slices.ContainsFunc(r.errs, isRefusedTarget) {
		return r
	}
	a.backoff.succeeded(owner, op)
	if err := a.checkProject(ctx); err != nil {
		return acted{errs: []error{err}}
	}
	op.Spec.Targets = nil
	return a.run(ctx, owner, lb.State{}, []lb.Op{op})
}

// target is the one that an op that failed was to add; the zero Target if there is none.
func (e *opError) target() lb.Target {
	switch op := e.op.(type) {
	case lb.AddTarget:
		return op.Target
	case lb.ReplaceTarget:
		return op.New
	}
	return lb.Target{}
}

// nodeOf is the name of the node whose target the cloud refuses, or nothing.
func nodeOf(err error, spec lb.Spec) string {
	var failed *opError
	if !errors.As(err, &failed) {
		return ""
	}
	return spec.NodeOf(failed.target())
}

// missingServer is the server that the cloud does not have, of a target that it refuses; 0: it refuses
// for another reason.
func missingServer(err error) int64 {
	var failed *opError
	var rejected *lb.RejectedError
	if !errors.As(err, &failed) || !errors.As(err, &rejected) || rejected.Code != lb.CodeNotFound {
		return 0
	}
	if t := failed.target(); !t.Pod() {
		return t.Server
	}
	return 0
}

func refusal(err error) bool {
	_, known := noteOf(err, lb.Spec{})
	return err != nil && known
}

// noteOf makes a note of an error that only a person can mend.
func noteOf(err error, spec lb.Spec) (lb.Note, bool) {
	if err == nil {
		return lb.Note{}, false
	}
	note := lb.Note{Grade: lb.Error, Text: err.Error(), About: about(err, spec)}
	if name := nodeOf(err, spec); name != "" {
		note.Text = fmt.Sprintf("Node %s: %s", name, note.Text)
	}
	var rejected *lb.RejectedError
	var failed *opError
	switch {
	case isNotOwned(err):
		note.Reason, note.Field, note.Value = lb.ReasonNotOwned, lb.AnnotationName, spec.Name
		note.Text += "; it is left alone: choose another name"
	case errors.Is(err, lb.ErrAmbiguous):
		note.Reason = lb.ReasonNotOwned
	case errors.Is(err, lb.ErrProtected), errors.As(err, &rejected), errors.Is(err, errTriedToday),
		errors.As(err, &failed) && failed.final:
		note.Reason = reasonRejected
	default:
		return lb.Note{}, false
	}
	return note, true
}
