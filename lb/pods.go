package lb

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// AnnotationTargets selects the targets of a Service's load balancer: nodes or pods.
const AnnotationTargets = OwnPrefix + "targets"

const (
	targetsNodes = "nodes"
	targetsPods  = "pods"
)

// WantsPods reports whether a Service requests its pods as targets.
func WantsPods(annotations map[string]string) bool {
	return annotations[AnnotationTargets] == targetsPods
}

// MayMeanPods reports whether a Service requests its pods as targets, or has an invalid value:
// until it is corrected, pods that are targets are kept up to date.
func MayMeanPods(annotations map[string]string) bool {
	value := strings.TrimSpace(annotations[AnnotationTargets])
	return value != "" && value != targetsNodes
}

// Pods are the ready endpoints of a Service, as targets.
type Pods struct {
	// Targets are the pods with an address that the cloud routes to their node's server, in order.
	Targets []Target
	// Others are the names of all other pods, in order.
	Others []string
	// IPv4Only: the Service has no IPv6 address, and so no IPv6 endpoints.
	IPv4Only bool
	// NoPool: no pool gives nodes prefixes from their server's own /64.
	NoPool bool
}

// Choose reports whether the targets of a Service that requests pods are pods. Otherwise they are
// nodes, and the note has the reason.
//
// A load balancer with pods as targets keeps them while at least one pod can be a target; a load
// balancer with nodes switches when all pods can: each switch interrupts traffic until the first
// target is healthy.
func (p Pods) Choose(have State) (pods bool, notes []Note) {
	note := func(figures, text string) []Note {
		return []Note{
			{
				Grade: Error, Reason: ReasonPodsNotTargets, Field: AnnotationTargets, Value: targetsPods,
				Text: text, Figures: figures,
			},
		}
	}
	others := andMore(p.Others)
	switch hasPods := slices.ContainsFunc(have.Targets, Target.Pod); {
	case p.IPv4Only:
		return false, note("",
			"the Service has no IPv6 address, and pods are reached at theirs, so nodes are the "+
				"targets: set spec.ipFamilyPolicy to PreferDualStack, or this to nodes")
	case p.NoPool:
		return false, note("",
			"no pool has source: node, so that no pod has an address which the cloud routes to "+
				"its server, and nodes are the targets: add such a pool, or set this to nodes")
	case len(p.Targets) == 0 && len(p.Others) > 0:
		return false, note(others,
			"no ready pod has an IPv6 address out of its cloud server's own /64, so nodes are the "+
				"targets: let pods run on nodes with a prefix of a pool with source: node, or set "+
				"this to nodes")
	case !hasPods && len(have.Targets) > 0 && (len(p.Others) > 0 || len(p.Targets) == 0):
		return false, note(others,
			"nodes stay the targets until there are ready pods, and each has an IPv6 address out "+
				"of its cloud server's own /64: let pods run on nodes with a prefix of a pool "+
				"with source: node, or set this to nodes")
	case len(p.Others) > 0:
		return true, note(others,
			"a ready pod without an IPv6 address out of its cloud server's own /64 is no target: "+
				"let pods run on nodes with a prefix of a pool with source: node")
	}
	return true, nil
}

func andMore(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0]
	}
	return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
}

// WithPods returns the spec with these pods as its targets, sorted and without duplicates.
func (s Spec) WithPods(pods []Target) Spec {
	s.Targets = slices.Compact(slices.SortedFunc(slices.Values(pods), Target.Compare))
	return s
}

// Step returns the next step of a change from nodes to pods or back, and whether another step
// follows. A listener forwards to the same port of all targets, so nodes and pods cannot serve
// together. New targets are added before the listeners change, so that they are checked as early
// as possible, and so that nothing else changes if the cloud refuses them all. Old targets are
// useless after that.
//
//	wanted targets   listeners    step
//	none             –            none; the existing targets serve
//	none present     –            add them as far as there is room
//	some present     old ports    change the listeners
//	some present     new ports    everything else
func (s Spec) Step(have State) (step Spec, more bool) {
	other := slices.DeleteFunc(slices.Clone(have.Targets), func(t Target) bool {
		return t.Pod() == s.PodTargets
	})
	if !have.Exists() || len(other) == 0 {
		return s, false
	}
	present, wanted := setOf(have.Targets), slices.Clone(s.Targets)
	arrived := slices.ContainsFunc(wanted, func(t Target) bool { return present[t] })
	open := ByPort(have.Listeners)
	leads := !slices.ContainsFunc(s.Listeners, func(l Listener) bool {
		old, ok := open[l.Port]
		return ok && old.DestinationPort != l.DestinationPort
	})
	if arrived && leads {
		return s, false
	}
	step = s
	step.Public = s.Public || have.Public
	step.Targets = slices.Clone(have.Targets)
	if arrived {
		return step, true
	}
	step.Listeners = slices.Clone(have.Listeners)
	if len(wanted) > 0 {
		room := LimitsOf(have.Type).Targets - have.OtherTargets
		other = other[:max(0, min(len(other), room-1))]
		wanted = wanted[:max(0, min(len(wanted), room-len(other)))]
	}
	if len(wanted) > 0 {
		step.Type, step.Targets = have.Type, slices.SortedFunc(slices.Values(slices.Concat(other,
			wanted)), Target.Compare)
	}
	return step, len(wanted) > 0
}

