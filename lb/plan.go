package lb

import (
	"maps"
	"slices"
	"time"
)

// Standing says what becomes of the ports that a Service has of a load balancer.
type Standing int

const (
	// Wanted: they become what the Service asks for.
	Wanted Standing = iota
	// Frozen: it is not known what the Service asks for, or it cannot be had now. Its ports stay,
	// lead to the node ports that it has at present, and close with these.
	Frozen
	// Closing: the Service asks to be served by another load balancer, and is not yet. Its ports
	// stay as those of one that is frozen, and it decides nothing else.
	Closing
)

// Member is a Service that a load balancer serves, or is to serve.
type Member struct {
	// Service is what Kubernetes has; of one that is not Parsed it says which ports there are.
	Service Service
	// Spec is what the Service alone asks for. Only Owner, Namespace and Service without Parsed.
	Spec     Spec
	Parsed   bool
	Standing Standing
	// Notes are what there is to say of the Service alone.
	Notes []Note

	// Nodes may become targets, Staying may stay what they are, and Preferred have an endpoint.
	Nodes, Staying, Preferred []Node
	// Follows: only the preferred ones can be healthy.
	Follows bool
	// AnyNode: the Service's node selector is not known.
	AnyNode bool
	// Pods are the targets where pods are.
	Pods []Target
	// Holds: the Service was given a load balancer before, or may have been.
	Holds bool
	// HadManaged: a certificate may have been obtained for the Service that it does not need any
	// more.
	HadManaged bool
}

func (m Member) uid() string { return m.Spec.Owner.UID }

func (m Member) name() string { return m.Spec.Namespace + "/" + m.Spec.Service }

// decides reports whether the Service has a say in what a load balancer has once.
func (m Member) decides() bool { return m.Parsed && m.Standing != Closing }

// Idle reports whether no target can be healthy, because the Service has no ready endpoint.
func (m Member) Idle() bool { return m.Follows && len(m.Preferred) == 0 }

// NeedsCertificates reports whether it matters which certificates there are.
func (m Member) NeedsCertificates() bool {
	return m.decides() && (m.Spec.NeedsCertificates() || m.HadManaged)
}

// Part is what a Service has of a load balancer.
type Part struct {
	// Listeners are those of its ports.
	Listeners []Listener
	// Unopened are the ports that it asks for and does not get.
	Unopened []int
	Notes    []Note
}

// Input is all that the plan of a load balancer depends on.
type Input struct {
	Owner Owner
	// Members are the Services, oldest first: exactly one unless Owner is a group.
	Members []Member
	Have    State
	// Certificates are the project's; nil unless a member needs them.
	Certificates []Certificate
	// PrimaryIPs are those among [Spec.UnknownPrimaryIPs] that there are, if Looked.
	PrimaryIPs []PrimaryIP
	Looked     bool
	// Taken are names that other load balancers of these Services have until they are deleted.
	Taken []string
	// Refused returns why the cloud is not to be asked for an op now, or nil. It may be nil itself.
	Refused func(Op) error
	// Rolling: targets change step by step, as [Rollout] says, and Unhealthy has since when each
	// has not been healthy. Otherwise the plan names all that differs.
	Rolling   bool
	Unhealthy map[Target]time.Time
	Now       time.Time
}

// Plan is what a load balancer is to be, and what is to be done for that.
type Plan struct {
	Spec  Spec
	Parts []Part // of the members, in their order
	Ops   []Op
	// Notes concern all members, or the one that they are about.
	Notes []Note
	// Refused: there is no load balancer, and none may be created; notes say why.
	Refused bool
	// Waits: more is to be done when the checks have judged what is done now.
	Waits bool
	// Again: the next step follows at once.
	Again bool
	// Opens are the ports of pods that are to be reached.
	Opens []int
	// Nodes are those that shall be targets.
	Nodes []Node
	// Held are the refusals of the cloud that the plan takes into account.
	Held []error
}

// Part is what a member has of the load balancer; nothing if nothing was planned.
func (p Plan) Part(i int) Part {
	if i < len(p.Parts) {
		return p.Parts[i]
	}
	return Part{}
}

