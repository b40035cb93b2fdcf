package kube

import "net/netip"

// Departed is a deleted Node whose podCIDRs are not free yet according to the stored ledger of
// podCIDRs. Routes to them may still exist.
type Departed struct {
	Name string
	// ProviderID is empty if it was never recorded.
	ProviderID string
	Prefixes   []netip.Prefix
}
