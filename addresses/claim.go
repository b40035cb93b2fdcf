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

// The families.
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

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// OfFamily is the first address of a family, and reports whether there is one.
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

// Claim is what a Service asks for.
type Claim struct {
	UID, Namespace, Name string
	// Created decides between Services that want the same: the older one gets it.
	Created time.Time
	// Families are those that the Service wants an address of; All: each of them or none.
	Families []Family
	All      bool
	// Addresses are asked for one by one, at most one of each family.
	Addresses []netip.Addr
	// Pool is asked for by its name; empty: any.
	Pool string
	// Admitted are the names of the pools that the Service's namespace may use.
	Admitted []string
	// Key lets Services of a namespace share an address that have the same one. Empty: this one
	// shares none.
	Key string
	// Local: traffic goes only to pods of the node that holds the address, which is why such a
	// Service shares an address only with others of that policy and its Selector.
	Local bool
	// Selector is the one of the Service's pods, in one order; empty: none.
	Selector string
	// Check is the Service's health check node port; 0: none.
	Check int
	Ports []Port
	// Endpoints: the Service has some, ready or not.
	Endpoints bool
	// Before are addresses that the Service had from another controller. It keeps those that it can
	// have, and nobody hears of the others.
	Before []netip.Addr
}

// older orders claims by age.
func (c Claim) older(other Claim) int {
	return cmp.Or(c.Created.Compare(other.Created), cmp.Compare(c.UID, other.UID))
}

// Wanted is the address of a family that is asked for.
func (c Claim) Wanted(f Family) (netip.Addr, bool) { return OfFamily(c.Addresses, f) }

// mostPorts is how many ports a Service may have that shares an address: the ledger has them all.
const mostPorts = 100

// mostServed is how many ports a Service may have for them to be Served: the ledger has them of
// every Service, and one with more is refused what comes early.
const mostServed = 8

// shares reports whether the claim can share an address at all.
func (c Claim) shares() bool {
	return c.Key != "" && (!c.Local || c.Selector != "") && len(c.Ports) <= mostPorts
}

// share is the claim as an entry of the ledger has it. The ledger must not grow by what users write:
// where it has no room left, no address moves any more. So it has few of the ports that are
// served, all ports only where they decide, and of a key no more than tells it from others.
func (c Claim) share() Share {
	s := Share{UID: c.UID, Namespace: c.Namespace, Name: c.Name, Pool: c.Pool, Local: c.Local, Check: c.Check}
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
	if c.Local { // one node serves all only where all have the same pods
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

// Reason says why a Service does not get what it asks for. Reasons are reasons of Events too.
type Reason string

// The reasons.
const (
	// NoPool: there is no pool of that name, or none for the Service's namespace and family.
	NoPool Reason = "NoAddressPool"
	// Exhausted: the pools that the Service may use have no free address.
	Exhausted Reason = "AddressPoolExhausted"
	// Outside: the address that is asked for is in no pool that the Service may use.
	Outside Reason = "AddressOutsidePools"
	// Taken: another Service has the address that is asked for.
	Taken Reason = "AddressTaken"
	// PortTaken: a Service with the same key has a port of this one at the address that both share.
	PortTaken Reason = "AddressPortTaken"
)

// Refusal is something that a Service asks for and does not get.
type Refusal struct {
	UID    string
	Family Family // 0: no matter which
	Reason Reason
	Field  string
	Value  string
	Text   string // what is wrong, and the remedy
}
