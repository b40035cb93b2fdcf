package policy

import (
	"cmp"
	"net/netip"
	"slices"
)

// Direction is that of a connection, as seen from the pod that a policy selects.
type Direction int

// The directions, which are also indexes of arrays.
const (
	Ingress Direction = iota
	Egress
)

func (d Direction) String() string { return [...]string{"ingress", "egress"}[d] }

// Protocol is IANA's number of a transport protocol.
type Protocol uint8

// The protocols that policies can name.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

func (p Protocol) String() string {
	return cmp.Or(map[Protocol]string{TCP: "TCP", UDP: "UDP", SCTP: "SCTP"}[p], "another protocol")
}

// Name identifies a pod or a policy.
type Name struct{ Namespace, Name string }

func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Pod is what policies need of a Pod. Addresses are unmapped.
type Pod struct {
	Name
	Labels      map[string]string
	Node        string
	Addresses   []netip.Addr
	HostNetwork bool
	// Ended means that all containers ended for good, so the addresses may be another pod's.
	Ended bool
	// Created is the time of creation, in seconds since 1970.
	Created int64
	Ports   []NamedPort
}

// NamedPort is a port of a pod's container.
type NamedPort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Node is what policies need of a Node. Prefixes are masked.
type Node struct {
	PodCIDRs []netip.Prefix
	// Addresses are the node's own; its connections to its pods are never filtered.
	Addresses []netip.Addr
}

// Policy is a NetworkPolicy.
type Policy struct {
	Name
	Pods Selector
	// Types are the directions in which the policy isolates pods. If empty: ingress, and egress
	// if it has rules for that.
	Types           []Direction
	Ingress, Egress []Allow
}

// Allow is a rule: connections with one of the peers and to one of the ports are allowed.
type Allow struct {
	Peers []Peer // empty: all
	Ports []Port // empty: all ports and protocols
}

// Peer is either a Block, or pods of namespaces.
type Peer struct {
	Block  netip.Prefix
	Except []netip.Prefix
	// Namespaces is nil for the policy's own namespace, and Pods is nil for all pods in the
	// namespaces. A peer without any field matches nothing.
	Namespaces, Pods *Selector
}

// Port matches ports of a protocol: by name, by number up to End, or all if neither is set.
type Port struct {
	Protocol    Protocol
	Name        string
	Number, End uint16 // End is 0 for a single port
}

func (p Port) names(n NamedPort) bool { return n.Name == p.Name && n.Protocol == p.Protocol }

func (p Policy) isolates(d Direction) bool {
	if len(p.Types) == 0 {
		return d == Ingress || len(p.Egress) > 0
	}
	return slices.Contains(p.Types, d)
}

func (p Policy) rules(d Direction) []Allow { return [][]Allow{p.Ingress, p.Egress}[d] }
