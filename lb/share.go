package lb

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// share merges the members' requests into the load balancer that they share, and computes each
// member's part.
//
//	a port                           the oldest Service that requests it
//	name, type, algorithm, …         the oldest that sets it by an annotation
//	nodes                            admitted by the selectors of all Services that have a port
//	room for ports and certificates  the oldest first
//
// Everything depends on age only, so the order in which Services are created, changed and deleted
// does not matter. The only exception avoids closing ports, which costs traffic: a type that is
// too small for the open ports is not used.
//
// The spec has no targets yet: its Nodes are the admitted nodes.
func share(in Input, members []Member) *merger {
	idle := make([]bool, len(members))
	m := merge(in, members, idle)
	for m.leaveIdle() { // without idle selectors, other Services may have common nodes
		m = merge(in, members, idle)
	}
	if slices.Contains(in.Taken, m.spec.Name) {
		m.spec.Name = cmp.Or(in.Have.Name, in.Owner.DefaultName())
	}
	for _, member := range members {
		if member.Parsed || member.Standing == Closing ||
			slices.Contains(in.Have.Services(), member.uid()) {
			m.spec.Sharers = append(m.spec.Sharers, member.uid())
		}
	}
	for field, i := range m.deciders {
		m.spec.Deciders[field] = members[i].uid()
	}
	return m
}

// merge merges the requests; idle Services get no port.
func merge(in Input, members []Member, idle []bool) *merger {
	m := &merger{
		Input: in, sharers: members, have: in.Have, idle: idle,
		parts: make([]Part, len(members)), apart: make([]bool, len(members)),
		deciders: make(map[string]int),
	}
	if in.Owner.Group == "" {
		m.alone()
	} else {
		m.settings()
		m.keepRefusedType()
	}
	m.nodes()
	if in.Owner.Group != "" {
		m.roomFor()
	}
	m.ports()
	return m
}

type merger struct {
	Input
	sharers []Member
	have    State
	spec    Spec
	parts   []Part
	apart   []bool // by member: it has no node in common with older Services
	idle    []bool // by member: it has no port, so its selector is ignored
	crowded bool   // a single Service has more than the type holds
	held    []error
	// deciders are, by annotation, the members that decide settings of the load balancer.
	deciders map[string]int
}

// alone merges a Service that does not share. A type that is too small for it is not used. While
// the Service is frozen or its load balancer has no room for it, only ports and targets change.
func (m *merger) alone() {
	s := &m.sharers[0]
	if m.spec = s.Spec; s.decides() {
		m.keepRefusedType()
		adopted, _ := m.spec.keep(m.have) // it may have another type
		if notes := adopted.crowded(); len(notes) > 0 {
			if m.spec.Type = m.have.Type; len(m.held) == 0 {
				m.parts[0].Notes = notes
			}
			m.crowded = len(m.spec.crowded()) > 0
		}
	}
	if !s.decides() ||
		m.have.Exists() && (m.crowded || s.Standing == Frozen || len(s.Spec.Barred) > 0) {
		m.spec = s.asFound(m.have)
		s.Service.PodTargets = m.spec.PodTargets
	}
}

// keepRefusedType keeps the current type while the cloud refuses to change it.
func (m *merger) keepRefusedType() {
	if m.have.Exists() && m.spec.Type != m.have.Type {
		if err := m.refused(ChangeType{Type: m.spec.Type}); err != nil {
			m.held, m.spec.Type = append(m.held, err), m.have.Type
		}
	}
}

// asFound returns the spec of a load balancer while its Service's settings do not apply.
func (m Member) asFound(have State) Spec {
	s := Spec{
		Owner: m.Spec.Owner, Subject: Subject{Namespace: m.Spec.Namespace, Service: m.Spec.Service},
		Adopted: Adopted{AsFound: true}, Network: have.Network,
	}
	for _, setting := range sharedSettings() {
		setting.keep(&s, have)
	}
	s.UsePrivateIP = s.UsePrivateIP || !have.Public
	s.PodTargets = slices.ContainsFunc(have.Targets, Target.Pod) ||
		len(have.Targets) == 0 && m.Service.PodTargets
	return s
}

func (m *merger) addNote(i int, n Note) { m.parts[i].Notes = append(m.parts[i].Notes, n) }

