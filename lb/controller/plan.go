package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"

	"github.com/underlay-ccm/underlay/lb"
)

// Plan is what a Service asks for, before the cloud is looked at, and then what is to be done about
// it.
type Plan struct {
	Spec  lb.Spec
	Notes []lb.Note
	// Refused: nothing may be created, and nothing but targets changed; Notes say why.
	Refused bool
	Ops     []lb.Op

	memory     memory    // what the last plan wanted to be remembered, then what this one does
	hadManaged bool      // the Service may have a managed certificate that it does not need any more
	waits      bool      // more is to be done when the checks have judged what is done now
	nodes      []lb.Node // those that shall be targets
	staying    []lb.Node // those that shall be if they are
	preferred  []lb.Node // those that go first if there is no room for all
	aimless    bool      // not even the targets are known
	served     bool      // the Service shows addresses of somebody's load balancer
	follows    bool      // only those that are preferred can be healthy
	repeats    bool      // what is left is planned again
	members    []member  // the Services of a group, oldest first
	now        time.Time
	addresses  primaryIPs
	refusals   *refusals         // nil: none are known
	unhealthy  *since[lb.Target] // nil: nobody knows

	endpoints *endpoints // nil: they don't matter
	atPods    *Plan      // the plan with pods as targets, see choose; nil: nobody asks for that
	again     bool       // the next step follows at once
	opens     []int      // the pods' ports that are to be reached
}

// plan reads a Service together with what the caches know of nodes and endpoints.
func (c *Controller) plan(svc *corev1.Service) (Plan, error) {
	nodes, err := c.nodes.List(labels.Everything())
	if err != nil {
		return Plan{}, fmt.Errorf("listing nodes: %w", err)
	}
	var endpoints map[string]bool
	var slices []*discoveryv1.EndpointSlice
	if c.slices != nil && (local(svc) || asksAboutPods(svc)) {
		if slices, err = c.slicesOf(svc); err != nil {
			return Plan{}, err
		}
		endpoints = serving(slices...)
	}
	defaults := c.defaults
	defaults.Network, defaults.DedicatedRanges = c.network(), c.dedicatedRanges()
	p := newPlan(svc, nodes, endpoints, defaults, time.Now()).orPods(svc, nodes, slices, defaults)
	p.repeats, p.refusals, p.unhealthy = true, c.refusals, c.unhealthy
	return p, nil
}

func (c *Controller) slicesOf(svc *corev1.Service) ([]*discoveryv1.EndpointSlice, error) {
	all, err := c.slices.EndpointSlices(svc.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: svc.Name}))
	if err != nil {
		return nil, fmt.Errorf("listing endpoints of Service %s: %w", klog.KObj(svc), err)
	}
	return all, nil
}

// Survey reads a Service as the controller does, for whoever wants to know what it would do. Slices
// are those of the Service.
func Survey(svc *corev1.Service, nodes []*corev1.Node, slices []*discoveryv1.EndpointSlice, defaults lb.Defaults, now time.Time) Plan {
	return newPlan(svc, nodes, serving(slices...), defaults, now).orPods(svc, nodes, slices, defaults)
}

// serving are the nodes with an endpoint that takes traffic, as kube-proxy's health check node port
// counts them: ready is unknown means yes.
func serving(slices ...*discoveryv1.EndpointSlice) map[string]bool {
	nodes := make(map[string]bool)
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			if e.NodeName != nil && (e.Conditions.Ready == nil || *e.Conditions.Ready) {
				nodes[*e.NodeName] = true
			}
		}
	}
	return nodes
}

// newPlan reads a Service. Endpoints are the names of the nodes on which it has endpoints that
// serve, which matter with policy Local only; nil: nobody knows.
func newPlan(svc *corev1.Service, nodes []*corev1.Node, endpoints map[string]bool, defaults lb.Defaults, now time.Time) Plan {
	p := parsed(svc, question(svc), defaults, now)
	// The selector's syntax is Kubernetes', so it is read here; even when the rest is refused, so
	// that the user learns everything at once.
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
	ipv6 := slices.Contains(svc.Spec.IPFamilies, corev1.IPv6Protocol)
	for _, node := range nodes {
		n := asTarget(node, defaults.DedicatedRanges, ipv6)
		if !eligible(node) || !selector.Matches(labels.Set(node.Labels)) {
			if dedicated(node) {
				p.Spec.Excluded = append(p.Spec.Excluded, n)
			}
			continue
		}
		if joins(node) {
			p.nodes = append(p.nodes, n)
		} else {
			p.staying = append(p.staying, n)
		}
		if local(svc) && endpoints[node.Name] {
			p.preferred = append(p.preferred, n)
		}
	}
	p.follows = local(svc) && endpoints != nil
	p.Spec = p.Spec.WithTargets(p.nodes)
	if len(p.nodes)+len(p.staying) == 0 && !p.impossible() {
		p.Notes = append(p.Notes, noNodes())
	}
	return p
}

