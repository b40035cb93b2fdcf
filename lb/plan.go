package lb

import (
	"maps"
	"slices"
	"time"
)

// Standing is how a Service takes part in a load balancer.
type Standing int

const (
	// Wanted: the load balancer serves the ports that the Service requests.
	Wanted Standing = iota
	// Frozen: the Service could not be parsed, or cannot be served now. Its existing listeners are
	// kept, follow its current node ports, and are removed without one.
	Frozen
	// Closing: the Service moves to another load balancer that does not serve it yet. Its
	// listeners are kept as if Frozen, and its settings are ignored.
	Closing
)

// Member is a Service that a load balancer serves or is going to serve.
type Member struct {
	// Service is the Kubernetes object; unless Parsed, it only defines the ports.
	Service Service
	// Spec is the Service's own request; unless Parsed, only Owner, Namespace and Service are set.
	Spec     Spec
	Parsed   bool
	Standing Standing
	// Notes are about the Service alone.
	Notes []Note

	// Nodes may become targets, Staying may remain targets, and Preferred have an endpoint.
	Nodes, Staying, Preferred []Node
	// Follows: only Preferred nodes can be healthy.
	Follows bool
	// AnyNode: the Service's node selector is unknown.
	AnyNode bool
	// Pods are the targets of a Service with PodTargets.
	Pods []Target
	// Holds: the Service has or may have a load balancer.
	Holds bool
	// HadManaged: the Service may have a managed certificate that it no longer needs.
	HadManaged bool
}

func (m Member) uid() string { return m.Spec.Owner.UID }

func (m Member) name() string { return m.Spec.Namespace + "/" + m.Spec.Service }

// decides reports whether the Service has a vote on settings that a load balancer has once.
func (m Member) decides() bool { return m.Parsed && m.Standing != Closing }

// Idle reports whether no target can be healthy because the Service has no ready endpoint.
func (m Member) Idle() bool { return m.Follows && len(m.Preferred) == 0 }

// NeedsCertificates reports whether planning requires the project's certificates.
func (m Member) NeedsCertificates() bool {
	return m.decides() && (m.Spec.NeedsCertificates() || m.HadManaged)
}

// Part is a Service's part of a load balancer.
type Part struct {
	Listeners []Listener
	Notes     []Note
}

// Input is everything that the plan of a load balancer depends on.
type Input struct {
	Owner Owner
	// Members are the Services, oldest first: exactly one unless Owner is a group.
	Members []Member
	Have    State
	// Certificates are the project's; nil if no member needs them.
	Certificates []Certificate
	// PrimaryIPs are the existing primary IPs of [Spec.UnknownPrimaryIPs], if Looked.
	PrimaryIPs []PrimaryIP
	Looked     bool
	// Taken are names of the Services' other load balancers, which are not deleted yet.
	Taken []string
	// Refused returns why the cloud refused an op recently, or nil. Refused may be nil.
	Refused func(Op) error
	// Rolling: targets change step by step, by [Rollout], and Unhealthy is since when each target
	// has not been healthy. Otherwise the plan contains all differences.
	Rolling   bool
	Unhealthy map[Target]time.Time
	Now       time.Time
}

// Plan is the desired load balancer and the ops that produce it.
type Plan struct {
	Spec  Spec
	Parts []Part // of the members, in their order
	Ops   []Op
	// Notes are about all members, or about Note.About.
	Notes []Note
	// Refused: there is no load balancer and none may be created; notes have the reasons.
	Refused bool
	// Waits: further ops follow after health checks have judged the result of these.
	Waits bool
	// Again: the next step follows immediately.
	Again bool
	// Opens are the ports of pods that must be reachable.
	Opens []int
	// Held are the cloud's refusals that the plan works around.
	Held []error
}

// Part returns a member's part; the zero Part if nothing was planned.
func (p Plan) Part(i int) Part {
	if i < len(p.Parts) {
		return p.Parts[i]
	}
	return Part{}
}

// Plan compares the members' requests with the existing load balancer.
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
		if members[i].Standing == Frozen && len(m.parts[i].Listeners) > 0 &&
			(!members[i].Parsed || len(notes) > 0) {
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
	p.Spec, p.Notes, p.Held = spec, slices.Concat(p.Notes, notes), append(p.Held, held...)
	p.Ops = slices.Concat(Diff(spec, have), obtain, in.surplus(members, spec))
	return p
}

// PortsOf returns the destination and health check ports of listeners, sorted.
func PortsOf(listeners []Listener) (ports []int) {
	for _, l := range listeners {
		ports = append(ports, l.DestinationPort, l.Check.Port)
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func (in Input) refused(op Op) error {
	if in.Refused == nil {
		return nil
	}
	return in.Refused(op)
}

// resolve resolves the members' certificates and freezes each member with a certificate that is
// missing or unusable. It returns the ops that obtain certificates, and notes by member.
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
			continue // its certificates are not used
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

// addressed adds the found primary IPs to the spec, and reports whether a load balancer may be
// created with the result.
func (in Input) addressed(spec Spec, p *Plan) (Spec, bool) {
	if !in.Looked && len(spec.UnknownPrimaryIPs(in.Have)) > 0 {
		return spec.RememberedPrimaryIPs(in.Have), true // not looked up yet
	}
	spec, notes := spec.WithPrimaryIPs(in.Have, in.PrimaryIPs)
	p.Notes = slices.Concat(p.Notes, notes)
	isError := func(n Note) bool { return n.Grade == Error }
	return spec, in.Have.Exists() || !slices.ContainsFunc(notes, isError)
}

// surplus returns ops that delete the members' unneeded managed certificates. Certificates for
// ports that a member does not get are kept, because it may get the ports later.
func (in Input) surplus(members []Member, spec Spec) (ops []Op) {
	for i, m := range members {
		if m.Standing == Wanted && in.Members[i].NeedsCertificates() {
			wanted := Spec{Owner: m.Spec.Owner, Listeners: slices.Concat(spec.Listeners, m.Spec.Listeners)}
			ops = append(ops, Surplus(wanted, in.Certificates, in.Have.ID)...)
		}
	}
	return ops
}

// aim are the nodes and pods that can be targets of a load balancer.
type aim struct {
	all       []Node // to add or keep
	preferred []Node
	excluded  []Node // on dedicated servers, nodes of a member that not all selectors admit
	pods      []Target
	unknown   bool // no member has a known selector
}

// nodes chooses among the nodes that the selectors of all members admit. A node in Staying is
// chosen if it is a target, or if it has no address and a target has an address that no Node has.
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
		isTarget := slices.ContainsFunc(n.Targets(), func(t Target) bool {
			return slices.Contains(in.Have.Targets, t)
		})
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

// aimedAt sets the spec's targets. If AsFound, each target is reached as it is now.
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

// rollout returns the rules by which targets change. On a shared load balancer, a Service without
// ready endpoints does not limit the targets of the other Services.
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
