package lb

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Target is what receives traffic: a cloud server (Server), an address of a dedicated server
// (Address), or a pod, at an address that the cloud routes to its node's cloud server (both).
type Target struct {
	Server  int64
	Address netip.Addr
	// Private: reached in the load balancer's network. The cloud derives it from an address, see
	// [AddressTarget].
	Private bool
}

// AddressTarget is the target of that address. Networks have private IPv4 addresses only.
func AddressTarget(a netip.Addr) Target {
	return Target{Address: a, Private: a.Is4() && a.IsPrivate()}
}

// Pod reports whether the target is a pod.
func (t Target) Pod() bool { return t.Server != 0 && t.Address.IsValid() }

// whole reports whether the target is a cloud server and not a pod on it.
func (t Target) whole() bool { return t.Server != 0 && !t.Address.IsValid() }

// outside reports whether the target is an address that belongs to no cloud server.
func (t Target) outside() bool { return t.Server == 0 && t.Address.IsValid() }

func (t Target) String() string {
	if t.Private && !t.Address.IsValid() {
		return t.name() + " (private)"
	}
	return t.name()
}

// name says which target it is, and not how it is reached.
func (t Target) name() string {
	if t.Pod() {
		return fmt.Sprintf("pod %s on server %d", t.Address, t.Server)
	}
	if t.Address.IsValid() {
		return "IP " + t.Address.String()
	}
	return fmt.Sprintf("server %d", t.Server)
}

// Compare orders targets: servers by their IDs, then addresses, pods' among them.
func (t Target) Compare(other Target) int {
	return cmp.Or(t.Address.Compare(other.Address), cmp.Compare(t.Server, other.Server))
}

// Node is a node of the cluster as load balancers can reach it: a cloud server by its ID, which
// finds both of its addresses, a dedicated server by an address.
type Node struct {
	Name string
	// Server is the cloud server's ID; 0: a dedicated server.
	Server int64
	// Private is the dedicated server's IPv4 address in the load balancer's network, Public one on
	// the internet. Invalid: none is known.
	Private, Public netip.Addr
}

// Target is the node as it is reached in the load balancer's network, or without it, and false if
// it has no address there.
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

// Targets are all that the node can be.
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

// WithTargets returns the spec with these nodes as its targets, in order, each once. A node without
// an address where targets are reached is none.
func (s Spec) WithTargets(nodes []Node) Spec {
	s.Nodes = slices.SortedFunc(slices.Values(nodes), Node.compare)
	return s.reaching(func(n Node) (Target, bool) { return n.Target(s.UsePrivateIP) })
}

// reaching returns the spec with its nodes reached as chosen.
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

// asFound returns the spec with each node reached as it is now, and those that are no targets yet
// in the network, or without it.
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

// keepUnaddressed leaves targets of dedicated servers that are not known to be wrong. A node
// without an address where targets are reached stays reached at its other one, if it is; and while
// it is not, each address that no node is known to have may be its own, so that those stay too. The
// public interface stays for them.
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

// addressed are the targets that nodes can be which have an address where targets are reached.
func (s Spec) addressed() map[Target]bool {
	return targetsOf(slices.DeleteFunc(slices.Clone(s.Nodes), func(n Node) bool {
		_, ok := n.Target(s.UsePrivateIP)
		return !ok
	}))
}

// others find the target that the same node is at its other address. A dedicated server's two
// addresses are nothing but two targets to the cloud.
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

// match compares the targets that are wanted with those that there are. now has what the node of
// a wanted target is now: just that, or the target at its other address; nothing if it is none.
// leaving are the targets of no wanted node, in order.
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

// targetsOf are the targets that the nodes can be.
func targetsOf(nodes []Node) map[Target]bool {
	set := make(map[Target]bool, 2*len(nodes))
	for _, n := range nodes {
		for _, t := range n.Targets() {
			set[t] = true
		}
	}
	return set
}

// Strangers are the addresses among the targets that none of these nodes has.
func (s State) Strangers(nodes []Node) []Target {
	owned := targetsOf(nodes)
	return slices.DeleteFunc(slices.Clone(s.Targets), func(t Target) bool { return !t.outside() || owned[t] })
}

// NodeOf is the name of the node that a target is, or whose pod it is; empty: none of the spec's.
func (s Spec) NodeOf(t Target) string {
	for _, n := range s.Nodes {
		if slices.Contains(n.Targets(), t) || t.Server != 0 && n.Server == t.Server {
			return n.Name
		}
	}
	return ""
}

// Serverless says how many of the nodes are targets, where the cloud has no server with the ID that
// others have. It is only for those whose load balancer has a target all the same, and empty else.
func (s State) Serverless(nodes []Node, missing map[int64]bool) string {
	var without []string
	targets := 0
	for _, n := range nodes {
		if slices.ContainsFunc(n.Targets(), func(t Target) bool { return slices.Contains(s.Targets, t) }) {
			targets++
		} else if missing[n.Server] {
			without = append(without, n.Name)
		}
	}
	if targets == 0 || len(without) == 0 {
		return ""
	}
	why := "its server does not exist"
	if len(without) > 1 {
		why = "their servers do not exist"
	}
	return fmt.Sprintf("%d of %d nodes are targets; without: %s (%s)", targets, len(nodes), andMore(without), why)
}

// unaddressed notes the nodes that are no targets because they have no address where targets are
// reached. It comes before [Spec.keepUnaddressed], which leaves some where they are.
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
		Grade: Error, Reason: ReasonTargetAddressMissing, Field: annotationPrivateIP, Value: "false", Figures: andMore(names),
		Text: "a node on a dedicated server has no public address in its status, so it is not added, and stays a target only where it is one: let it have an ExternalIP, or set this to true if it has an address in the network",
	}
	if s.UsePrivateIP {
		note.Value = "true"
		note.Text = "a node on a dedicated server has no InternalIP in the network's vSwitch subnet, so it is not added, and stays a target only where it is one: set its kubelet's --node-ip to its address there, or set this to false"
	}
	return []Note{note}
}
