package addresses

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Family is an address family.
type Family int

const (
	IPv4 Family = 4
	IPv6 Family = 6
)

func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// FamilyOf returns the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// OfFamily returns the first address of a family and whether there is one.
func OfFamily(all []netip.Addr, f Family) (netip.Addr, bool) {
	i := slices.IndexFunc(all, func(a netip.Addr) bool { return FamilyOf(a) == f })
	if i < 0 {
		return netip.Addr{}, false
	}
	return all[i], true
}

// Port is a port of a Service.
type Port struct {
	Protocol string `json:"protocol"` // "TCP", "UDP" or "SCTP"
	Number   int    `json:"port"`
}

// Claim is a Service's request for addresses.
type Claim struct {
	UID, Namespace, Name string
	// Created decides between Services that request the same address: the older Service gets it.
	Created time.Time
	// Families are the families to assign an address of. With All, the Service gets an address of
	// each of them or no address.
	Families []Family
	All      bool
	// Addresses are the requested addresses, at most one of each family.
	Addresses []netip.Addr
	// Pool is the name of the requested pool; empty if any pool will do.
	Pool string
	// Admitted are the names of the pools that the Service's namespace may use.
	Admitted []string
	// Key lets Services of a namespace with the same key share an address, unless it is empty.
	Key string
	// Local is set if traffic goes only to pods of the node that holds the address. Such a
	// Service shares an address only with Services of the same policy and Selector.
	Local bool
	// Selector is the pod selector in canonical form; empty if the Service has none.
	Selector string
	// Check is the Service's health check node port, or 0.
	Check int
	Ports []Port
	// Endpoints is set if the Service has endpoints, ready or not.
	Endpoints bool
	// Before are addresses that the Service had from another controller. It keeps those that are
	// available, without a Refusal for the rest.
	Before []netip.Addr
}

func (c Claim) older(other Claim) int {
	return cmp.Or(c.Created.Compare(other.Created), cmp.Compare(c.UID, other.UID))
}

// Wanted returns the requested address of a family, if any.
func (c Claim) Wanted(f Family) (netip.Addr, bool) { return OfFamily(c.Addresses, f) }

// mostPorts limits the ports of a Service that shares an address: the ledger records all of them.
const mostPorts = 100

// mostServed limits the ports of a Service for them to be recorded as Served. The ledger records
// them for every Service; with more ports, packets are rejected until kube-proxy redirects them.
const mostServed = 8

func (c Claim) shares() bool {
	return c.Key != "" && (!c.Local || c.Selector != "") && len(c.Ports) <= mostPorts
}

// share returns the claim as recorded in an entry. The size of the ledger must not depend on the
// length of users' values: once it is full, no address moves any more. So it records few served
// ports, all ports only where they decide about sharing, and a hash of a long key.
func (c Claim) share() Share {
	s := Share{
		UID: c.UID, Namespace: c.Namespace, Name: c.Name, Pool: c.Pool, Local: c.Local, Check: c.Check,
	}
	if c.Endpoints && len(c.Ports) <= mostServed {
		for _, p := range c.Ports {
			s.Served = append(s.Served, p.Number)
		}
		slices.Sort(s.Served)
		s.Served = slices.Compact(s.Served)
	}
	if !c.shares() {
		return s
	}
	s.Key = c.Key
	if c.Local { // one node serves all of them only if they have the same pods
		s.Key += "\n" + c.Selector
	}
	if len(s.Key) > 64 {
		s.Key = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(s.Key)))[:64]
	}
	ports := slices.Clone(c.Ports)
	slices.SortFunc(ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Number, b.Number))
	})
	s.Ports = slices.Compact(ports)
	return s
}

// Reason is why a Service does not get a requested address. It is also the reason of Events.
type Reason string

const (
	// NoPool means that no pool has that name, or none serves the Service's namespace and family.
	NoPool Reason = "NoAddressPool"
	// Exhausted means that the pools that the Service may use have no free address.
	Exhausted Reason = "AddressPoolExhausted"
	// Outside means that no pool that the Service may use contains the requested address.
	Outside Reason = "AddressOutsidePools"
	// Taken means that another Service has the requested address.
	Taken Reason = "AddressTaken"
	// PortTaken means that a Service with the same key uses the same port at the shared address.
	PortTaken Reason = "AddressPortTaken"
)

// Refusal is a request of a Service that can't be fulfilled.
type Refusal struct {
	UID    string
	Family Family // 0 if it applies to all families
	Reason Reason
	Field  string
	Value  string
	Text   string // cause and remedy
}
