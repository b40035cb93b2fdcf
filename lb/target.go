package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Target receives traffic: a cloud server (only Server), an address of a dedicated server (only
// Address), or a pod with an address that the cloud routes to its node's server (both).
type Target struct {
	Server  int64
	Address netip.Addr
	// Private: reached in the load balancer's network. The cloud derives it from an address, as
	// [AddressTarget] does.
	Private bool
}

// AddressTarget returns the target of an address. Private networks have IPv4 addresses only.
func AddressTarget(a netip.Addr) Target {
	return Target{Address: a, Private: a.Is4() && a.IsPrivate()}
}

// Pod reports whether the target is a pod.
func (t Target) Pod() bool { return t.Server != 0 && t.Address.IsValid() }

// whole reports whether the target is a cloud server, not a pod on it.
func (t Target) whole() bool { return t.Server != 0 && !t.Address.IsValid() }

// outside reports whether the target is an address outside of cloud servers.
func (t Target) outside() bool { return t.Server == 0 && t.Address.IsValid() }

func (t Target) String() string {
	if t.Private && !t.Address.IsValid() {
		return t.name() + " (private)"
	}
	return t.name()
}

// name identifies the target without how it is reached.
func (t Target) name() string {
	if t.Pod() {
		return fmt.Sprintf("pod %s on server %d", t.Address, t.Server)
	}
	if t.Address.IsValid() {
		return "IP " + t.Address.String()
	}
	return fmt.Sprintf("server %d", t.Server)
}

// Compare orders targets: servers by ID, then addresses, including those of pods.
func (t Target) Compare(other Target) int {
	return cmp.Or(t.Address.Compare(other.Address), cmp.Compare(t.Server, other.Server))
}

// Node is a node as load balancers reach it: a cloud server by its ID, for both of its addresses,
// or a dedicated server by an address.
type Node struct {
	Name string
	// Server is the cloud server's ID; 0 for a dedicated server.
	Server int64
	// Private is the dedicated server's IPv4 address in the load balancer's network, Public its
	// address on the internet. Invalid: unknown.
	Private, Public netip.Addr
}

// Target returns the node's target, reached in the load balancer's network if private, and false
// if it has no such address.
func (n Node) Target(private bool) (Target, bool) {
	address := n.Public
	if private {
		address = n.Private
	}
	if n.Server != 0 {
		return Target{Server: n.Server, Private: private}, true
	}
	return AddressTarget(address), address.IsValid()
}

// Targets returns all targets that the node can be.
func (n Node) Targets() (targets []Target) {
	for _, private := range []bool{false, true} {
		if t, ok := n.Target(private); ok {
			targets = append(targets, t)
		}
	}
	return targets
}

func (n Node) compare(other Node) int {
	return cmp.Or(cmp.Compare(n.Server, other.Server), cmp.Compare(n.Name, other.Name),
		n.Private.Compare(other.Private), n.Public.Compare(other.Public))
}

// WithTargets returns the spec with these nodes as its targets, sorted and without duplicates. A
// node without an address where targets are reached is omitted.
func (s Spec) WithTargets(nodes []Node) Spec {
	s.Nodes = slices.SortedFunc(slices.Values(nodes), Node.compare)
	return s.reaching(func(n Node) (Target, bool) { return n.Target(s.UsePrivateIP) })
}

func (s Spec) reaching(choose func(Node) (Target, bool)) Spec {
	s.Targets = make([]Target, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		if t, ok := choose(n); ok {
			s.Targets = append(s.Targets, t)
		}
	}
	slices.SortFunc(s.Targets, Target.Compare)
	s.Targets = slices.Compact(s.Targets)
	return s
}

// asFound returns the spec with existing targets reached as they are now, and new targets in the
// network if private.
func (s Spec) asFound(have []Target, private bool) Spec {
	present := setOf(have)
	return s.reaching(func(n Node) (Target, bool) {
		for _, way := range []bool{private, !private} {
			if t, ok := n.Target(way); ok && present[t] {
				return t, true
			}
		}
		return n.Target(private)
	})
}

// keepUnaddressed keeps targets of dedicated servers that may be right. A node without an address
// where targets are reached keeps its target at the other address. If it has no target, any target
// of an unknown node may be its own, so those are kept too, and with them the public interface.
func (s Spec) keepUnaddressed(have State) Spec {
	present, wanted := setOf(have.Targets), setOf(s.Targets)
	strange := setOf(have.Strangers(slices.Concat(s.Nodes, s.Excluded)))
	keeps, lost := make(map[Target]bool), false
	for _, n := range s.Nodes {
		if _, ok := n.Target(s.UsePrivateIP); ok {
			continue
		}
		other, ok := n.Target(!s.UsePrivateIP)
		keeps[other] = ok
		lost = lost || !ok || !present[other]
	}
	s.Targets = slices.Clone(s.Targets)
	for _, t := range have.Targets {
		if !wanted[t] && (keeps[t] || lost && strange[t]) {
			s.Targets = append(s.Targets, t)
			s.Public = s.Public || have.Public && !t.Private
		}
	}
	slices.SortFunc(s.Targets, Target.Compare)
	return s
}

func (s Spec) addressed() map[Target]bool {
	return targetsOf(slices.DeleteFunc(slices.Clone(s.Nodes), func(n Node) bool {
		_, ok := n.Target(s.UsePrivateIP)
		return !ok
	}))
}

// others returns a function that returns the same node's target at its other address. To the cloud
// the two addresses of a dedicated server are two separate targets.
func (s Spec) others() func(Target) (Target, bool) {
	pairs := make(map[Target]Target)
	for _, n := range s.Nodes {
		if all := n.Targets(); n.Server == 0 && len(all) == 2 {
			pairs[all[0]], pairs[all[1]] = all[1], all[0]
		}
	}
	return func(t Target) (Target, bool) {
		if t.whole() {
			return Target{Server: t.Server, Private: !t.Private}, true
		}
		other, ok := pairs[t]
		return other, ok
	}
}

// match compares wanted with existing targets. now maps a wanted target to the existing target of
// its node, at the same or the other address. leaving are the targets of no wanted node, in order.
func (s Spec) match(have []Target) (now map[Target]Target, leaving []Target) {
	wanted, present, other := setOf(s.Targets), setOf(have), s.others()
	now = make(map[Target]Target)
	changing := make(map[Target]bool)
	for _, t := range s.Targets {
		old, paired := other(t)
		switch {
		case present[t]:
			now[t] = t
		case paired && present[old] && !wanted[old]:
			now[t], changing[old] = old, true
		}
	}
	for _, t := range have {
		if !wanted[t] && !changing[t] {
			leaving = append(leaving, t)
		}
	}
	slices.SortFunc(leaving, Target.Compare)
	return now, leaving
}

func setOf(targets []Target) map[Target]bool {
	set := make(map[Target]bool, len(targets))
	for _, t := range targets {
		set[t] = true
	}
	return set
}

func targetsOf(nodes []Node) map[Target]bool {
	set := make(map[Target]bool, 2*len(nodes))
	for _, n := range nodes {
		for _, t := range n.Targets() {
			set[t] = true
		}
	}
	return set
}

// Strangers returns the targets with an address that no given node has.
func (s State) Strangers(nodes []Node) []Target {
	owned := targetsOf(nodes)
	return slices.DeleteFunc(slices.Clone(s.Targets), func(t Target) bool {
		return !t.outside() || owned[t]
	})
}

// NodeOf returns the name of the node of a target or its pod; "" if it is not in the spec.
func (s Spec) NodeOf(t Target) string {
	for _, n := range s.Nodes {
		if slices.Contains(n.Targets(), t) || t.Server != 0 && n.Server == t.Server {
			return n.Name
		}
	}
	return ""
}

// unaddressed returns a note about nodes that are not targets because they have no address where
// targets are reached. It must precede [Spec.keepUnaddressed].
func (s Spec) unaddressed() []Note {
	targets := setOf(s.Targets)
	var names []string
	for _, n := range s.Nodes {
		isTarget := slices.ContainsFunc(n.Targets(), func(t Target) bool { return targets[t] })
		if _, ok := n.Target(s.UsePrivateIP); !ok && !isTarget {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	note := Note{
		Grade: Error, Reason: ReasonTargetAddressMissing, Field: annotationPrivateIP, Value: "false",
		Figures: andMore(names),
		Text:    "a node on a dedicated server has no public address in its status, so it is not added, and stays a target only where it is one: let it have an ExternalIP, or set this to true if it has an address in the network",
	}
	if s.UsePrivateIP {
		note.Value = "true"
		note.Text = "a node on a dedicated server has no InternalIP in the network's vSwitch subnet, so it is not added, and stays a target only where it is one: set its kubelet's --node-ip to its address there, or set this to false"
	}
	return []Note{note}
}
