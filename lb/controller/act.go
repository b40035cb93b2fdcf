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

const reasonRejected = "Rejected"

// actor executes the ops of plans.
type actor struct {
	backend lb.Backend
	backoff *backoff
	// done is called for every executed op with its result, a label value.
	done         func(op lb.Op, result string)
	checkProject func(context.Context) error
}

type acted struct {
	moved   bool // the load balancer must be read again
	errs    []error
	removed []lb.Target
	opened  []int // ports of new or changed listeners
	freed   bool  // a name may be available now
}

// due returns the ops that may be executed now, and the refusals of all other ops. Ops for which
// [lb.Waits] is true are omitted after a refused op that holds them up.
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

// runDue executes the ops that are due, and adds refusals of other ops to the errors.
func (a actor) runDue(ctx context.Context, owner lb.Owner, have lb.State, ops []lb.Op) acted {
	due, held := a.due(owner, ops)
	r := a.run(ctx, owner, have, due)
	r.errs = slices.Concat(held, r.errs)
	return r
}

// run executes ops in order. After a failed op it continues if the op is independent.
func (a actor) run(ctx context.Context, owner lb.Owner, have lb.State, ops []lb.Op) acted {
	var r acted
	stuck := false // an op that holds up later ops failed
	stopping := ctx
	longer, cancel := outliving(ctx)
	defer cancel()
	for len(ops) > 0 {
		n := max(1, together(ops))
		next := slices.DeleteFunc(slices.Clone(ops[:n]), func(op lb.Op) bool {
			return stuck && lb.Waits(op)
		})
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
			if err := stopping.Err(); err != nil { // nothing was removed yet
				r.errs = append(r.errs, fmt.Errorf("%s: %w", lb.Title(op), err))
				return r
			}
			held, release := leadership.Hold(longer)
			defer release() // after the next ops, which restore lost targets
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

// together returns the number of leading ops that add or remove a target; they run as a batch.
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

func (r *acted) take(b *backoff, owner lb.Owner, op lb.Op, err error, final bool) {
	_, retries := op.(lb.RetryCertificate)
	if err != nil {
		err = &opError{op: op, err: err, final: final || retries}
		if r.errs = append(r.errs, err); final || retries { // the cloud counts each attempt
			b.record(owner, op, err)
		}
		return
	}
	if retries { // the cloud may refuse it after Apply has returned
		b.record(owner, op, errTriedToday)
		r.moved = true
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

type opError struct {
	op    lb.Op
	err   error
	final bool // it is not repeated before its backoff ends
}

func (e *opError) Error() string { return fmt.Sprintf("%s: %v", lb.Title(e.op), e.err) }

func (e *opError) Unwrap() error { return e.err }

var errTriedToday = errors.New("tried again once a day")

// about returns the UID of the sharing Service that an error is about; "" if it is about all, or
// if the load balancer is not shared.
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

// carryOut executes an op. If the second step of a swap fails, the first is undone immediately.
// The failure is final if the cloud refused the second step, or accepted it and failed, because a
// retry would interrupt traffic again. undone is the error of a failed undo.
func (a actor) carryOut(
	ctx context.Context, have lb.State, op lb.Op,
) (err error, final bool, undone error) {
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
			err = fmt.Errorf("restoring the previous state: %w", &opError{op: undo, err: err})
			undone = errors.Join(undone, err)
		}
	}
	return err, refusal(err) || errors.Is(err, lb.ErrFailed), undone
}

// finishing limits how long a stopping process continues a swap, so that no target is missing
// until the next process starts.
const finishing = 15 * time.Second

// outliving returns a context that is canceled after ctx is done and finishing has passed.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(finishing, cancel) })
	return longer, func() { stop(); cancel() }
}

func (a actor) apply(ctx context.Context, have lb.State, op lb.Op) error {
	err := a.backend.Apply(ctx, have, op)
	if errors.Is(err, lb.ErrGone) { // success, in the right project
		err = a.checkProject(ctx)
	}
	a.report(ctx, have, op, err)
	return err
}

func (a actor) report(ctx context.Context, have lb.State, op lb.Op, err error) {
	result := resultDone
	switch {
	case refusal(err):
		result = resultRefused
	case err != nil:
		result = resultFailed
	default:
		klog.FromContext(ctx).Info("Changed load balancer", "loadBalancer", have.ID, "operation",
			op.String())
	}
	a.done(op, result)
}

// create creates the load balancer. A bad target fails the creation as a whole, so it is retried
// without targets; the next pass adds each target separately.
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

func (e *opError) target() lb.Target {
	switch op := e.op.(type) {
	case lb.AddTarget:
		return op.Target
	case lb.ReplaceTarget:
		return op.New
	}
	return lb.Target{}
}

// serverMissing reports whether a target was refused because its server does not exist.
func serverMissing(err error) bool {
	var failed *opError
	var rejected *lb.RejectedError
	if !errors.As(err, &failed) || !errors.As(err, &rejected) || rejected.Code != lb.CodeNotFound {
		return false
	}
	t := failed.target()
	return t.Server != 0 && !t.Pod()
}

func nodeOf(err error, spec lb.Spec) string {
	var failed *opError
	if !errors.As(err, &failed) {
		return ""
	}
	return spec.NodeOf(failed.target())
}

func refusal(err error) bool {
	_, known := noteOf(err, lb.Spec{})
	return err != nil && known
}

// noteOf returns a note if only a user can fix the error.
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
