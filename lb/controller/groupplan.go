package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/cloud-provider/service/helpers"

	"github.com/underlay-ccm/underlay/lb"
)

// member is a Service of a group: what it alone asks for, and what the group's load balancer gives
// it.
type member struct {
	svc      *corev1.Service
	plan     Plan
	standing lb.Standing
	// own is the load balancer that the Service had before it shared one, and still has.
	own lb.State

	// What follows is what becomes of it, see againstGroup.
	part   lb.Part
	notes  []lb.Note // all that there is to say of it, but for what holds for all members
	memory memory
}

func (m member) uid() string { return string(m.svc.UID) }

// olderFirst orders Services by their age, and those of the same second by their UIDs.
func olderFirst(a, b *corev1.Service) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

// newGroupPlan is what a group asks for. Members are in no order.
func newGroupPlan(owner lb.Owner, members []member, now time.Time) Plan {
	members = slices.SortedFunc(slices.Values(members), func(a, b member) int { return olderFirst(a.svc, b.svc) })
	p := Plan{Spec: lb.Spec{Owner: owner}, members: members, now: now}
	for _, m := range members {
		needs := m.standing == lb.Joined && !m.plan.Refused && m.plan.needsCertificates()
		p.hadManaged = p.hadManaged || needs
	}
	return p
}

// SurveyGroup reads the Services of a group as the controller does, and which load balancer of those
// in the cloud is the group's; services are all there are, endpoints those of each.
func SurveyGroup(group string, services []*corev1.Service, nodes []*corev1.Node, endpoints func(*corev1.Service) []*discoveryv1.EndpointSlice, defaults lb.Defaults, states []lb.State, now time.Time) (Plan, []lb.State) {
	owner := lb.GroupOwner(defaults.Cluster, group)
	owned := ownedBy(owner, states)
	var members []member
	for _, svc := range services {
		wanted := svc.DeletionTimestamp.IsZero() && Ours(svc, defaults.Classless)
		m := member{svc: svc, standing: standingOf(svc, wanted, defaults.Shared)}
		switch {
		case wanted && GroupOf(svc, defaults.Shared) == group:
			m.standing = lb.Joined
		case len(owned) != 1 || !Owner(svc, defaults.Cluster).Carries(owned[0].Labels):
			continue
		case wanted:
			if stays, err := needs(svc, owned[0], defaults, among(states)); err != nil || !stays {
				continue
			}
		case !keeps(svc):
			continue
		}
		m.plan = Survey(svc, nodes, endpoints(svc), defaults, now)
		members = append(members, m)
	}
	return newGroupPlan(owner, members, now), owned
}

// For is the part of a group's plan that concerns one of its Services: what is said of it, and what
// is done to its ports; what is done to the load balancer as a whole is with the oldest.
func (p Plan) For(svc *corev1.Service) Plan {
	for i, m := range p.members {
		if m.svc.UID != svc.UID {
			continue
		}
		notes := m.told(p.Notes)
		p.Ops = slices.DeleteFunc(slices.Clone(p.Ops), func(op lb.Op) bool {
			uid := about(&opError{op: op}, p.Spec)
			return uid != m.uid() && (uid != "" || i > 0)
		})
		p.Notes = notes
		break
	}
	return p
}

// Sharers are the Services of a group, oldest first.
func (p Plan) Sharers() (services []*corev1.Service) {
	for _, m := range p.members {
		services = append(services, m.svc)
	}
	return services
}

// told are the notes of a member and those for all that concern it, each once.
func (m member) told(all []lb.Note) []lb.Note {
	var notes []lb.Note
	for _, n := range slices.Concat(m.notes, all) {
		same := func(other lb.Note) bool { return other.String() == n.String() }
		if (n.About == "" || n.About == m.uid()) && !slices.ContainsFunc(notes, same) {
			notes = append(notes, n)
		}
	}
	return notes
}

// spec is what the Service alone asks for, with the listeners that it has.
func (m member) spec() lb.Spec {
	spec := m.plan.Spec
	spec.Listeners, spec.Unopened = m.part.Listeners, m.part.Unopened
	return spec
}

// againstGroup is [Plan.Against] of a group.
func (p Plan) againstGroup(have lb.State, certificates []lb.Certificate) Plan {
	p, sharers, obtain := p.merged(have, certificates)
	p = p.withStaying(have)
	if wanted := p.Spec; !have.Exists() && (len(wanted.Listeners) == 0 || len(wanted.Placeless) > 0) {
		p.Refused, p.Ops = true, obtain
		if len(wanted.Listeners) > 0 {
			p.Notes, p.Ops = slices.Concat(wanted.Placeless, p.Notes), nil
		}
		return p
	}
	spec, notes := p.Spec.Against(have, p.preferred)
	spec, held := p.refusals.without(spec, have)
	switch {
	case p.aimless:
		spec.Targets = have.Targets
	case p.repeats:
		var stuck []lb.Note
		spec, p.waits, stuck = p.rollout(have, false).Next(spec, have)
		held = slices.Concat(held, stuck)
	}
	var surplus []lb.Op
	for i, m := range p.members {
		if m.standing == lb.Joined && !m.plan.Refused && m.plan.needsCertificates() {
			// Also those of ports that it does not get: another Service may leave them to it.
			wanted := lb.Spec{Owner: m.plan.Spec.Owner, Listeners: slices.Concat(spec.Listeners, sharers[i].Spec.Listeners)}
			surplus = append(surplus, lb.Surplus(wanted, certificates, have.ID)...)
		}
	}
	for i, n := range notes {
		if n.Reason == lb.ReasonImmutable {
			notes[i].About = spec.Deciders[n.Field]
		}
	}
	p.Spec, p.Notes = spec, slices.Concat(p.Notes, notes, held)
	// A certificate may take long to be had, or be refused: others do not wait for it.
	p.Ops = slices.Concat(lb.Diff(spec, have), obtain, surplus)
	return p
}