// keepPorts keeps the destination port of listeners for a named target port that no pod resolves.
// A new listener is added only after its port is known.
func (s Spec) keepPorts(have State) (Spec, []Note) {
	if !s.PodTargets {
		return s, nil
	}
	open := ByPort(have.Listeners)
	var listeners []Listener
	waiting := false
	for _, l := range s.Listeners {
		old, ok := open[l.Port]
		if l.DestinationPort == 0 {
			waiting = waiting || !ok
			l.DestinationPort = old.DestinationPort
			l.Check.Port = cmp.Or(l.Check.Port, l.DestinationPort)
		}
		if l.DestinationPort != 0 {
			listeners = append(listeners, l)
		}
	}
	s.Listeners = listeners
	if !have.Exists() || !waiting {
		return s, nil
	}
	return s,
		slices.DeleteFunc(slices.Clone(s.Placeless), func(n Note) bool {
			return n.Reason != ReasonTargetPortUnknown
		})
}

// goLast splits removals of targets into those before and those after additions. Pods are removed
// when their replacements exist, except for as many as these need room. Before a change of the
// type, all are removed. Nodes that pods replaced serve no traffic.
func (s Spec) goLast(have State, gone []Op, added int) (first, last []Op) {
	if !s.PodTargets || s.Type != have.Type {
		return gone, nil
	}
	for _, op := range gone {
		if remove, ok := op.(RemoveTarget); ok && remove.Target.Pod() {
			last = append(last, op)
		} else {
			first = append(first, op)
		}
	}
	lack := have.OtherTargets + len(have.Targets) - len(first) + added - LimitsOf(have.Type).Targets
	lack = max(0, min(lack, len(last)))
	return slices.Concat(first, last[:lack]), last[lack:]
}

// podPort reports whether a port of the Service can be forwarded to pods, now or later.
func (p *parser) podPort(port Port) (usable bool) {
	switch len(port.TargetPorts) {
	case 0:
		p.placeless = append(p.placeless, errorNote(ReasonTargetPortUnknown, "spec.ports", port.String(),
			"no pod has a port with the name of the target port, so nothing leads there "+
				"yet: let a pod of the Service be ready, or set a number"))
	case 1:
	default:
		p.refuse(ReasonUnsupported, "spec.ports", port.String(),
			"the target port has the numbers %s on different pods, and a load balancer can use "+
				"one for all: let the name mean one number, or set %s to nodes",
			numbers(port.TargetPorts), AnnotationTargets)
		return false
	}
	return true
}

func numbers(ports []int) string {
	texts := make([]string, len(ports))
	for i, n := range ports {
		texts[i] = fmt.Sprint(n)
	}
	return strings.Join(texts, ", ")
}

// destination returns the port to which a listener forwards; 0: not known yet.
func (p *parser) destination(port Port) int {
	switch {
	case !p.svc.PodTargets:
		return port.NodePort
	case len(port.TargetPorts) == 0:
		return 0
	}
	return port.TargetPorts[0]
}

// pods refuses settings that contradict pods as targets, which are reached at their public
// addresses. Defaults for how nodes are reached do not apply to pods.
func (p *parser) pods() {
	if !p.svc.PodTargets {
		return
	}
	if p.set.UsePrivateIP && p.has(annotationPrivateIP) {
		p.refuse(ReasonInvalid, annotationPrivateIP, p.svc.Annotations[annotationPrivateIP],
			"pods are reached at their public addresses: remove this, or set "+AnnotationTargets+
				" to nodes")
	}
	switch {
	case p.set.publicOff && p.has(annotationPublicOff):
		p.refuse(ReasonInvalid, annotationPublicOff, p.svc.Annotations[annotationPublicOff],
			"pods are reached through the load balancer's public interface: remove this, or set "+
				AnnotationTargets+
				" to nodes")
	case p.set.publicOff:
		p.refuse(ReasonInvalid, AnnotationTargets, targetsPods,
			"pods are reached through the load balancer's public interface, which the "+
				"configuration switches off: set "+annotationPublicOff+
				" to false, or this to nodes")
	}
	p.set.UsePrivateIP, p.set.publicOff = false, false
}
