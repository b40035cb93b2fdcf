package addresses

// Destination is where an API is to lead an address.
type Destination struct {
	// ProviderID is the machine's; empty: it leads nowhere.
	ProviderID string
	// Planned: the node that it leads to serves it still, so that a move may be put off for one that
	// traffic waits for.
	Planned bool
	// Former is the node that the ledger let hold the address before, where that Node is gone; empty:
	// none. A machine of this name gives the address away, though it is no Node any more.
	Former string
}