// leaveIdle marks Services without any port, whatever their selectors, and reports whether it
// found more of them.
func (m *merger) leaveIdle() (more bool) {
	if len(m.spec.Listeners) == 0 {
		return false
	}
	for i, part := range m.parts {
		if len(part.Listeners) == 0 && !m.apart[i] && !m.idle[i] {
			m.idle[i], more = true, true
		}
	}
	return more
}

// nodes intersects the nodes that the selectors of Services with a port admit. A Service with a
// selector that leaves no node in common with older Services is not served.
func (m *merger) nodes() {
	started := false
	for i, s := range m.sharers {
		if s.AnyNode || m.idle[i] {
			continue
		}
		admitted := slices.Concat(s.Nodes, s.Staying)
		common := admitted
		if started {
			common = inCommon(m.spec.Nodes, admitted)
		}
		switch {
		case !started || len(common) > 0 || len(m.spec.Nodes) == 0:
			m.spec.Nodes, started = common, true
		case s.decides():
			m.apart[i] = true
			m.addNote(i, errorNote(ReasonNoCommonNode, AnnotationNodeSelector, s.Spec.NodeSelector,
				"the load balancer is shared, and no node matches this and the selectors of the "+
					"older Services that share it, so this Service is not served: change the "+
					"selector, or use a load balancer of its own"))
		}
	}
}

// inCommon returns the nodes in both lists, with the addresses that both have.
func inCommon(a, b []Node) (common []Node) {
	byName := make(map[string]Node, len(b))
	for _, n := range b {
		byName[n.Name] = n
	}
	for _, n := range a {
		other, ok := byName[n.Name]
		if !ok {
			continue
		}
		// A Service of the two has no IPv6.
		if n.Public != other.Public {
			n.Public = netip.Addr{}
		}
		common = append(common, n)
	}
	return common
}

// claims returns the listeners that a Service requests or keeps.
func (m *merger) claims(i int) []Listener {
	s := m.sharers[i]
	switch {
	case m.apart[i]:
		return nil
	case s.Standing == Wanted && len(s.Spec.Barred) == 0 && !m.crowded:
		return s.Spec.Listeners
	}
	return s.Service.frozen(m.open(s))
}

func (m *merger) open(s Member) []Listener {
	if m.Owner.Group == "" {
		return m.have.Listeners
	}
	return m.have.Only(s.uid()).Listeners
}

// frozen returns the listeners to keep for a Service that may not get new listeners. Each follows
// the current node port of its port. If the Service no longer has the port, the listener is kept
// while its node port is the Service's, because Kubernetes may give the node port to another
// Service afterwards. A check of policy Local follows the Service's health check node port for the
// same reason.
func (s Service) frozen(have []Listener) (kept []Listener) {
	for _, l := range have {
		to := 0
		for _, p := range s.Ports {
			if p.Protocol == "TCP" && (p.Number == l.Port || to == 0 && p.NodePort == l.DestinationPort) {
				to = p.NodePort
			}
		}
		if s.PodTargets {
			to = l.DestinationPort // pods always belong to the Service
		}
		checksNodes := l.Check.Protocol == ProtocolHTTP && l.Check.Path == healthPath && !l.Check.TLS &&
			l.Check.Port != kubeProxyHealthPort
		explicit := s.Annotations[annotationCheckPort] != "" || s.Annotations[AnnotationPorts] != ""
		switch {
		case to == 0:
			continue
		case l.Check.Port == l.DestinationPort:
			l.Check.Port = to
		case checksNodes && !explicit && !s.PodTargets:
			l.Check.Port = cmp.Or(s.HealthCheckNodePort, kubeProxyHealthPort)
		}
		l.DestinationPort = to
		kept = append(kept, l)
	}
	return kept
}

