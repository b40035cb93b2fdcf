package kube

import "net/netip"

// Departed is a deleted Node with podCIDRs that the stored ledger has not freed. Routes may exist.
type Departed struct {
	Name string
	// ProviderID is empty if it was never recorded.
	ProviderID string
	Prefixes   []netip.Prefix
}
