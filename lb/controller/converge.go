package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// reasonRejected: the cloud refused a request, and says why.
const reasonRejected = "Rejected"

// maxPasses bounds how often one call looks and acts: a certificate, a creation, what only an
// existing load balancer can get, what is done instead of a move and of other targets that the
// cloud refused, the steps from nodes to pods, and a last look.
const maxPasses = 8

// converger makes load balancers be what Services ask for: it reads what there is, lets package lb
// decide what differs, and executes only that. It writes nothing to the API server.
type converger struct {
	backend lb.Backend
	// done is told of every op that was tried, and its result as a label's value.
	done func(op lb.Op, result string)
	// refusals are remembered from one Service to the next; nil: none are.
	refusals *refusals
	// unhealthy remembers since when targets are not healthy.
	unhealthy *since[lb.Target]
	// doubt is [Config.Doubt].
	doubt func(context.Context) error
}

// hooks are what the caller has a say in. Each may be nil.
type hooks struct {
	// Wanted is asked before a creation whether the Service is still there.
	Wanted func(context.Context) (bool, error)
	// Remember stores a memory before what it is about is done.
	Remember func(context.Context, memory) error
	// Open lets nodes know what a plan with pods as targets needs, before it is carried out.
	Open func(context.Context, Plan, lb.State) error
}

// outcome is what became of a plan.
type outcome struct {
	Spec     lb.Spec
	State    lb.State
	Seen     bool // State is what the cloud has
	Created  bool
	Unwanted bool // the Service that the plan was made for is no more
	// Nodes are those that shall be targets.
	Nodes []lb.Node
	// Removed are the targets that were removed, but for those that come back at another address.
	Removed []lb.Target
	// addresses are looked for once.
	addresses primaryIPs
	memory    memory
	Notes     []lb.Note
	// Transient is what will pass, and must be tried again.
	Transient error
	// waits: more is to be done when the checks have judged what was done now.
	waits bool
	opens []int // the pods' ports that are to be reached
	acted bool  // something was to be done
	// members are what became of each Service, if they share.
	members []member
	// RetryTargets is after how long a target that was refused is to be asked for again; 0: none
	// is.
	RetryTargets time.Duration
}

// add sorts an error into what a person must mend and what is worth trying again. A refused target
// is both: a server that joins the network a moment later is taken.
func (o *outcome) add(err error) {
	note, known := noteOf(err, o.Spec)
	if known {
		o.Notes = append(o.Notes, note)
	}
	var rejected *lb.RejectedError
	if !known || errors.As(err, &rejected) && rejected.Target {
		o.Transient = errors.Join(o.Transient, err)
	}
}

// converge is read, diff, and only the differing calls.
func (c converger) converge(ctx context.Context, p Plan, hooks hooks) outcome {
	unseen := p.choose(lb.State{})
	have, err := c.look(ctx, unseen)
	if err != nil {
		o := outcome{Spec: unseen.Spec, Notes: unseen.Notes, memory: p.memory}
		o.add(err)
		return o
	}
	return c.convergeFrom(ctx, have, p, hooks)
}

// convergeFrom is converge where what there is has just been read.
func (c converger) convergeFrom(ctx context.Context, have lb.State, p Plan, hooks hooks) outcome {
	unseen := p.choose(lb.State{})
	o := outcome{Spec: unseen.Spec, Notes: unseen.Notes, memory: p.memory, State: have, Seen: true, members: p.members}
	for range maxPasses {
		if !c.pass(ctx, p, hooks, &o) {
			break
		}
	}
	o.Created = !have.Exists() && o.State.Exists()
	return o
}

// pass looks at the plan once more and does what is left; true if that may have left something
// else.
func (c converger) pass(ctx context.Context, p Plan, hooks hooks, o *outcome) (again bool) {
	p = p.choose(o.State)
	p.memory = o.memory // a pass before may have begun a trial
	certificates, err := c.certificates(ctx, p)
	if err != nil {
		o.add(err)
		return false
	}
	if err := c.lookForPrimaryIPs(ctx, p, o); err != nil {
		o.add(err)
		return false
	}
	p.addresses = o.addresses
	now := p.Against(o.State, certificates)
	o.Spec, o.Notes, o.Nodes, o.waits, o.opens, o.members = now.Spec, now.Notes, now.nodes, now.waits, now.opens, now.members
	if pending(now.Notes) {
		o.Transient = errors.Join(o.Transient, errors.New("the certificate is being obtained"))
	}
	if !o.State.Exists() && inUse(now.Notes) {
		o.Transient = errors.Join(o.Transient, errors.New("a primary IP is in use, and looked at again"))
	}
	if len(now.Ops) == 0 {
		o.memory = now.memory
		return false
	}
	if !o.State.Exists() && !proves(now.Ops[0]) {
		if err := c.doubted(ctx); err != nil {
			o.doubt(err)
			return false
		}
	}
	uid := types.UID(p.Spec.Owner.UID)
	if text := now.memory.text(uid); hooks.Remember != nil && text != "" && text != o.memory.text(uid) {
		if err := hooks.Remember(ctx, now.memory); err != nil {
			o.Transient = errors.Join(o.Transient, err)
			return false
		}
	}
	o.memory = now.memory
	_, creates := now.Ops[0].(lb.Create)
	if creates && hooks.Wanted != nil {
		if wanted, err := hooks.Wanted(ctx); !wanted {
			if o.Unwanted = err == nil; !o.Unwanted {
				o.add(err)
			}
			return false
		}
	}
	if creates {
		return c.create(ctx, now.Ops[0].(lb.Create), o)
	}
	if hooks.Open != nil && (now.Spec.PodTargets || slices.ContainsFunc(now.Ops, addsPod)) {
		if err := hooks.Open(ctx, now, o.State); err != nil {
			o.Transient = errors.Join(o.Transient, err)
			return false
		}
	}
	r := c.run(ctx, o.State, now.Ops)
	o.acted = true
	o.Removed = append(o.Removed, r.removed...)
	for _, err := range r.errs {
		o.add(err)
	}
	for _, err := range r.held {
		note, _ := noteOf(err, o.Spec)
		o.Notes = append(o.Notes, note)
	}
	if r.retry > 0 {
		o.RetryTargets = r.retry
	}
	o.memory.checks = o.memory.without(r.unchanged)
	return (r.moved || now.again) && c.lookAgain(ctx, o) && len(r.errs) == 0
}

