// Package cloud matches a cluster's Nodes with the machines that they run on. It implements the
// cloudprovider.Interface for upstream's node controllers, and is the only package that matches
// Nodes with machines.
//
// It must never declare a Node's machine absent without the provider's reply about that machine,
// never match a Node with a machine if two match, and never describe machines of providers
// without a client.
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

// Machine describes the machine of a Node by its provider or by the configuration: a cloud
// server, a dedicated server, or a machine without an API.
type Machine struct {
	// Dedicated marks a dedicated server, with its number at Robot as ID.
	Dedicated bool
	// ID is unique among all customers of the provider and never reused; 0 without an API.
	ID int64
	// Name may be empty for a dedicated server.
	Name string
	// Type, Zone and Region become labels of the Node unless empty. Zone is empty for a cloud
	// server, since it follows from the region.
	Type, Zone, Region string
	// Status is the provider's status of the machine, for display only.
	Status string
	// Off is set if the machine is shut down, as opposed to starting, running or migrating.
	Off     bool
	Created time.Time
	// PublicIPv4 is the main address, or the zero Addr. PublicIPv6 is the /64 that the provider
	// routes to the machine, or the zero Prefix.
	PublicIPv4 netip.Addr
	PublicIPv6 netip.Prefix
	// PrivateIP is a cloud server's address in the cluster's network, or the zero Addr while the
	// server is not attached. AliasIPs are its further addresses there.
	PrivateIP netip.Addr
	AliasIPs  []netip.Addr
	// Addresses are the single addresses of a machine that is no cloud server. Private addresses
	// come from the configuration only.
	Addresses []netip.Addr
}

// ProviderID returns the machine's Node.spec.providerID.
func (m Machine) ProviderID() string {
	if m.Dedicated {
		return kube.FormatDedicatedID(m.ID)
	}
	return kube.FormatProviderID(m.ID)
}

func (m Machine) title() string {
	if m.Dedicated {
		return fmt.Sprintf("dedicated server %d", m.ID)
	}
	return fmt.Sprintf("server %d", m.ID)
}

// has reports whether a belongs to the dedicated server by its record.
func (m *Machine) has(a netip.Addr) bool {
	if a == m.PublicIPv4 || m.PublicIPv6.IsValid() && m.PublicIPv6.Contains(a) {
		return a.IsValid()
	}
	return slices.Contains(m.Addresses, a)
}

// ErrNoServer is the provider's reply that it has no server with the ID.
var ErrNoServer = errors.New("server does not exist")

// Inventory lists the machines of one source.
type Inventory interface {
	// List returns all machines, sorted by ID, as of since or later, and never a part. For the
	// zero time, the cache decides. A since in the future, from a clock that is ahead, counts as
	// the time of the call. The slice must never be modified: a new list is a new slice.
	List(ctx context.Context, since time.Time) ([]Machine, error)
	// Get requests one machine from the provider. The error wraps ErrNoServer only if the
	// provider replied that the machine doesn't exist.
	Get(ctx context.Context, id int64) (Machine, error)
}

// Servers lists the cloud servers of the project.
type Servers interface {
	Inventory
	// Look is List for the zero time, except that the list's contents about the servers of the
	// questions, including their absence, are as of the question's Since or later. It requests
	// single servers if that takes fewer requests than the list.
	Look(ctx context.Context, questions []Question) ([]Machine, error)
}

// Question is about the server with the ID or, if that is 0, with the name.
type Question struct {
	ID   int64
	Name string
	// Since is the earliest time that the answer may be from.
	Since time.Time
}

// String returns the ID or the quoted name.
func (q Question) String() string {
	if q.ID != 0 {
		return strconv.FormatInt(q.ID, 10)
	}
	return strconv.Quote(q.Name)
}
