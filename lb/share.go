package lb

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// Standing is how a Service takes part in a group.
type Standing int

const (
	// Joined: the Service gets what it asks for, if nothing older stands in the way.
	Joined Standing = iota
	// Held: the Service says what it wants, and its ports stay as they are for now.
	Held
	// Refused: nobody knows what the Service wants. Its ports stay as they are, and so does what it
	// may have decided.
	Refused
	// Leaving: the Service does not share any more. Its ports stay until it is served otherwise.
	Leaving
)

// Sharer is a Service of a group, as [Share] needs it.
type Sharer struct {
	// Spec is what the Service alone would ask for. Its Nodes are those that its selector admits.
	// Of one that is refused only Owner, the names and Nodes count.
	Spec     Spec
	Standing Standing
	// AnyNode: the Service's selector is not known.
	AnyNode bool
}

func (s Sharer) uid() string { return s.Spec.Owner.UID }

func (s Sharer) name() string { return s.Spec.Namespace + "/" + s.Spec.Service }

// parsed reports whether it is known what the Service asks for.
func (s Sharer) parsed() bool { return s.Standing == Joined || s.Standing == Held }

// Part is what a Service has of a load balancer that it shares.
type Part struct {
	// Listeners are those of its ports.
	Listeners []Listener
	// Unopened are the ports that it asks for and does not get.
	Unopened []int
	Notes    []Note
}

// Share merges what the Services of a group ask for, oldest first, into the load balancer of the
// group, and says what each of them has of it.
//
//	a port                           the oldest that asks for it
//	name, type, algorithm, …         the oldest that sets it by an annotation
//	nodes                            those that the selectors admit of all that have a port
//	room for ports and certificates  the oldest
//
// Whatever is decided, it is decided by age alone, so that it does not matter in which order Services
// come, change and go. There is one exception, because closing a port costs traffic: a type that is
// too small for the ports that are open is not taken.
//
// The spec has no targets yet: its Nodes are what the selectors admit.
func Share(owner Owner, sharers []Sharer, have State) (Spec, []Part) {
	idle := make([]bool, len(sharers))
	m := merge(owner, sharers, have, idle)
	for m.leaveIdle() { // without their selectors, others may have nodes in common
		m = merge(owner, sharers, have, idle)
	}
	for i, s := range sharers {
		if s.parsed() || s.Standing == Leaving || slices.Contains(have.Services(), s.uid()) {
			m.spec.Sharers = append(m.spec.Sharers, sharers[i].uid())
		}
	}
	for field, i := range m.deciders {
		m.spec.Deciders[field] = sharers[i].uid()
	}
	return m.spec, m.parts
}

// merge decides everything for Services of which those that are idle have no port.
func merge(owner Owner, sharers []Sharer, have State, idle []bool) *merger {
	m := &merger{
		owner: owner, sharers: sharers, have: have, idle: idle,
		parts: make([]Part, len(sharers)), apart: make([]bool, len(sharers)), deciders: make(map[string]int),
	}
	m.settings()
	m.nodes()
	m.roomFor()
	m.ports()
	return m
}

type merger struct {
	owner   Owner
	sharers []Sharer
	have    State
	spec    Spec
	parts   []Part
	apart   []bool // has no node in common with the older ones
	idle    []bool // has no port, so that its selector must not take nodes from those that have one
	// deciders are who sets what a load balancer has once, by the annotation.
	deciders map[string]int
}

func (m *merger) tell(i int, grade Grade, reason, field, value, text string) {
	m.parts[i].Notes = append(m.parts[i].Notes, Note{Grade: grade, Reason: reason, Field: field, Value: value, Text: text})
}

// leaveIdle finds the Services that have no port, whatever their selectors, and reports whether any
// was not known to be one.
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

// nodes finds those that the selectors admit of all that have a port. A selector that leaves none of those that the older
// Services admit is not followed, and its Service not served.
func (m *merger) nodes() {
	started := false
	for i, s := range m.sharers {
		if s.AnyNode || m.idle[i] {
			continue
		}
		common := s.Spec.Nodes
		if started {
			common = inCommon(m.spec.Nodes, s.Spec.Nodes)
		}
		switch {
		case !started || len(common) > 0 || len(m.spec.Nodes) == 0:
			m.spec.Nodes, started = common, true
		case s.parsed():
			m.apart[i] = true
			m.tell(i, Error, ReasonNoCommonNode, AnnotationNodeSelector, s.Spec.NodeSelector,
				"the load balancer is shared, and no node matches this and the selectors of the older Services that share it, so this Service is not served: change the selector, or use a load balancer of its own")
		}
	}
}

// inCommon are the nodes that are in both lists, as they are reached for both.
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
		if n.Public != other.Public { // one of the Services has no IPv6
			n.Public = netip.Addr{}
		}
		common = append(common, n)
	}
	return common
}

