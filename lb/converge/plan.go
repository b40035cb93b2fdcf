package converge

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/underlay-ccm/underlay/lb"
)

// Input is what a plan is made from.
type Input struct {
	Service *corev1.Service
	Nodes   []*corev1.Node
	// Chosen: the caller has decided that all Nodes can be targets, and does not say when another can.
	Chosen    bool
	Endpoints Endpoints
	Defaults  lb.Defaults
	// Memory is what the last plan wanted to be remembered.
	Memory Memory
	// HadManaged: it was remembered that the Service has, or had, a managed certificate.
	HadManaged bool
	// Repeats: what is left of a plan is planned again, with what is to be remembered.
	Repeats bool
	Now     time.Time
	// Refusals are targets that the cloud refused not long ago; nil: none are known.
	Refusals *Refusals
	// Unhealthy remembers since when targets are not healthy; nil: nobody knows.
	Unhealthy *Since[lb.Target]
}

// Plan is what a Service asks for, before the cloud is looked at, and then what is to be done about it.
type Plan struct {
	Spec  lb.Spec
	Notes []lb.Note
	// Refused: nothing may be created, and nothing but targets changed; Notes say why.
	Refused bool
	Ops     []lb.Op
	Memory  Memory
	// HadManaged: the Service may have a managed certificate that it does not need any more.
	HadManaged bool
	// Waits: more is to be done when the checks have judged what is done now.
	Waits bool

	servers   []int64 // the nodes that shall be targets
	staying   []int64 // those that shall be if they are
	preferred []int64 // those that go first if there is no room for all
	aimless   bool    // not even the targets are known
	served    bool    // the Service shows addresses of somebody's load balancer
	follows   bool    // only those can be healthy
	repeats   bool    // what is left is planned again
	now       time.Time
	refusals  *Refusals
	unhealthy *Since[lb.Target]
}

// NewPlan reads a Service.
func NewPlan(in Input) Plan {
	svc := in.Service
	spec, notes, err := lb.Parse(question(svc), in.Defaults)
	p := Plan{Spec: spec, Notes: notes, Memory: in.Memory, HadManaged: in.HadManaged, repeats: in.Repeats, now: in.Now, refusals: in.Refusals, unhealthy: in.Unhealthy, served: len(svc.Status.LoadBalancer.Ingress) > 0}
	var refused *lb.RefusedError
	if errors.As(err, &refused) {
		p.Refused, p.Spec.Owner = true, Owner(svc, in.Defaults.Cluster)
		p.Spec.HealthCheckNodePort = int(svc.Spec.HealthCheckNodePort)
		p.Notes = slices.Concat(refused.Notes, notes)
	}
	// The selector's syntax is Kubernetes', so it is read here; even when the rest is refused, so that
	// the user learns everything at once.
	text := svc.Annotations[lb.AnnotationNodeSelector]
	selector, err := labels.Parse(text)
	if err != nil {
		p.Refused, p.aimless = true, true
		p.Notes = append(p.Notes, lb.Note{
			Grade: lb.Error, Reason: lb.ReasonInvalid, Field: lb.AnnotationNodeSelector, Value: text,
			Text: fmt.Sprintf("not a label selector (%v): write it as kubectl's --selector", err),
		})
		return p
	}
	found := candidatesAmong(in.Nodes, selector, in.Endpoints, in.Chosen)
	p.servers, p.staying = found.joining, found.staying
	if local(svc) {
		p.preferred = found.serving
	}
	p.follows = local(svc) && in.Endpoints.Known
	p.Spec = p.Spec.WithTargets(p.servers)
	if len(p.servers)+len(p.staying) == 0 && !p.Impossible() {
		p.Notes = append(p.Notes, noNodes())
	}
	return p
}

// Owner is the Service as an owner of things in the cloud.
func Owner(svc *corev1.Service, cluster string) lb.Owner {
	return lb.Owner{Cluster: cluster, UID: string(svc.UID)}
}

// Impossible reports whether nothing may be created for the Service. What there is already is maintained.
func (p Plan) Impossible() bool { return p.Refused || len(p.Spec.Hindrances()) > 0 }

// Idle reports whether no target can be healthy, because the Service has no ready endpoint.
func (p Plan) Idle() bool { return p.follows && len(p.preferred) == 0 }

// claimable is the spec under which a load balancer is taken over. One that may not come to serve this Service is
// only taken if it does already, by whose label it carries.
func (p Plan) claimable() lb.Spec {
	spec := p.Spec
	if p.Refused || len(spec.Barred) > 0 {
		spec.Name = ""
	}
	return spec
}

// Crowded reports whether there are more nodes than the load balancer can have, so that it matters which.
func (p Plan) Crowded() bool {
	limits, known := lb.LimitsOf(p.Spec.Type)
	return known && len(p.servers)+len(p.staying) > limits.Targets
}

// Servers are the nodes that shall be targets, whether or not the load balancer has room for all.
func (p Plan) Servers() []int64 { return p.servers }