// addsPod reports whether an op adds a pod, as it may for a Service of which nobody can read whether
// it wants that.
func addsPod(op lb.Op) bool {
	add, ok := op.(lb.AddTarget)
	return ok && add.Target.Pod()
}

func pending(notes []lb.Note) bool {
	for _, n := range notes {
		if n.Reason == lb.ReasonCertificatePending {
			return true
		}
	}
	return false
}

// look finds the Service's load balancer: its own, or one that may become its own.
func (c converger) look(ctx context.Context, p Plan) (lb.State, error) {
	have, err := c.backend.Observe(ctx, p.Spec.Owner)
	if err != nil {
		return lb.State{}, fmt.Errorf("looking for the load balancer: %w", err)
	}
	// Whoever takes over a Service finds addresses in its status, or a name that is taken; asking
	// every time would cost every new load balancer two requests.
	if have.Exists() || !p.Spec.Takeover.Adopt && !p.served {
		return have, nil
	}
	have, err = c.claimable(ctx, p.claimable())
	if err == nil && !have.Exists() && p.served {
		err = c.doubted(ctx)
	}
	return have, err
}

// claimable finds what may become the owner's: by the peer's label, and by the name if there is
// one.
func (c converger) claimable(ctx context.Context, spec lb.Spec) (lb.State, error) {
	found, err := c.backend.Candidates(ctx, spec.Owner, spec.Name)
	if err != nil {
		return lb.State{}, fmt.Errorf("looking for the load balancer: %w", err)
	}
	have, err := lb.Claim(spec, found)
	if have.Exists() {
		klog.FromContext(ctx).Info("Found load balancer of another controller", "loadBalancer", have.ID, "name", have.Name)
	}
	if err != nil {
		return have, fmt.Errorf("taking over: %w", err)
	}
	if have.Exists() && have.Labels[lb.LabelPeer] != spec.Owner.UID {
		if err := c.doubted(ctx); err != nil { // a name is anybody's
			return lb.State{}, err
		}
	}
	return have, nil
}

// create makes the load balancer. One bad target fails a creation as a whole, but nothing else, so
// without targets it is tried again; the next pass adds each by itself.
func (c converger) create(ctx context.Context, op lb.Create, o *outcome) (again bool) {
	errs := c.run(ctx, lb.State{}, []lb.Op{op}).errs
	if refusedTarget(errs) {
		if err := c.doubted(ctx); err != nil {
			o.doubt(err)
			return false
		}
		op.Spec.Targets = nil
		errs = c.run(ctx, lb.State{}, []lb.Op{op}).errs
	}
	if len(errs) > 0 && errors.Is(errs[0], lb.ErrNotOwned) && o.Spec.Owner.Group == "" {
		have, err := c.claimable(ctx, o.Spec)
		if o.State = have; have.Exists() {
			return true
		}
		if err != nil {
			errs[0] = err
		}
	}
	for _, err := range errs {
		o.add(err)
	}
	return len(errs) == 0 && c.lookAgain(ctx, o)
}

// lookAgain reads what there is after what may have changed it beyond what was asked for.
func (c converger) lookAgain(ctx context.Context, o *outcome) bool {
	state, err := c.backend.Observe(ctx, o.Spec.Owner)
	switch {
	case err != nil:
		err = fmt.Errorf("reading the load balancer again: %w", err)
	case !state.Exists() && o.State.Exists():
		err = fmt.Errorf("load balancer %q is not there after it was changed", o.Spec.Name)
	}
	if err != nil {
		o.add(err)
	}
	o.State, o.Seen = state, err == nil
	return err == nil
}

// certificates are looked at only by who has to do with them.
func (c converger) certificates(ctx context.Context, p Plan) ([]lb.Certificate, error) {
	if p.Refused || !p.needsCertificates() {
		return nil, nil
	}
	all, err := c.backend.Certificates(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking for certificates: %w", err)
	}
	return all, nil
}
