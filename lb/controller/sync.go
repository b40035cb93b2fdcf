package controller

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/underlay-ccm/underlay/lb"
)

// maxPasses limits the passes of a reconciliation: for a certificate, the creation, changes that
// only an existing load balancer supports, replacements of a refused move and of refused targets,
// the steps from nodes to pods, and a last plan.
const maxPasses = 10

// recheckAfter is the delay until results of health checks or of the cloud are read.
const recheckAfter = 15 * time.Second

// outcome is the result of a reconciliation.
type outcome struct {
	balancer
	plan    lb.Plan
	seen    bool // have was read from the cloud
	created bool
	acted   bool
	drifted bool // a periodic read queued the owner, and no difference was found yet
	removed []lb.Target
	opened  []int     // ports of new or changed listeners
	notes   []lb.Note // in addition to those of the plan
	survey  Survey    // the input of the plan
	// transient are errors to retry.
	transient error
	unwanted  bool       // a Service no longer exists or requests it
	claimed   lb.State   // a load balancer of another controller to take over
	found     []lb.State // by name, and by another controller's label
	// primaryIPs were looked up for the Service, once per reconciliation.
	primaryIPs []lb.PrimaryIP
	looked     bool
}

// add adds an error as a note if a user must fix it, else as transient.
func (o *outcome) add(err error) {
	if note, known := noteOf(err, o.plan.Spec); known {
		if serverMissing(err) && len(o.have.Targets) > 0 {
			note.Grade, note.Reason = lb.Warning, "" // an Event on the Node reports it
		}
		o.notes = append(o.notes, note)
	} else if err != nil {
		o.transient = errors.Join(o.transient, err)
	}
}

func (c *Controller) survey() Survey {
	v := Survey{
		Nodes: c.allNodes(), Slices: c.slicesOf, States: c.states.all(), Defaults: c.cfg.Defaults,
		Now: time.Now(), damper: c.damper,
	}
	for _, svc := range c.allServices() {
		v.Services = append(v.Services, c.newest.Of(svc))
	}
	v.Defaults.Network, v.Defaults.DedicatedRanges = c.cfg.Network(), c.cfg.DedicatedRanges()
	return v
}

// sync reconciles a balancer: it reads, plans and executes ops until no op is planned. The cloud
// is read only if the cached state requires ops or is outdated. Notes are for the user; errors are
// retried.
func (c *Controller) sync(ctx context.Context, owner lb.Owner) ([]lb.Note, error) {
	o, read := &outcome{}, c.states.isExpired(owner)
	_, o.drifted = c.drifting.LoadAndDelete(owner)
	var unclaimed error
	for range maxPasses {
		fresh := read || c.states.fresh(owner)
		if read {
			if err := c.read(ctx, owner); err != nil {
				return nil, err
			}
			read = false
		}
		var err error
		o.survey = c.survey()
		o.balancer, err = o.survey.balancer(owner)
		if ended, err := c.unowned(ctx, o, err); ended || err != nil {
			return nil, err
		}
		if err := c.markDeparting(ctx, o); err != nil {
			return nil, err
		}
		if len(o.members) == 0 {
			if needed := len(o.departing) + len(o.left); needed > 0 && !fresh {
				read = true
				continue
			}
			return c.end(ctx, o)
		}
		if !fresh && !o.have.Exists() && slices.ContainsFunc(o.services, showsAny) {
			// Its addresses may belong to a load balancer.
			read = true
			continue
		}
		if unclaimed = c.claimAll(ctx, o); len(o.members) == 0 {
			return nil, unclaimed
		}
		if err := c.claimable(ctx, o); err != nil {
			o.add(err)
			break
		}
		o.seen = true
		again := c.pass(ctx, o, fresh)
		if !again {
			break
		}
		read = true
	}
	if o.unwanted {
		return nil, nil // the cache will be updated
	}
	notes, err := c.report(ctx, o)
	return notes, errors.Join(unclaimed, o.transient, err)
}

// read reads an owner's load balancers, with a list if other owners also wait, or if the Service
// shares load balancers.
func (c *Controller) read(ctx context.Context, owner lb.Owner) error {
	shares := owner.Group == "" && slices.ContainsFunc(c.states.carrying(owner), lb.State.Shared)
	if shares || c.states.many(owner) || c.queue.Len() >= c.states.pages() {
		return c.states.readAll(ctx, owner, false)
	}
	return c.states.read(ctx, owner)
}

// hopeless reports whether no member can have, or has had, a load balancer. Then no request is
// needed to report that.
func (o *outcome) hopeless() bool {
	alone := o.owner.Group == ""
	return !o.have.Exists() && !slices.ContainsFunc(o.members, func(m lb.Member) bool {
		hindered := len(m.Spec.Barred) > 0 || alone && len(m.Spec.Hindrances()) > 0
		return m.Holds || m.Parsed && !hindered
	})
}

