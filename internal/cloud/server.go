// Package cloud joins a cluster's Nodes to the machines of a provider. It is
// the cloudprovider.Interface that upstream's node controllers call, and the
// one place that decides which Node is which server.
//
// It must never declare a Node's machine absent on anything less than the
// provider's own word about that very machine, never match a Node to a machine
// when two could be meant, and never answer for machines of providers that it
// doesn't speak to.
package cloud

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"github.com/underlay-ccm/underlay/internal/kube"
)

// Server is a machine as its provider describes it.
type Server struct {
	// ID is unique among all customers of the provider, and never reused.
	ID       int64
	Name     string
	Type     string
	Location string
	// Status is the provider's word for what the machine does, for people.
	Status string
	// Off: the machine is shut down, as opposed to starting, running, migrating.
	Off     bool
	Created time.Time
	// PublicIPv4 is the zero Addr without one. PublicIPv6 is the /64 that the
	// provider routes to the server; the zero Prefix without one.
	PublicIPv4 netip.Addr
	PublicIPv6 netip.Prefix
	// PrivateIP is the address in the cluster's network, the zero Addr while
	// the server isn't attached to it; AliasIPs are further ones there.
	PrivateIP netip.Addr
	AliasIPs  []netip.Addr
}

// ProviderID is the server's name in Node.spec.providerID.
func (s Server) ProviderID() string { return kube.FormatProviderID(s.ID) }

// ErrNoServer is the provider's word that it has no server with an ID.
var ErrNoServer = errors.New("server does not exist")

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

// Servers knows the project's servers.
type Servers interface {
	// List returns all servers by ascending ID, as they were at since or
	// later; the zero time leaves it to the cache. All or an error, never a part.
	// since may be told by a clock that is ahead of ours, such as the API server's
	// in a Node's creation: then it is taken for the time of the first call with it.
	// The slice is everybody's and nobody's to change: another list is another
	// slice.
	List(ctx context.Context, since time.Time) ([]Server, error)
	// Look returns what List returns for the zero time, except that it answers the
	// questions: what the list says of those servers, also that there is none, is
	// as it was at the question's Since or later. It asks for single servers where
	// that takes fewer requests than the list.
	Look(ctx context.Context, questions []Question) ([]Server, error)
	// Get asks the provider for one server. The error wraps ErrNoServer only
	// when the provider says that there is none.
	Get(ctx context.Context, id int64) (Server, error)
}
