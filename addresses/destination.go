package addresses

import (
	"fmt"
	"net/netip"
)

// Destination is the machine to which an API should route an address.
type Destination struct {
	// ProviderID identifies the machine; empty if the address should not be routed.
	ProviderID string
	// Planned is set if the current destination still serves the address, so that the move may be
	// delayed in favor of an urgent move.
	Planned bool
	// Former are the names of previous holders whose Nodes are deleted. The address may be taken
	// from a machine of such a name although it is not a Node.
	Former []string
}

// Unrouted is the error of a Router if the address or the node is the cause why an address can't
// be routed. Other errors, such as missing permissions or an unreachable API, apply to both.
type Unrouted struct {
	// About is the cause.
	About Subject
	Err   error
}

// Subject is the cause of an Unrouted.
type Subject int

const (
	// AboutAddress means that every node would be refused: the address itself, or its current
	// destination, has to be changed outside the cluster.
	AboutAddress Subject = iota
	// AboutNode means that the address may be routed to another node.
	AboutNode
)

func (r *Unrouted) Error() string { return r.Err.Error() }

func (r *Unrouted) Unwrap() error { return r.Err }

// mostRouted limits the addresses of one net that Routed returns.
const mostRouted = 64

// Routed returns the addresses of ranges in a net that a provider routes as a whole: an IPv4
// address or an IPv6 /64.
func Routed(net netip.Prefix, ranges []Range) (within []netip.Addr) {
	for _, r := range ranges {
		first := r.First
		if first.Less(net.Addr()) {
			first = net.Addr()
		}
		for a := first; r.Contains(a) && net.Contains(a) && len(within) < mostRouted; a = a.Next() {
			within = append(within, a)
		}
	}
	return within
}

// Refuse returns an Unrouted.
func Refuse(about Subject, format string, args ...any) error {
	return &Unrouted{About: about, Err: fmt.Errorf(format, args...)}
}