// pass plans and executes ops, and reports whether another pass is needed.
func (c *Controller) pass(ctx context.Context, o *outcome, fresh bool) (again bool) {
	in := lb.Input{
		Owner: o.owner, Members: o.members, Have: o.have, Taken: o.taken, Rolling: true, Now: time.Now(),
		Unhealthy: c.unhealthy.look(o.owner.Key(), o.have.Waiting(), time.Now()),
	}
	reached := c.unreachable(ctx, o)
	in.Refused = func(op lb.Op) error {
		if err := reached(op); err != nil {
			return err
		}
		return c.backoff.of(o.owner, op)
	}
	if err := c.lookUp(ctx, &in, o); err != nil {
		o.add(err)
		return false
	}
	p := in.Plan()
	o.plan, o.notes, o.transient = p, nil, nil
	for _, err := range p.Held {
		o.add(err)
	}
	for _, n := range slices.Concat(p.Notes, partNotes(p)) {
		switch {
		case n.Reason == lb.ReasonPrimaryIPInUse && !o.have.Exists():
			o.transient = errors.Join(o.transient, errors.New("a primary IP is in use, and looked at again"))
		case n.Reason == lb.ReasonCertificatePending:
			c.recheck(o.owner, recheckAfter)
		}
	}
	if c.ends(o) {
		p.Ops = []lb.Op{lb.Delete{}}
	}
	ops, held := c.due(o.owner, p.Ops)
	for _, err := range held {
		o.add(err)
	}
	switch {
	case len(ops) == 0:
		if p.Waits {
			c.recheck(o.owner, recheckAfter)
		}
		return false
	case !fresh:
		return true // no write is based on an old read
	}
	if o.drifted && o.have.Exists() {
		c.metrics.drifted.Inc()
	}
	o.drifted = false
	if !o.acted {
		if wait := c.damper.change(o.owner); wait > 0 {
			c.queue.AddAfter(o.owner, wait)
			return false
		}
	}
	o.acted = true
	return c.act(ctx, o, ops)
}

func partNotes(p lb.Plan) (notes []lb.Note) {
	for _, part := range p.Parts {
		notes = append(notes, part.Notes...)
	}
	return notes
}

// act executes ops, and reports whether another pass is needed.
func (c *Controller) act(ctx context.Context, o *outcome, ops []lb.Op) (again bool) {
	create, creates := ops[0].(lb.Create)
	if !o.have.Exists() && !proves(ops[0]) {
		if err := c.checkProject(ctx); err != nil {
			o.seen = false
			o.add(err)
			return false
		}
	}
	if creates {
		if wanted, err := c.stillWanted(ctx, o); !wanted {
			o.unwanted = err == nil
			o.add(err)
			return false
		}
	}
	if !creates && (o.plan.Spec.PodTargets || slices.ContainsFunc(ops, addsPod)) {
		if err := c.allowAccess(ctx, o.services[0], o.accessBefore()); err != nil {
			o.add(err)
			return false
		}
	}
	var r acted
	if creates {
		r = c.create(ctx, o.owner, create)
	} else {
		r = c.run(ctx, o.owner, o.have, ops)
	}
	if len(r.errs) == 0 {
		c.states.wrote(o.owner, o.have.ID, ops)
		o.opened = append(o.opened, r.opened...)
	} else {
		c.states.expire(o.owner)
	}
	for _, svc := range o.departing {
		c.enqueue(c.owner(svc))
	}
	o.removed = append(o.removed, r.removed...)
	if r.freed {
		c.nameFreed(o)
	}
	for _, err := range r.errs {
		o.add(err)
	}
	if _, deleted := ops[0].(lb.Delete); deleted && len(r.errs) == 0 {
		return c.deleted(ctx, o)
	}
	if o.plan.Waits && o.transient == nil {
		c.recheck(o.owner, recheckAfter)
	}
	if creates && len(r.errs) == 0 {
		o.created = true
	}
	if slices.ContainsFunc(r.errs, hasSubstitute) {
		return true
	}
	return (r.moved || o.plan.Again) && len(r.errs) == 0 ||
		creates && len(r.errs) > 0 && c.claimsByName(ctx, o)
}

// hasSubstitute reports whether the next plan differs because of a refused operation: it has
// another address, the part that the current type has room for, or no node without a server.
func hasSubstitute(err error) bool {
	var failed *opError
	if !refusal(err) || !errors.As(err, &failed) {
		return false
	}
	switch failed.op.(type) {
	case lb.ChangeType, lb.AttachNetwork:
		return true
	}
	return serverMissing(err)
}

// addsPod reports whether an op adds a pod, even if the Service could not be parsed.
func addsPod(op lb.Op) bool {
	add, ok := op.(lb.AddTarget)
	return ok && add.Target.Pod()
}

// nameFreed queues the balancers that wait for a name.
func (c *Controller) nameFreed(o *outcome) {
	for _, owner := range c.backoff.reset(isNotOwned) {
		c.enqueue(owner)
	}
	for _, svc := range slices.Concat(o.services, o.left) {
		if key := c.keyOf(svc); key != o.owner {
			c.enqueue(key)
		}
	}
}

// recheck expires the reads of an owner and queues it, both after a delay.
func (c *Controller) recheck(owner lb.Owner, after time.Duration) {
	after = max(after, time.Second)
	c.states.expireAfter(owner, after)
	c.queue.AddAfter(owner, after)
}

// enqueue expires the reads of an owner and queues it. Services that share a load balancer often
// change together, so they are batched.
func (c *Controller) enqueue(owner lb.Owner) {
	c.states.expire(owner)
	if owner.Group != "" {
		c.queue.AddAfter(owner, nodeDelay)
		return
	}
	c.queue.Add(owner)
}
