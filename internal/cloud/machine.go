// Package cloud joins a cluster's Nodes to the machines that they run on. It is
// the cloudprovider.Interface that upstream's node controllers call, and the
// one place that decides which Node is which machine.
//
// It must never declare a Node's machine absent on anything less than the
// provider's own word about that very machine, never match a Node to a machine
// when two could be meant, and never answer for machines of providers that it
// doesn't speak to.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Machine is what a Node runs on, as its provider or the configuration describes it:
// a server of the cloud, a dedicated server, or a machine that no API describes.
type Machine struct {
	// Dedicated: it is a dedicated server, and ID is its number at Robot.
	Dedicated bool
	// ID is unique among all customers of the provider, and never reused; 0: no API
	// describes the machine.
	ID int64
	// Name may be empty for a dedicated server.
	Name string
	// Type, Zone and Region become labels of the Node; empty: none. The zone of a
	// cloud server follows from its region, and is left out here.
	Type, Zone, Region string
	// Status is the provider's word for what the machine does, for people.
	Status string
	// Off: the machine is shut down, as opposed to starting, running, migrating.
	Off     bool
	Created time.Time
	// PublicIPv4 is the main address; the zero Addr without one. PublicIPv6 is the /64
	// that the provider routes to the machine; the zero Prefix without one.
	PublicIPv4 netip.Addr
	PublicIPv6 netip.Prefix
	// PrivateIP is a cloud server's address in the cluster's network, the zero Addr
	// while the server isn't attached to it; AliasIPs are further ones there.
	PrivateIP netip.Addr
	AliasIPs  []netip.Addr
	// Addresses are all single addresses that are known to be the machine's own, where
	// it is no server of the cloud. Private ones are in the configuration alone.
	Addresses []netip.Addr
}

// ProviderID is the server's name in Node.spec.providerID.
func (m Machine) ProviderID() string {
	if m.Dedicated {
		return kube.FormatDedicatedID(m.ID)
	}
	return kube.FormatProviderID(m.ID)
}

// title names a server in messages.
func (m Machine) title() string {
	if m.Dedicated {
		return fmt.Sprintf("dedicated server %d", m.ID)
	}
	return fmt.Sprintf("server %d", m.ID)
}

// has reports whether an address is a dedicated server's own, as far as that is known.
func (m *Machine) has(a netip.Addr) bool {
	if a == m.PublicIPv4 || m.PublicIPv6.IsValid() && m.PublicIPv6.Contains(a) {
		return a.IsValid()
	}
	return slices.Contains(m.Addresses, a)
}

// ErrNoServer is the provider's word that it has no server with an ID.
var ErrNoServer = errors.New("server does not exist")

// Inventory has the machines of one source.
type Inventory interface {
	// List returns all machines by ascending ID, as they were at since or later; the
	// zero time leaves that to the cache. All or an error, never a part.
	// since may be by a clock that is ahead of ours, such as the API server's in a
	// Node's creation: then it is taken for the time of the call.
	// Nothing may change the slice: another list is another slice.
	List(ctx context.Context, since time.Time) ([]Machine, error)
	// Get requests one machine from the provider. The error wraps ErrNoServer only
	// when the provider's reply is that there is none.
	Get(ctx context.Context, id int64) (Machine, error)
}

// Servers has the servers of the project in the cloud.
type Servers interface {
	Inventory
	// Look returns what List returns for the zero time, except that it answers the
	// questions: what the list says of those servers, also that there is none, is
	// as it was at the question's Since or later. It asks for single servers where
	// that takes fewer requests than the list.
	Look(ctx context.Context, questions []Question) ([]Machine, error)
}

// Question is about one server: that with the ID, or if that is 0, that with the
// name.
type Question struct {
	ID   int64
	Name string
	// Since is how old the answer may be.
	Since time.Time
}

// String names the server.
func (q Question) String() string {
	if q.ID != 0 {
		return strconv.FormatInt(q.ID, 10)
	}
	return strconv.Quote(q.Name)
}
