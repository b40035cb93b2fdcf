package addresses

import (
	"context"
	"net/netip"
)

// Announcer holds addresses on a node by one method. Set and Status may be called before and during
// Run, by a single goroutine.
type Announcer interface {
	// Run runs until ctx is done. It calls changed when Status may have changed. On its return it
	// must not withdraw or announce anything.
	Run(ctx context.Context, changed func()) error
	// Set replaces the desired state. It is called repeatedly, also without a change.
	Set(a Assignment)
	Status() Status
}

// Assignment is the desired state of an Announcer.
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
	// Node is the node itself; nil: not read yet.
	Node *Node
}

// Node is a node as far as it decides how its addresses are announced.
type Node struct {
	UID         string            `json:"uid"`
	ProviderID  string            `json:"providerID,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	InternalIPs []netip.Addr      `json:"internalIPs,omitempty"`
	PodCIDRs    []netip.Prefix    `json:"podCIDRs,omitempty"`
}

// Assigned is an address that a node is to hold.
type Assigned struct {
	Address netip.Addr
	Epoch   uint64 // of the ledger
	// Held is set if a cluster member has held the address. Otherwise any host could have it: it is
	// probed for longer, and released to an external host that answers late.
	Held bool
	// Resumed is set if an earlier run of this node's agent held the address at this epoch until
	// moments ago. As soon as the ledger is not in doubt, the address is announced immediately and
	// probed for concurrently.
	Resumed bool
}

// Status is the current state of an Announcer.
type Status struct {
	Held    []Hold
	Refused []Problem
	Routers []Router
	// Segments are the prefixes that addresses can be held on; nil: unknown or irrelevant.
	Segments []netip.Prefix
}