// claims are the listeners that a Service asks for, or keeps.
func (m *merger) claims(i int) []Listener {
	s := m.sharers[i]
	own := m.have.Only(s.uid()).Listeners
	switch {
	case m.apart[i]:
		return nil
	case s.Standing != Joined:
		return own
	case len(s.Spec.Barred) == 0:
		return s.Spec.Listeners
	}
	// More than it has may not be served.
	wanted := ByPort(s.Spec.Listeners)
	var bounded []Listener
	for _, old := range own {
		if want, ok := wanted[old.Port]; ok {
			want.HTTP.Redirect = want.HTTP.Redirect && old.HTTP.Redirect
			bounded = append(bounded, want)
		}
	}
	return bounded
}

// roomFor keeps the type if the one that is decided is too small for what is open.
func (m *merger) roomFor() {
	want, known := LimitsOf(m.spec.Type)
	has, hasKnown := LimitsOf(m.have.Type)
	if !known || !m.have.Exists() || hasKnown && has.Listeners <= want.Listeners {
		return
	}
	open, certificates := 0, make(map[string]bool)
	for i, s := range m.sharers {
		claimed := ByPort(m.claims(i))
		for _, l := range m.have.Only(s.uid()).Listeners {
			if _, ok := claimed[l.Port]; ok {
				open++
				certificatesOf(l, certificates)
			}
		}
	}
	if open <= want.Listeners && len(certificates) <= want.Certificates {
		return
	}
	decider, asked := m.deciders[AnnotationType]
	for i := range m.sharers {
		grade := Warning // nobody asked for it
		if asked && i != decider {
			continue
		}
		if asked {
			grade = Error
		}
		m.tell(i, grade, ReasonInvalid, AnnotationType, m.spec.Type,
			fmt.Sprintf("the type carries %d ports and %d certificates, and the load balancer, which is shared, serves %d and %d: it stays %s; let the oldest Service that shares it set a larger type, or leave it",
				want.Listeners, want.Certificates, open, len(certificates), m.have.Type))
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

// ports gives the ports to the Services, oldest first, while there is room.
func (m *merger) ports() {
	limits, known := LimitsOf(m.spec.Type)
	owners := make(map[int]int)
	certificates := make(map[string]bool)
	barred := false
	for i, s := range m.sharers {
		unopened := func(port int) { m.parts[i].Unopened = append(m.parts[i].Unopened, port) }
		wanted := m.claims(i)
		for _, l := range wanted {
			more := maps.Clone(certificates)
			certificatesOf(l, more)
			refused := true
			switch j, taken := owners[l.Port]; {
			case taken:
				m.conflict(i, j, fmt.Sprintf("%d/TCP", l.Port))
			case known && len(m.spec.Listeners) >= limits.Listeners:
				m.noRoom(i, l.Port, fmt.Sprintf("%d ports", limits.Listeners))
			case known && len(more) > limits.Certificates && len(more) > len(certificates):
				m.noRoom(i, l.Port, fmt.Sprintf("%d certificates", limits.Certificates))
			default:
				refused = false
			}
			if refused {
				unopened(l.Port)
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
		if s.Standing == Joined {
			open := ByPort(wanted)
			for _, l := range s.Spec.Listeners {
				if _, ok := open[l.Port]; !ok {
					unopened(l.Port)
				}
			}
			slices.Sort(m.parts[i].Unopened)
			barred = barred || len(s.Spec.Barred) > 0 && len(m.parts[i].Listeners) > 0
		}
	}
	if barred { // it may not come to serve more people either
		m.spec.Public = m.spec.Public && m.have.Public
	}
	for port, i := range owners {
		m.spec.PortOwners[port] = m.sharers[i].uid()
	}
	m.spec.Certificates = slices.Sorted(maps.Keys(certificates))
	slices.SortFunc(m.spec.Listeners, func(a, b Listener) int { return a.Port - b.Port })
}

// conflict tells both Services of a port that both ask for.
func (m *merger) conflict(younger, older int, port string) {
	m.tell(younger, Error, ReasonPortConflict, "spec.ports", port,
		fmt.Sprintf("the load balancer is shared, and this port is that of the Service %s, which is older: use another port, or a load balancer of its own", m.sharers[older].name()))
	m.tell(older, Warning, ReasonPortConflict, "spec.ports", port,
		fmt.Sprintf("the Service %s, which shares the load balancer, asks for this port too, and does not get it because it is younger: let it use another port, or a load balancer of its own", m.sharers[younger].name()))
}

func (m *merger) noRoom(i, port int, most string) {
	m.tell(i, Error, ReasonNoRoom, "spec.ports", fmt.Sprintf("%d/TCP", port),
		fmt.Sprintf("the load balancer is shared, its type %s carries %s, and those of older Services take them: let the oldest Service that shares it set a larger %s, or use a load balancer of its own", m.spec.Type, most, AnnotationType))
}