// parsed is what a Service asks for, without its targets.
func parsed(svc *corev1.Service, q lb.Service, defaults lb.Defaults, now time.Time) Plan {
	spec, notes, err := lb.Parse(q, defaults)
	p := Plan{
		Spec: spec, Notes: notes, memory: recall(svc), hadManaged: hadManaged(svc), now: now,
		served: len(svc.Status.LoadBalancer.Ingress) > 0,
	}
	var refused *lb.RefusedError
	if errors.As(err, &refused) {
		p.Refused, p.Spec.Owner, p.Spec.PodTargets = true, Owner(svc, defaults.Cluster), q.PodTargets
		p.Spec.Namespace, p.Spec.Service = svc.Namespace, svc.Name
		p.Spec.HealthCheckNodePort = int(svc.Spec.HealthCheckNodePort)
		p.Notes = slices.Concat(refused.Notes, notes)
	}
	return p
}

// impossible reports whether nothing may be created for the Service. What there is already is
// maintained.
func (p Plan) impossible() bool { return p.Refused || len(p.Spec.Hindrances()) > 0 }

// idle reports whether no target can be healthy, because the Service has no ready endpoint.
func (p Plan) idle() bool { return p.follows && len(p.preferred) == 0 }

// claimable is the spec under which a load balancer is taken over. One that may not come to serve
// this Service is only taken if it does already, by whose label it carries.
func (p Plan) claimable() lb.Spec {
	spec := p.Spec
	if p.Refused || len(spec.Barred) > 0 {
		spec.Name = ""
	}
	return spec
}

// crowded reports whether there are more nodes than the load balancer can have, so that it matters
// which.
func (p Plan) crowded() bool {
	limits, known := lb.LimitsOf(p.Spec.Type)
	return known && len(p.nodes)+len(p.staying) > limits.Targets
}

// Against adjusts the plan to what the cloud has, and decides what to do. Certificates may be nil
// unless the spec needs them.
func (p Plan) Against(have lb.State, certificates []lb.Certificate) Plan {
	if p.members != nil {
		return p.againstGroup(have, certificates)
	}
	p = p.choose(have).withStaying(have)
	if p.Refused {
		return p.holding(have)
	}
	if hindrances := p.Spec.Hindrances(); !have.Exists() && len(hindrances) > 0 {
		p.Refused, p.Notes = true, slices.Concat(hindrances, p.Notes)
		return p
	}
	p, addressed := p.addressed(have)
	if !addressed {
		return p
	}
	spec, obtain, unusable := p.Spec.Resolve(certificates)
	switch {
	case len(unusable) > 0:
		if len(obtain) > 0 {
			var due bool
			if p.memory, due = p.memory.reissue(p.now); due {
				p.Ops = obtain
			}
		}
		p.Refused, p.Notes = true, slices.Concat(unusable, p.Notes)
		return p.holding(have)
	case len(obtain) > 0:
		if p.Spec.Owner.Owns(have.Labels) { // it may take long to have it, or be refused
			p.Ops, _ = p.retarget(have)
		}
		p.Ops = slices.Concat(p.Ops, obtain)
		return p
	}
	spec, notes := spec.Against(have, p.preferred)
	var trial trial
	if p.judgesNodes(have) {
		spec, trial = p.tried(spec, have)
	}
	spec, held := p.refusals.without(spec, have)
	if p.repeats {
		var stuck []lb.Note
		spec, p.waits, stuck = p.rollout(have, trial.memory.open()).Next(spec, have)
		held = slices.Concat(held, stuck)
	}
	if spec.PodTargets {
		p.opens = opensAt(spec.Listeners)
	}
	spec, p.again = spec.Step(have)
	spec.ChecksKept = spec.ChecksKept || trial.memory.unsure() && spec.MayKeepChecks(have)
	p.Spec, p.Notes = spec, slices.Concat(p.Notes, notes, trial.notes, held)
	p.memory = memory{checks: trial.memory}
	p.Ops = slices.Concat(lb.Diff(spec, have), lb.Surplus(spec, certificates, have.ID))
	return p
}

// withStaying returns the plan with the targets that stay although they could not be added now. An
// address that no Node has may be that of one which says nothing of its addresses.
func (p Plan) withStaying(have lb.State) Plan {
	if len(p.staying) == 0 {
		return p
	}
	strangers := have.Strangers(slices.Concat(p.nodes, p.staying, p.Spec.Excluded))
	p.nodes = slices.Clone(p.nodes)
	for _, n := range p.staying {
		silent := len(n.Targets()) == 0
		if silent && len(strangers) > 0 || slices.ContainsFunc(n.Targets(), func(t lb.Target) bool { return slices.Contains(have.Targets, t) }) {
			p.nodes = append(p.nodes, n)
		}
	}
	p.staying, p.Spec = nil, p.Spec.WithTargets(p.nodes)
	if len(p.nodes) == 0 && !p.impossible() {
		p.Notes = slices.Concat(p.Notes, []lb.Note{noNodes()})
	}
	return p
}