// Plan compares what the members ask for with what there is.
func (in Input) Plan() Plan {
	alone, have := in.Owner.Group == "", in.Have
	if alone && !have.Exists() {
		m := in.Members[0]
		if hindrances := m.Spec.Hindrances(); !m.decides() || len(hindrances) > 0 {
			return Plan{Spec: m.Spec, Parts: make([]Part, 1), Notes: hindrances, Refused: true}
		}
	}
	members := slices.Clone(in.Members)
	obtain, unusable := in.resolve(members)
	m := share(in, members)
	p := Plan{Parts: m.parts, Held: m.held}
	for i, notes := range unusable {
		if members[i].Standing == Frozen && len(m.parts[i].Listeners) > 0 && (!members[i].Parsed || len(notes) > 0) {
			notes = append(notes, warningNote(ReasonHeld, "", "",
				"until this is corrected, nothing of the load balancer is changed for the Service "+
					"but that its ports follow the node ports, and targets the nodes or pods"))
		}
		p.Parts[i].Notes = slices.Concat(notes, p.Parts[i].Notes)
	}
	spec, nodes := m.spec, in.nodes(members, m.spec.Nodes)
	if alone && !spec.AsFound {
		var addressed bool
		if spec, addressed = in.addressed(spec, &p); !addressed {
			p.Spec, p.Refused = spec, true
			return p
		}
	}
	if !have.Exists() && (len(spec.Listeners) == 0 || len(spec.Placeless) > 0) {
		p.Spec, p.Refused, p.Ops = spec, true, obtain
		if len(spec.Listeners) > 0 {
			p.Notes, p.Ops = slices.Concat(spec.Placeless, p.Notes), nil
		}
		return p
	}
	spec = spec.aimedAt(nodes, have)
	if !spec.PodTargets && len(nodes.all) == 0 && !nodes.unknown {
		p.Notes = append(p.Notes, noNodes())
	}
	spec, notes := spec.Against(have, nodes.preferred)
	for i, n := range notes {
		if n.Reason == ReasonImmutable && !alone {
			notes[i].About = spec.Deciders[n.Field]
		}
	}
	spec, held := spec.Without(have, in.refused)
	switch {
	case nodes.unknown && !spec.PodTargets:
		spec.Targets = have.Targets
	case in.Rolling:
		var stuck []Note
		spec, p.Waits, stuck = in.rollout(members, m.parts).Next(spec, have)
		notes = slices.Concat(notes, stuck)
	}
	if spec.PodTargets {
		p.Opens = PortsOf(spec.Listeners)
	}
	spec, p.Again = spec.Step(have)
	p.Spec, p.Nodes, p.Notes, p.Held = spec, nodes.all, slices.Concat(p.Notes, notes), append(p.Held, held...)
	p.Ops = slices.Concat(Diff(spec, have), obtain, in.surplus(members, spec))
	return p
}