// merged is the plan with what the members ask for together. The ops are what their certificates need.
func (p Plan) merged(have lb.State, certificates []lb.Certificate) (Plan, []lb.Sharer, []lb.Op) {
	p.members = slices.Clone(p.members)
	sharers := make([]lb.Sharer, len(p.members))
	var obtain []lb.Op
	for i := range p.members {
		var ops []lb.Op
		sharers[i], ops = p.members[i].resolved(certificates)
		obtain = append(obtain, ops...)
	}
	spec, parts := lb.Share(p.Spec.Owner, sharers, have)
	for i, part := range parts {
		m := &p.members[i]
		m.part, m.notes = part, slices.Concat(m.notes, part.Notes)
		if held := m.standing == lb.Joined && sharers[i].Standing != lb.Joined; held && len(part.Listeners) > 0 {
			m.notes = append(m.notes, heldPorts())
		}
		if m.own.Exists() && m.own.Name == spec.Name { // until that is gone
			spec.Name = cmp.Or(have.Name, p.Spec.Owner.DefaultName())
		}
	}
	spec.Excluded = p.strangeNodes(spec.Nodes)
	p.Spec = spec
	p.share(spec.Nodes)
	return p, sharers, obtain
}

// resolved is how the Service takes part, with its certificates, and what there is to say of it
// alone. The ops are what its certificates need.
func (m *member) resolved(certificates []lb.Certificate) (lb.Sharer, []lb.Op) {
	s := lb.Sharer{Spec: m.plan.Spec, Standing: m.standing, AnyNode: m.plan.aimless}
	s.Spec.Nodes = slices.Concat(m.plan.nodes, m.plan.staying)
	m.notes, m.memory = slices.Clone(m.plan.Notes), memory{Reissue: m.plan.memory.Reissue}
	switch {
	case m.standing != lb.Joined:
		return s, nil
	case m.plan.Refused:
		s.Standing = lb.Refused
		return s, nil
	}
	m.notes = slices.Concat(s.Spec.Barred, m.notes)
	if s.Spec.Takeover.Annotated.Place {
		m.notes = slices.Concat(s.Spec.Placeless, m.notes)
	}
	if len(s.Spec.Barred) > 0 && !helpers.HasLBFinalizer(m.svc) {
		return s, nil // its certificates do not matter
	}
	spec, obtain, unusable := s.Spec.Resolve(certificates)
	switch {
	case len(unusable) > 0:
		s.Standing, m.notes = lb.Held, slices.Concat(unusable, m.notes)
		due := false
		if len(obtain) > 0 {
			m.memory, due = m.memory.reissue(m.plan.now)
		}
		if !due {
			obtain = nil
		}
		return s, obtain
	case len(obtain) > 0:
		s.Standing = lb.Held
		return s, obtain
	}
	m.memory = memory{}
	s.Spec = spec
	return s, nil
}

func heldPorts() lb.Note {
	return lb.Note{
		Grade: lb.Warning, Reason: lb.ReasonHeld,
		Text: "until this is corrected, the ports that the Service has of the load balancer it shares stay as they are",
	}
}

// share makes the nodes that all members admit those of the plan.
func (p *Plan) share(common []lb.Node) {
	staying, preferred := make(map[string]bool), make(map[string]bool)
	p.nodes, p.staying, p.preferred, p.aimless = nil, nil, nil, len(p.members) > 0
	for _, m := range p.members {
		for _, n := range m.plan.staying {
			staying[n.Name] = true
		}
		for _, n := range m.plan.preferred {
			preferred[n.Name] = true
		}
		p.aimless = p.aimless && m.plan.aimless
	}
	for _, n := range common {
		if staying[n.Name] {
			p.staying = append(p.staying, n)
		} else {
			p.nodes = append(p.nodes, n)
		}
		if preferred[n.Name] {
			p.preferred = append(p.preferred, n)
		}
	}
	p.Spec = p.Spec.WithTargets(p.nodes)
}

// strangeNodes are nodes on dedicated servers that some member knows and not all admit.
func (p Plan) strangeNodes(common []lb.Node) []lb.Node {
	excluded := make(map[string]lb.Node)
	for _, m := range p.members {
		for _, n := range slices.Concat(m.plan.nodes, m.plan.staying, m.plan.Spec.Excluded) {
			if n.Server == 0 {
				excluded[n.Name] = n
			}
		}
	}
	for _, n := range common {
		delete(excluded, n.Name)
	}
	return slices.SortedFunc(maps.Values(excluded), func(a, b lb.Node) int { return cmp.Compare(a.Name, b.Name) })
}

// expectedByAll reports whether a target can be healthy at the listeners of all members.
func expectedByAll(members []member) func(lb.Target) bool {
	all := expectations(members)
	return func(t lb.Target) bool {
		return !slices.ContainsFunc(all, func(expected func(lb.Target) bool) bool { return !expected(t) })
	}
}

// expectedByAny reports whether a target can be healthy at those of one member at least.
func expectedByAny(members []member) func(lb.Target) bool {
	all := expectations(members)
	return func(t lb.Target) bool {
		return slices.ContainsFunc(all, func(expected func(lb.Target) bool) bool { return expected(t) })
	}
}

// expectations are those of the members that have a listener which can find a target healthy: where
// a Service has no ready endpoint, its listeners say nothing of how others find a target.
func expectations(members []member) (all []func(lb.Target) bool) {
	for _, m := range members {
		if len(m.part.Listeners) > 0 && !m.plan.idle() {
			all = append(all, m.plan.expected())
		}
	}
	return all
}
