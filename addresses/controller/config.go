package controller

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"

	"github.com/underlay-ccm/underlay/addresses"
)

// Name is the controller's name.
const Name = "service-address-controller"

// The movers that agents are. All others are in Config.Routers.
const (
	MoverLayer2 = "layer2"
	MoverBGP    = "bgp"
)

// Pool is a pool of addresses, for whom it is, and what moves its addresses.
type Pool struct {
	addresses.Pool
	// Namespaces are those whose Services may use it; nil: all.
	Namespaces labels.Selector
	// Mover is MoverLayer2, MoverBGP or a key of Config.Routers.
	Mover string
}

// Router leads addresses to nodes through an API. Its methods are called at the same time, Route for
// several addresses but never twice for one.
type Router interface {
	// Routed tells to which node, by its provider ID, each address leads; empty: to none. Addresses
	// that it does not know are left out.
	Routed(context.Context) (map[netip.Addr]string, error)
	// Route leads an address to a node, and returns when that is done, which may take a minute. It
	// looks where the address leads before it changes anything. An error may mean that it was done
	// all the same. An *addresses.Unrouted says that it was not, and what would have to be otherwise.
	Route(ctx context.Context, address netip.Addr, to addresses.Destination) error
}

// Routing is a mover that is a Router.
type Routing struct {
	Router
	// Answering: a node's agent answers for the address, so that it leads nowhere without one.
	Answering bool
	// Serves reports whether addresses can be led to a node with that provider ID; nil: to every
	// one.
	Serves func(providerID string) bool
	// Scarce: moves are counted by the API, so that none is made only to spread addresses.
	Scarce bool
}

// Config is what the controller needs. All fields but Namespaces, Routers, Classless and Balancers
// are required.
type Config struct {
	// Client's rate limit bounds how fast Services get their addresses.
	Client   kubernetes.Interface
	Services coreinformers.ServiceInformer
	Nodes    coreinformers.NodeInformer
	Slices   discoveryinformers.EndpointSliceInformer
	// Namespaces are needed where a pool has a selector.
	Namespaces coreinformers.NamespaceInformer
	Pools      []Pool
	Routers    map[string]Routing
	// Classless makes Services without loadBalancerClass ours.
	Classless bool
	// Balancers: a controller of a cloud's load balancers runs beside this one. A Service without a
	// class that has its finalizer is its.
	Balancers bool
	// Namespace is where the stored ledger is.
	Namespace string
	Recorder  record.EventRecorder
	Registry  Registry
}

// poolOf is the pool that an address lies in.
func poolOf(pools []Pool, address netip.Addr) (Pool, bool) {
	for _, p := range pools {
		if p.Contains(address) {
			return p, true
		}
	}
	return Pool{}, false
}

// plain are the pools as package addresses knows them.
func plain(pools []Pool) []addresses.Pool {
	out := make([]addresses.Pool, len(pools))
	for i, p := range pools {
		out[i] = p.Pool
	}
	return out
}

// free are the pools without addresses that somebody has.
func free(pools []Pool, taken []netip.Addr) []addresses.Pool {
	out := plain(pools)
	for i := range out {
		out[i] = out[i].Without(taken)
	}
	return out
}