// Against adjusts the plan to what the cloud has, and decides what to do. Certificates may be nil unless the
// spec needs them.
func (p Plan) Against(have lb.State, certificates []lb.Certificate) Plan {
	p = p.withStaying(have)
	if p.Refused {
		return p.holding(have)
	}
	if hindrances := p.Spec.Hindrances(); !have.Exists() && len(hindrances) > 0 {
		p.Refused, p.Notes, p.Memory.Turn = true, slices.Concat(hindrances, p.Notes), Turn{}
		return p
	}
	spec, obtain, unusable := p.Spec.Resolve(certificates)
	switch {
	case len(unusable) > 0:
		if len(obtain) > 0 {
			var due bool
			if p.Memory, due = p.Memory.reissue(p.now); due {
				p.Ops = obtain
			}
		}
		p.Refused, p.Notes = true, slices.Concat(unusable, p.Notes)
		return p.holding(have)
	case len(obtain) > 0:
		if p.Spec.Owner.Owns(have.Labels) { // it may take long to have it, or be refused
			turn, back, lost := p.heldTurn(have, p.Memory.Checks)
			targets, _ := p.retarget(have, turn)
			p.Memory.Turn, p.Ops, p.Notes = turn, slices.Concat(back, targets), slices.Concat(p.Notes, lost)
		}
		p.Ops = slices.Concat(p.Ops, obtain)
		return p
	}
	spec, notes := spec.Against(have, p.preferred)
	spec, trial := p.tried(spec, have)
	turn, waits := p.Memory.Turn.wished(spec), false
	if p.repeats {
		turn, waits = p.settled(turn, spec, have, trial.memory)
	}
	spec, left, refused := p.givenUp(spec, have, turn)
	if !have.Exists() && turn.Open() && !turn.Proved { // somebody deleted it: targets come where they were healthy
		spec, turn = spec.Stay(have), Turn{}
	}
	spec.ChecksKept = spec.ChecksKept || trial.memory.unsure() && spec.MayKeepChecks(have)
	spec, held := p.refusals.withoutRefused(spec, have)
	if p.repeats {
		spec, p.Waits = p.rollout(have).Next(spec, have)
	}
	p.Spec, p.Notes = spec, slices.Concat(p.Notes, notes, refused, trial.notes, held)
	ops := lb.Diff(spec, have)
	if p.repeats && turn.Refused == "" { // what is put back goes at once
		ops, turn = p.inTurns(ops, have, turn, waits)
	}
	p.Memory = Memory{Checks: trial.memory, GivenUp: left, Turn: turn}
	p.Ops = slices.Concat(ops, lb.Surplus(spec, certificates, have.ID))
	return p
}

// rollout says how targets change.
func (p Plan) rollout(have lb.State) lb.Rollout {
	longest := time.Duration(0)
	for _, l := range have.Listeners {
		longest = max(longest, l.Check.Verdict())
	}
	overdue := make(map[lb.Target]bool)
	for t, since := range p.unhealthy.Look(p.Spec.Owner.UID, have.Waiting(), p.now) {
		overdue[t] = !p.now.Before(since.Add(longest))
	}
	expected := func(server int64) bool { return !p.follows || slices.Contains(p.preferred, server) }
	return lb.Rollout{Expected: expected, Overdue: overdue}
}

// retarget lets the targets follow the nodes; those that come where targets are healthy.
func (p *Plan) retarget(have lb.State, turn Turn) (ops []lb.Op, notes []lb.Note) {
	want, notes := lb.Retarget(have, p.servers, p.preferred)
	want, held := p.refusals.withoutRefused(want, have)
	if p.repeats {
		want, p.Waits = p.rollout(have).Next(want, have)
	}
	ops = lb.DiffTargets(want, have)
	for i, op := range ops {
		if add, ok := op.(lb.AddTarget); ok && turn.Refused != "" {
			add.Target.Private = !turn.Private
			ops[i] = add
		}
	}
	return ops, slices.Concat(notes, held)
}

// holding keeps a load balancer in service although its Service is refused: nodes come and go meanwhile, and
// after enough of them nothing would be left of its targets.
func (p Plan) holding(have lb.State) Plan {
	if !have.Exists() {
		p.Memory.Turn = Turn{}
		return p
	}
	if !p.Spec.Owner.Owns(have.Labels) {
		p.Ops = slices.Concat([]lb.Op{lb.TakeOverAsIs(p.Spec.Owner, have)}, p.Ops)
	}
	held := lb.Note{
		Grade: lb.Warning, Reason: lb.ReasonHeld,
		Text: "until this is corrected, only the targets of the load balancer follow the nodes, and nothing else of it is changed",
	}
	checks, ops, notes := p.heldChecks(have)
	turn, back, lost := p.heldTurn(have, checks)
	p.Memory.Checks, p.Memory.Turn = checks, turn
	p.Ops, p.Notes = slices.Concat(p.Ops, ops, back), slices.Concat(p.Notes, notes, lost)
	if p.aimless {
		held.Text = "until this is corrected, nothing of the load balancer is changed, not even its targets"
		p.Notes = slices.Concat(p.Notes, []lb.Note{held})
		return p
	}
	targets, notes := p.retarget(have, turn)
	p.Ops = slices.Concat(p.Ops, targets)
	p.Notes = slices.Concat(p.Notes, []lb.Note{held}, notes)
	return p
}