// roomFor keeps the current type if the decided type is too small for the open ports.
func (m *merger) roomFor() {
	want := LimitsOf(m.spec.Type)
	if !m.have.Exists() || LimitsOf(m.have.Type).Listeners <= want.Listeners {
		return
	}
	open, certificates := 0, make(map[string]bool)
	for i, s := range m.sharers {
		claimed := ByPort(m.claims(i))
		for _, l := range m.open(s) {
			if _, ok := claimed[l.Port]; ok {
				open++
				certificatesOf(l, certificates)
			}
		}
	}
	if open <= want.Listeners && len(certificates) <= want.Certificates {
		return
	}
	decider, requested := m.deciders[AnnotationType]
	note := warningNote(ReasonInvalid, AnnotationType, m.spec.Type,
		"the type carries %d ports and %d certificates, and the load balancer, which is shared, "+
			"serves %d and %d: it stays %s; let the oldest Service that shares it set a larger "+
			"type, or leave it",
		want.Listeners, want.Certificates, open, len(certificates), m.have.Type)
	if requested {
		note.Grade = Error
	}
	for i := range m.sharers {
		if !requested || i == decider {
			m.addNote(i, note)
		}
	}
	m.spec.Type = m.have.Type
}

func certificatesOf(l Listener, into map[string]bool) {
	for id := range strings.SplitSeq(l.HTTP.Certificates, ",") {
		if id != "" {
			into[id] = true
		}
	}
}

// ports assigns the ports to the Services, oldest first, while there is room.
func (m *merger) ports() {
	limits := LimitsOf(m.spec.Type)
	if m.Owner.Group == "" {
		limits = LimitsOf("") // alone checks the limits
	}
	m.spec.Listeners = nil
	owners := make(map[int]int)
	certificates := make(map[string]bool)
	barred := false
	for i, s := range m.sharers {
		for _, l := range m.claims(i) {
			more := maps.Clone(certificates)
			certificatesOf(l, more)
			switch j, taken := owners[l.Port]; {
			case taken:
				m.conflict(i, j, fmt.Sprintf("%d/TCP", l.Port))
				continue
			case len(m.spec.Listeners) >= limits.Listeners:
				m.noRoom(i, l.Port, fmt.Sprintf("%d ports", limits.Listeners))
				continue
			case len(more) > limits.Certificates && len(more) > len(certificates):
				m.noRoom(i, l.Port, fmt.Sprintf("%d certificates", limits.Certificates))
				continue
			}
			if j, taken := owners[redirectPort]; l.HTTP.Redirect && taken {
				m.conflict(i, j, fmt.Sprintf("%d/TCP, for the redirect", redirectPort))
				l.HTTP.Redirect = false
			}
			owners[l.Port], certificates = i, more
			if l.HTTP.Redirect {
				owners[redirectPort] = i
			}
			m.spec.Listeners = append(m.spec.Listeners, l)
			m.parts[i].Listeners = append(m.parts[i].Listeners, l)
		}
		if s.Standing == Wanted {
			m.parts[i].Notes = slices.Concat(s.Spec.Barred, m.parts[i].Notes)
			barred = barred || len(s.Spec.Barred) > 0 && len(m.parts[i].Listeners) > 0
		}
	}
	// A Service that may not have a load balancer must not become reachable for more clients.
	if barred {
		m.spec.Public = m.spec.Public && m.have.Public
	}
	if m.Owner.Group != "" {
		for port, i := range owners {
			m.spec.PortOwners[port] = m.sharers[i].uid()
		}
		m.spec.Certificates = slices.Sorted(maps.Keys(certificates))
	}
	slices.SortFunc(m.spec.Listeners, byPort)
}

func (m *merger) conflict(younger, older int, port string) {
	m.addNote(younger, errorNote(ReasonPortConflict, "spec.ports", port,
		"the load balancer is shared, and this port is that of the Service %s, which is older: "+
			"use another port, or a load balancer of its own", m.sharers[older].name()))
	m.addNote(older, warningNote(ReasonPortConflict, "spec.ports", port,
		"the Service %s, which shares the load balancer, requests this port too, and does not get "+
			"it because it is younger: let it use another port, or a load balancer of its own",
		m.sharers[younger].name()))
}

func (m *merger) noRoom(i, port int, most string) {
	m.addNote(i, errorNote(ReasonNoRoom, "spec.ports", fmt.Sprintf("%d/TCP", port),
		"the load balancer is shared, its type %s carries %s, and those of older Services take "+
			"them: let the oldest Service that shares it set a larger %s, or use a load balancer "+
			"of its own", m.spec.Type, most, AnnotationType))
}
