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

// Unrouted is an error that says what it is about that an API doesn't lead an address to a node. Other
// errors say nothing of that: nobody may be allowed to, or the API is away.
type Unrouted struct {
	// About is what would have to be another one.
	About Subject
	Err   error
}

// Subject is what an Unrouted is about.
type Subject int

const (
	// AboutAddress: it would be the same for every node. Somebody has to agree first.
	AboutAddress Subject = iota
	// AboutNode: another node may be taken.
	AboutNode
)

// Error is that of Err.
func (r *Unrouted) Error() string { return r.Err.Error() }

// Unwrap is Err.
func (r *Unrouted) Unwrap() error { return r.Err }
