package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// maxPasses bounds how often one reconciliation reads, plans and acts: a certificate, a creation,
// what only an existing load balancer can get, what is done instead of a move and of other targets
// that the cloud refused, the steps from nodes to pods, and a last plan.
const maxPasses = 10

// recheckAfter is how soon it is looked again what the health checks, or the cloud, have made of
// what was done.
const recheckAfter = 15 * time.Second

// outcome is what became of a balancer.
type outcome struct {
	balancer
	plan    lb.Plan
	seen    bool // have is what the cloud has
	created bool
	acted   bool
	removed []lb.Target
	opened  []int     // ports whose targets are to be judged anew
	notes   []lb.Note // beside those of the plan
	survey  Survey    // what was planned for
	// missing are why nodes are no targets whose servers do not exist.
	missing map[int64]error
	// transient is what will pass, and must be tried again.
	transient error
	unwanted  bool       // a Service that it was planned for is no more
	claimed   lb.State   // of another controller's, which becomes ours
	found     []lb.State // by the name, and by another controller's label
	// primaryIPs are those that a Service names, which are looked for once in a reconciliation.
	primaryIPs []lb.PrimaryIP
	looked     bool
}

// add sorts an error into what a person must mend and what is worth trying again.
func (o *outcome) add(err error) {
	if server := missingServer(err); server != 0 {
		o.missing[server] = err
	} else if note, known := noteOf(err, o.plan.Spec); known {
		if other := o.namesake(); note.Reason == lb.ReasonNotOwned && other != "" {
			note.Text += fmt.Sprintf(", or share it with the Service %s, whose it is, by the annotation %s",
				other, lb.AnnotationShared)
		}
		o.notes = append(o.notes, note)
	} else if err != nil {
		o.transient = errors.Join(o.transient, err)
	}
}

// namesake is another Service whose load balancer has the name that is asked for, or nothing.
func (o *outcome) namesake() string {
	for _, s := range o.survey.States {
		if s.Name != o.plan.Spec.Name || s.ID == o.have.ID {
			continue
		}
		for _, svc := range o.survey.Services {
			carries := Owner(svc, o.survey.Defaults.Cluster).Carries(s.Labels)
			if carries && !slices.Contains(o.services, svc) {
				return klog.KObj(svc).String()
			}
		}
	}
	return ""
}

// noteMissing reports nodes without a server, by what was read after all that was done. An Event at
// the Node says that, so a load balancer falls short of what is asked for only without any target.
func (o *outcome) noteMissing() {
	servers := make(map[int64]bool)
	for server := range o.missing {
		servers[server] = true
	}
	if text := o.have.Serverless(o.plan.Nodes, servers); text != "" {
		o.notes = append(o.notes, lb.Note{Grade: lb.Warning, Text: text})
		return
	}
	for _, server := range slices.Sorted(maps.Keys(o.missing)) {
		note, _ := noteOf(o.missing[server], o.plan.Spec)
		o.notes = append(o.notes, note)
	}
}

// survey is what the caches have now.
func (c *Controller) survey() Survey {
	v := Survey{
		Nodes: c.allNodes(), Slices: c.slicesOf, States: c.states.all(), Defaults: c.cfg.Defaults,
		Now: time.Now(), damper: c.damper,
	}
	for _, node := range v.Nodes {
		if dedicated(node) {
			for _, a := range reported(node) {
				c.addresses.Store(a, true)
			}
		}
	}
	for _, svc := range c.allServices() {
		v.Services = append(v.Services, c.newest.Of(svc))
	}
	v.Defaults.Network, v.Defaults.DedicatedRanges = c.cfg.Network(), c.cfg.DedicatedRanges()
	return v
}

// sync reconciles one balancer: read, plan, and only the ops that the plan names, until there are
// none. Nothing is read of the cloud while what is known already asks for nothing. The notes are
// what a person must look at; the error is what will be retried.
func (c *Controller) sync(ctx context.Context, owner lb.Owner) ([]lb.Note, error) {
	o, read := &outcome{missing: make(map[int64]error)}, c.states.isExpired(owner)
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
			read = true // whether its addresses are still those of anything
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
		return nil, nil // the cache will learn of it
	}
	o.noteMissing()
	notes, err := c.report(ctx, o)
	return notes, errors.Join(unclaimed, o.transient, err)
}

// read reads what an owner has, by a list where others wait to be reconciled too, or where the
// Service has to do with shared ones.
func (c *Controller) read(ctx context.Context, owner lb.Owner) error {
	shares := owner.Group == "" && slices.ContainsFunc(c.states.carrying(owner), lb.State.Shared)
	if shares || c.states.many(owner) || c.queue.Len() >= c.states.pages() {
		return c.states.readAll(ctx, owner)
	}
	return c.states.read(ctx, owner)
}

// hopeless reports whether no Service can have a load balancer, nor has had one: then it costs no
// request to say so.
func (o *outcome) hopeless() bool {
	alone := o.owner.Group == ""
	return !o.have.Exists() && !slices.ContainsFunc(o.members, func(m lb.Member) bool {
		hindered := len(m.Spec.Barred) > 0 || alone && len(m.Spec.Hindrances()) > 0
		return m.Holds || m.Parsed && !hindered
	})
}

// pass plans once more and does what is left; true if that may have left something else.
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
	clear(o.missing)
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
		return true // nothing is done because of what was read long ago
	}
	if _, drifted := c.drifting.LoadAndDelete(o.owner); drifted && o.have.Exists() {
		c.metrics.drifted.Inc()
	}
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

// act carries ops out, and reports whether there may be more to do.
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
	if slices.ContainsFunc(r.errs, hasSubstitute) || len(o.missing) > 0 && o.transient == nil {
		return true
	}
	return (r.moved || o.plan.Again) && len(r.errs) == 0 || creates && len(r.errs) > 0 && c.claimsByName(ctx, o)
}

// hasSubstitute reports whether an operation was refused in whose place another plan puts something
// else: another address, or what the present type has room for.
func hasSubstitute(err error) bool {
	var failed *opError
	if !refusal(err) || !errors.As(err, &failed) {
		return false
	}
	switch failed.op.(type) {
	case lb.ChangeType, lb.AttachNetwork:
		return true
	}
	return false
}

// addsPod reports whether an op adds a pod, as it may for a Service of which it is not known
// whether it wants that.
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

// recheck has a balancer read again after a while.
func (c *Controller) recheck(owner lb.Owner, after time.Duration) {
	after = max(after, time.Second)
	c.states.expireAfter(owner, after)
	c.queue.AddAfter(owner, after)
}

// enqueue has a balancer read again and reconciled. Services that share one are often changed
// together, and cost less when they are looked at together.
func (c *Controller) enqueue(owner lb.Owner) {
	c.states.expire(owner)
	if owner.Group != "" {
		c.queue.AddAfter(owner, nodeDelay)
		return
	}
	c.queue.Add(owner)
}