// rollout says how targets change.
func (p Plan) rollout(have lb.State, hold bool) lb.Rollout {
	longest := time.Duration(0)
	for _, l := range have.Listeners {
		longest = max(longest, l.Check.Verdict())
	}
	overdue := make(map[lb.Target]bool)
	for t, since := range p.unhealthy.look(p.Spec.Owner.Key(), have.Waiting(), p.now) {
		overdue[t] = !p.now.Before(since.Add(longest))
	}
	rollout := lb.Rollout{Expected: p.expected(), Overdue: overdue, Hold: hold}
	if p.members != nil {
		rollout.Expected, rollout.Possible = expectedByAll(p.members), expectedByAny(p.members)
	}
	return rollout
}

// expected reports whether a target can be healthy.
func (p Plan) expected() func(lb.Target) bool {
	preferred := make(map[lb.Target]bool)
	for _, n := range p.preferred {
		for _, t := range n.Targets() {
			preferred[t] = true
		}
	}
	return func(t lb.Target) bool { return !p.follows || preferred[t] }
}

// needsCertificates reports whether it matters which certificates there are.
func (p Plan) needsCertificates() bool {
	return p.Spec.NeedsCertificates() || p.hadManaged
}

// judgesNodes reports whether it is nodes that health checks are about, so that a change of checks
// is tried: pods are asked at the port that they serve.
func (p Plan) judgesNodes(have lb.State) bool {
	return !p.Spec.PodTargets && !slices.ContainsFunc(have.Targets, lb.Target.Pod)
}

// retarget lets the targets follow the nodes, and each be reached as it is, or the pods where those
// are the targets.
func (p *Plan) retarget(have lb.State) (ops []lb.Op, notes []lb.Note) {
	if p.aimsAtPods(have) {
		return p.retargetPods(have)
	}
	want, notes := p.Spec.Retarget(have, p.nodes, p.preferred)
	want, held := p.refusals.without(want, have)
	if p.repeats {
		want, p.waits, _ = p.rollout(have, true).Next(want, have)
	}
	return lb.DiffTargets(want, have), slices.Concat(notes, held)
}

// aimsAtPods reports whether targets that come are pods: those that there are are, or there are none
// and pods are asked for.
func (p Plan) aimsAtPods(have lb.State) bool {
	return slices.ContainsFunc(have.Targets, lb.Target.Pod) || len(have.Targets) == 0 && p.Spec.PodTargets
}

// retargetPods leaves the targets as they are if nobody knows of pods.
func (p *Plan) retargetPods(have lb.State) (ops []lb.Op, notes []lb.Note) {
	if p.endpoints == nil {
		return nil, nil
	}
	want, notes := lb.RetargetPods(have, p.endpoints.pods.Targets)
	want, held := p.refusals.without(want, have)
	if p.repeats {
		want, p.waits, _ = p.rollout(have, true).Next(want, have)
	}
	return lb.DiffTargets(want, have), slices.Concat(notes, held)
}

// holding keeps a load balancer in service although its Service is refused: nodes come and go
// meanwhile, and after enough of them nothing would be left of its targets.
func (p Plan) holding(have lb.State) Plan {
	if !have.Exists() {
		return p
	}
	if !p.Spec.Owner.Owns(have.Labels) {
		p.Ops = slices.Concat([]lb.Op{lb.TakeOverAsIs(p.Spec.Owner, have)}, p.Ops)
	}
	held := lb.Note{
		Grade: lb.Warning, Reason: lb.ReasonHeld,
		Text: "until this is corrected, only the targets of the load balancer follow the nodes, and nothing else of it is changed",
	}
	if p.aimsAtPods(have) {
		held.Text = "until this is corrected, only the targets of the load balancer follow the pods, and nothing else of it is changed"
	}
	var ops []lb.Op
	var notes []lb.Note
	if p.judgesNodes(have) {
		p.memory.checks, ops, notes = p.heldChecks(have)
	}
	p.Ops, p.Notes = slices.Concat(p.Ops, ops), slices.Concat(p.Notes, notes)
	if p.aimless {
		held.Text = "until this is corrected, nothing of the load balancer is changed, not even its targets"
		p.Notes = slices.Concat(p.Notes, []lb.Note{held})
		return p
	}
	targets, notes := p.retarget(have)
	p.Ops = slices.Concat(p.Ops, targets)
	p.Notes = slices.Concat(p.Notes, []lb.Note{held}, notes)
	return p
}

// stillWanted asks the API server itself, before a creation, whether the Service is still there and
// ours. A cache can be older than that: a new leader may fill it from an API server that lags
// behind, and a load balancer for a Service that is gone would be left for good.
func (c *Controller) stillWanted(ctx context.Context, svc *corev1.Service) (bool, error) {
	live, err := c.client.Services(svc.Namespace).Get(ctx, svc.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading Service %s before creating its load balancer: %w", klog.KObj(svc), err)
	}
	return live.UID == svc.UID && c.wants(live) && c.keyOf(live) == c.keyOf(svc), nil
}
