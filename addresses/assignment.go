package addresses

import "net/netip"

// Assignment is the desired state of an announcer: a component of a node that holds addresses by
// one method.
type Assignment struct {
	// Cluster is unique: the UID of the ledger's ConfigMap; empty: not read yet.
	Cluster string
	// Hold are the addresses that the ledger assigns to this node.
	Hold []Assigned
	// Elsewhere are the other addresses of Services, with or without a holder. A held address in
	// neither list is released immediately.
	Elsewhere []netip.Addr
	// Doubt is set while the ledger may be out of date. No address is released for that alone, but
	// another claimant of a held address may be its rightful holder.
	Doubt bool
}

// Assigned is an address that a node is to hold.
type Assigned struct {
	Address netip.Addr
	Epoch   uint64 // of the ledger
	// Held is set if a cluster member has held the address. Otherwise any host could have it: it is
	// probed for longer, and released to an external host that answers late.
	Held bool
	// Resumed is set if an earlier run of this node's agent held the address at this epoch until
	// moments ago. Unless the ledger is in doubt, the address is announced immediately and probed
	// for concurrently.
	Resumed bool
}

// Status is the current state of an announcer.
type Status struct {
	Held    []Hold
	Refused []Problem
	Routers []Router
	// Segments are the prefixes that addresses can be held on; nil: unknown or irrelevant.
	Segments []netip.Prefix
	// Announced counts announcements, and Conflicts claims of addresses by other machines.
	Announced, Conflicts uint64
}
