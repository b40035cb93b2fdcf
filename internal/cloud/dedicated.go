package cloud

import (
	"context"
	"net/netip"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Dedicated is a dedicated server as its provider describes it, or the inventory.
type Dedicated struct {
	// Number is its ID. It is never reused.
	Number int64
	// Name is what somebody chose for it; empty: nothing.
	Name string
	// IPv4 is its main address; the zero Addr: none. IPv6 is the /64 that the
	// provider routes to it; the zero Prefix: none.
	IPv4 netip.Addr
	IPv6 netip.Prefix
	// Addresses are all single addresses that are known to be its own. The
	// provider knows no private ones.
	Addresses []netip.Addr
	// Type, Zone and Region are label values; empty: none.
	Type, Zone, Region string
}

// ProviderID is the server's name in Node.spec.providerID.
func (d *Dedicated) ProviderID() string { return kube.FormatDedicatedID(d.Number) }

// has reports whether an address is the server's own, as far as that is known.
func (d *Dedicated) has(a netip.Addr) bool {
	if a == d.IPv4 || d.IPv6.IsValid() && d.IPv6.Contains(a) {
		return a.IsValid()
	}
	for _, own := range d.Addresses {
		if own == a {
			return true
		}
	}
	return false
}

// DedicatedServers knows the account's dedicated servers.
type DedicatedServers interface {
	// List returns all servers by ascending number, as they were at since or
	// later. All or an error, never a part. For the zero time a list of any age
	// will do, and is better than an error; it fails only before there was one.
	// since may be told by a clock that is ahead of ours. The slice is everybody's
	// and nobody's to change: another list is another slice.
	List(ctx context.Context, since time.Time) ([]Dedicated, error)
	// Get asks the provider for one server. The error wraps ErrNoServer only
	// when the provider says that there is none.
	Get(ctx context.Context, number int64) (Dedicated, error)
}
