package policy

import (
	"cmp"
	"net/netip"
	"slices"
)

// Ruleset is the packet filter of a node. Values that are equal share memory between the
// rulesets of an index, which makes them cheap to compare. Nothing in it may be changed.
type Ruleset struct {
	// PodCIDRs are those of the node. Packets from and to an address in them that is not in Pods
	// are dropped.
	PodCIDRs []netip.Prefix
	// Pods are the node's pods by their addresses.
	Pods map[netip.Addr]Chains
	// Sets are those that the chains refer to, by name.
	Sets map[string]Set
	// LogGroup is the group of nflog that gets packets that chains drop; 0 is none.
	LogGroup uint16
}

// Chains are a pod's chains by Direction; nil where no policy isolates the pod.
type Chains [2]*Chain

// Chain allows what one of its rules matches, and nothing else.
type Chain struct {
	Name      string // unique among all chains, a digest of the content
	Direction Direction
	Policies  []Name // sorted
	Rules     []Rule
}

// Rule matches a connection by its peer, and by its destination's protocol and port.
type Rule struct {
	Set   string      // contains the peer; "" is every peer
	Ports []PortRange // empty: every protocol and port
}

// PortRange is a range of ports of a protocol.
type PortRange struct {
	Protocol    Protocol
	First, Last uint16
}

// Set contains peers: pods or blocks.
type Set struct {
	Name     string
	Kind     Kind
	Elements [2][]Element // of IPv4 and of IPv6, in order; prefixes don't overlap
}

// Kind is what the elements of a set are.
type Kind int

const (
	// Addresses are single addresses.
	Addresses Kind = iota
	// Endpoints are single addresses, each with protocol and port.
	Endpoints
	// Blocks are prefixes.
	Blocks
)

// Element is an element of a set.
type Element struct {
	Prefix   netip.Prefix
	Protocol Protocol
	Port     uint16
}

// Compare orders elements.
func (e Element) Compare(other Element) int {
	return cmp.Or(e.Prefix.Compare(other.Prefix), cmp.Compare(e.Protocol, other.Protocol),
		cmp.Compare(e.Port, other.Port))
}

// Connection is the first packet of a connection, after the rewriting of its destination.
type Connection struct {
	From, To netip.Addr
	Protocol Protocol
	Port     uint16 // destination port; 0 for protocols without ports
}

// Allows reports whether the node's filter lets a forwarded connection begin.
func (r Ruleset) Allows(c Connection) bool {
	return c.From == c.To || r.passes(Egress, c, c.From, c.To) && r.passes(Ingress, c, c.To, c.From)
}

func (r Ruleset) passes(d Direction, c Connection, local, peer netip.Addr) bool {
	if !contains(r.PodCIDRs, local) {
		return true
	}
	chains, known := r.Pods[local]
	if !known || chains[d] == nil {
		return known
	}
	return slices.ContainsFunc(chains[d].Rules, func(rule Rule) bool {
		return rule.matches(r.Sets, peer, c)
	})
}

func (r Rule) matches(sets map[string]Set, peer netip.Addr, c Connection) bool {
	inPorts := func(p PortRange) bool {
		return p.Protocol == c.Protocol && p.First <= c.Port && c.Port <= p.Last
	}
	return (r.Set == "" || sets[r.Set].contains(peer, c)) &&
		(len(r.Ports) == 0 || slices.ContainsFunc(r.Ports, inPorts))
}

func (s Set) contains(peer netip.Addr, c Connection) bool {
	wanted := Element{Prefix: host(peer)}
	if s.Kind == Endpoints {
		wanted.Protocol, wanted.Port = c.Protocol, c.Port
	}
	elements := s.Elements[family(peer)]
	at, found := slices.BinarySearchFunc(elements, wanted, Element.Compare)
	return found || s.Kind == Blocks && at > 0 && elements[at-1].Prefix.Contains(peer) ||
		s.Kind == Blocks && at < len(elements) && elements[at].Prefix.Contains(peer)
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// family returns the index of arrays by family.
func family(a netip.Addr) int {
	if a.Is6() {
		return 1
	}
	return 0
}