// PortsOf are the ports that listeners lead to or check, sorted.
func PortsOf(listeners []Listener) (ports []int) {
	for _, l := range listeners {
		ports = append(ports, l.DestinationPort, l.Check.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// refused is [Input.Refused], if there is one.
func (in Input) refused(op Op) error {
	if in.Refused == nil {
		return nil
	}
	return in.Refused(op)
}

// resolve finds the certificates of the members. One that needs a certificate which is not there
// yet or can't be used is frozen; the notes say why, by member, and the ops are what obtains it.
func (in Input) resolve(members []Member) (obtain []Op, notes [][]Note) {
	notes = make([][]Note, len(members))
	for i := range members {
		m := &members[i]
		if m.Standing != Wanted {
			continue
		}
		if !m.Parsed {
			m.Standing = Frozen
			continue
		}
		if len(m.Spec.Barred) > 0 && !m.Holds {
			continue // its certificates do not matter
		}
		spec, ops, unusable := m.Spec.Resolve(in.Certificates)
		failed := len(unusable) > 0
		ops = slices.DeleteFunc(ops, func(op Op) bool { return failed && in.refused(op) != nil })
		obtain, notes[i] = append(obtain, ops...), unusable
		if len(ops)+len(unusable) > 0 {
			m.Standing = Frozen
		} else {
			m.Spec = spec
		}
	}
	return obtain, notes
}

// addressed puts the primary IPs into the spec that were found, and returns false if no load
// balancer may be created with them, or without.
func (in Input) addressed(spec Spec, p *Plan) (Spec, bool) {
	if !in.Looked && len(spec.UnknownPrimaryIPs(in.Have)) > 0 {
		return spec.RememberedPrimaryIPs(in.Have), true // nobody has looked
	}
	spec, notes := spec.WithPrimaryIPs(in.Have, in.PrimaryIPs)
	p.Notes = slices.Concat(p.Notes, notes)
	isError := func(n Note) bool { return n.Grade == Error }
	return spec, in.Have.Exists() || !slices.ContainsFunc(notes, isError)
}

// surplus are the members' managed certificates that nothing needs any more. Those of ports that a
// member does not get stay: another Service may leave them to it.
func (in Input) surplus(members []Member, spec Spec) (ops []Op) {
	for i, m := range members {
		if m.Standing == Wanted && in.Members[i].NeedsCertificates() {
			wanted := Spec{Owner: m.Spec.Owner, Listeners: slices.Concat(spec.Listeners, m.Spec.Listeners)}
			ops = append(ops, Surplus(wanted, in.Certificates, in.Have.ID)...)
		}
	}
	return ops
}

// aim is which nodes can be targets of a load balancer.
type aim struct {
	all       []Node // those that become targets, or stay
	preferred []Node
	excluded  []Node // on dedicated servers, which some member knows and not all admit
	pods      []Target
	unknown   bool // no member says which
}

// nodes chooses among those that the selectors of all members admit. One that may only stay does so
// if it is a target, or if an address that no Node has may be its own.
func (in Input) nodes(members []Member, common []Node) aim {
	a := aim{unknown: true}
	staying, preferred, excluded := make(map[string]bool), make(map[string]bool), make(map[string]Node)
	for _, m := range members {
		for _, n := range m.Staying {
			staying[n.Name] = true
		}
		for _, n := range m.Preferred {
			preferred[n.Name] = true
		}
		for _, n := range slices.Concat(m.Nodes, m.Staying, m.Spec.Excluded) {
			if n.Server == 0 {
				excluded[n.Name] = n
			}
		}
		a.unknown, a.pods = a.unknown && m.AnyNode, append(a.pods, m.Pods...)
	}
	for _, n := range common {
		delete(excluded, n.Name)
	}
	a.excluded = slices.SortedFunc(maps.Values(excluded), Node.compare)
	strangers := in.Have.Strangers(slices.Concat(common, a.excluded))
	for _, n := range common {
		isTarget := slices.ContainsFunc(n.Targets(), func(t Target) bool { return slices.Contains(in.Have.Targets, t) })
		if staying[n.Name] && !isTarget && (len(n.Targets()) > 0 || len(strangers) == 0) {
			continue
		}
		a.all = append(a.all, n)
		if preferred[n.Name] {
			a.preferred = append(a.preferred, n)
		}
	}
	return a
}

// aimedAt returns the spec with its targets. Where it is not known how these are to be reached,
// each is reached as it is.
func (s Spec) aimedAt(a aim, have State) Spec {
	s.Excluded = a.excluded
	if s.PodTargets {
		return s.WithPods(a.pods)
	}
	s = s.WithTargets(a.all)
	if s.AsFound {
		s = s.asFound(have.Targets, s.UsePrivateIP)
	}
	return s
}

// rollout says how targets change. Where Services share, a Service without a ready endpoint says
// nothing of the targets of others.
func (in Input) rollout(members []Member, parts []Part) Rollout {
	longest := time.Duration(0)
	for _, l := range in.Have.Listeners {
		longest = max(longest, l.Check.Verdict())
	}
	overdue := make(map[Target]bool)
	for t, since := range in.Unhealthy {
		overdue[t] = !in.Now.Before(since.Add(longest))
	}
	var each []func(Target) bool
	for i, m := range members {
		if len(members) == 1 || len(parts[i].Listeners) > 0 && !m.Idle() {
			preferred := targetsOf(m.Preferred)
			each = append(each, func(t Target) bool { return t.Pod() || !m.Follows || preferred[t] })
		}
	}
	all := func(t Target) bool {
		return !slices.ContainsFunc(each, func(expected func(Target) bool) bool { return !expected(t) })
	}
	anyOf := func(t Target) bool {
		return slices.ContainsFunc(each, func(expected func(Target) bool) bool { return expected(t) })
	}
	return Rollout{Expected: all, Possible: anyOf, Overdue: overdue}
}
