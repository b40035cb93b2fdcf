package kube

import "net/netip"

// Departed is a Node that is gone and whose podCIDRs are not free yet, as the
// stored ledger of podCIDRs knows it. Routes toward them may still stand.
type Departed struct {
	Name string
	// ProviderID is of the server that the Node ran on; empty if never known.
	ProviderID string
	Prefixes   []netip.Prefix
}
